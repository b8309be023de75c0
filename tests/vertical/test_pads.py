"""Pads: uniform, exact, undone bit for bit, and nothing of the data under them (sampling paper, Lemma III.1)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpframe.noise.keystream import Keystream
from dpframe.plan.build import build_plan
from dpframe.plan.plan import Plan
from dpframe.release.rows import release
from dpframe.spaces import Integer, Space, Subset
from dpframe.vertical.pads import PadStream, Residues, add_pads, pad_group, subtract_pads
from dpframe.vertical.server import randomise_padded

KEY = bytes(range(32))
CHANCE = 1e-9
"""Error probability of each chi-squared test of fresh randomness; tests under a fixed key give the same every time."""


def is_uniform(counts: np.ndarray) -> bool:
    return bool(stats.chisquare(counts.ravel()).pvalue > CHANCE)


def plan_of(sizes: list[int], grouped: int, ring: int, items: int, most: int | None) -> Plan:
    """Return a plan of a group of columns, one by itself, a grid, and sets."""
    spaces: dict[str, Any] = {f"c{i}": [f"v{j}" for j in range(size)] for i, size in enumerate(sizes)}
    spaces |= {"grid": Integer(0, ring), "sets": Subset([f"i{j}" for j in range(items)], most)}
    groups = [[f"c{i}" for i in range(grouped)]] if grouped > 1 else []
    mechanisms = {"grid": "wrapped_geometric", "sets": "bitflip"}
    return build_plan(spaces, epsilon=8.0, delta=0.0, n=40, groups=groups, mechanisms=mechanisms)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    sizes = draw(st.lists(st.integers(2, 9), min_size=2, max_size=4))
    items = draw(st.integers(1, 130))
    most = draw(st.none() | st.integers(1, items))
    return plan_of(sizes, draw(st.integers(1, len(sizes))), draw(st.integers(1, 300)), items, most)


def codes_of(spaces: dict[str, Space], rows: int, seed: int) -> dict[str, Any]:
    rng, found = np.random.default_rng(seed), {}
    for name, space in spaces.items():
        if space.holds_sets:
            chosen = rng.integers(0, space.inner_space.count, (rows, rng.integers(0, space.inner_space.most + 1)))
            bits = np.zeros((rows, 64 * space.code_words), dtype=np.uint8)
            np.put_along_axis(bits, chosen, 1, axis=1)
            found[name] = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
        else:
            found[name] = rng.integers(0, space.size, rows).astype(space.code_type)
    return found


@pytest.mark.slow
@given(plan=plans(), rows=st.integers(0, 40), seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 40), known=st.data())
def test_decrypted_is_what_the_plain_codes_are_randomised_to(
    plan: Plan, rows: int, seed: int, cut: int, known: st.DataObject
) -> None:
    """Lemma III.1, with the same noise; in parts, and with some pads alone taken off."""
    spaces = dict(plan.spaces)
    codes, pads = codes_of(spaces, rows, seed), PadStream(spaces, None, b"").take(rows)
    hidden = add_pads(spaces, codes, pads)
    parts = [(0, min(cut, rows)), (min(cut, rows), rows)]
    pieces = [randomise_padded({name: c[a:b] for name, c in hidden.items()}, plan, KEY, a) for a, b in parts]
    noisy = {name: np.concatenate([piece[name] for piece in pieces]) for name in spaces}
    expected = release(codes, plan, KEY)
    mine = known.draw(st.sets(st.sampled_from(sorted(spaces))))
    own = {name: space for name, space in spaces.items() if name in mine}
    shown = noisy | subtract_pads(own, noisy, pads)
    for name, space in spaces.items():
        wanted = expected[name] if name in mine else pad_group(space).add(expected[name], pads[name])
        np.testing.assert_array_equal(shown[name], wanted)
        assert shown[name].dtype == codes[name].dtype


def test_noise_that_is_saturated_does_not_commute() -> None:
    """The check above can fail: saturation at a bound is no addition in a group."""
    group, rows = Residues(50), np.arange(50, dtype=np.uint8)
    noise = np.resize([-3, 4, 0, 9], 50)
    clipped = np.clip(rows + noise, 0, 49)
    under_pad = group.subtract(
        np.clip(group.add(rows, rows[::-1].copy()) + noise, 0, 49).astype(np.uint8), rows[::-1].copy()
    )
    assert (clipped != under_pad).any()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 13, 64, 200, 256, 257, 1_000])
@pytest.mark.parametrize("key", [None, KEY], ids=["system", "stream"])
def test_residues_are_uniform(size: int, key: bytes | None) -> None:
    drawn = PadStream({"x": Integer(0, size - 1) if size > 1 else pad_space(1)}, key, b"run").take(200_000)["x"]
    assert int(drawn.max()) < size
    counts = np.bincount(drawn, minlength=size)
    assert counts.sum() == 200_000
    assert size == 1 or is_uniform(counts)


def pad_space(size: int) -> Space:
    plan = build_plan({"x": [str(i) for i in range(size)]}, epsilon=1.0)
    return plan["x"].space


@pytest.mark.parametrize("items", [1, 5, 64, 70])
def test_bits_are_uniform_and_none_lies_beyond(items: int) -> None:
    space = Subset([f"i{j}" for j in range(items)])
    drawn = PadStream({"x": space}, KEY, b"run").take(100_000)["x"]
    bits = np.unpackbits(drawn.view(np.uint8), axis=1, bitorder="little")
    assert not bits[:, items:].any()
    for i, j in itertools.islice(itertools.combinations(range(items), 2), 30):
        assert is_uniform(np.bincount(2 * bits[:, i] + bits[:, j], minlength=4))
    assert is_uniform(np.bincount(bits[:, 0], minlength=2))


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 40_000], [65_536]])
def test_pads_of_a_key_are_the_same_in_any_parts(cuts: list[int]) -> None:
    spaces = {"x": Integer(0, 99), "y": Integer(0, 300), "z": Subset(["a", "b", "c"])}
    whole, rest = PadStream(spaces, KEY, b"run").take(100_000), PadStream(spaces, KEY, b"run")
    edges = [0, *cuts, 100_000]
    parts = [rest.take(b - a) for a, b in itertools.pairwise(edges)]
    for name in spaces:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    other = PadStream(spaces, KEY, b"another run").take(100_000)
    assert (other["x"] != whole["x"]).any()
    assert (whole["x"] % 100 != whole["y"] % 100).any(), "columns have pads of their own"


@pytest.mark.parametrize("key", [None, KEY], ids=["one-time", "stream"])
def test_ciphertext_is_uniform_whatever_the_data(key: bytes | None) -> None:
    """Columns, pairs of columns, and plain columns beside padded ones, of data that are constant or all equal."""
    spaces: dict[str, Space] = {"a": Integer(0, 6), "b": Integer(0, 4), "c": Integer(0, 2)}
    rows, rng = 120_000, np.random.default_rng(1)
    same = rng.integers(0, 3, rows).astype(np.uint8)
    for codes in ({name: np.zeros(rows, dtype=np.uint8) for name in spaces}, dict.fromkeys(spaces, same)):
        hidden = add_pads(spaces, codes, PadStream(spaces, key, b"run").take(rows))
        for one, other in itertools.product(spaces, spaces):
            sizes = spaces[one].size, spaces[other].size
            if one < other:
                pairs = hidden[one].astype(int) * sizes[1] + hidden[other]
                assert is_uniform(np.bincount(pairs, minlength=sizes[0] * sizes[1]))
            for value in np.unique(codes[one]):
                assert is_uniform(np.bincount(hidden[other][codes[one] == value], minlength=sizes[1]))


def test_under_the_pad_of_one_curator_the_columns_of_the_other_stay_uniform() -> None:
    spaces: dict[str, Space] = {"a": Integer(0, 6), "b": Integer(0, 4)}
    plan = build_plan(spaces, epsilon=6.0, n=100, delta=0.0, groups=[("a", "b")])
    rows = 120_000
    codes = {"a": np.full(rows, 3, dtype=np.uint8), "b": np.full(rows, 1, dtype=np.uint8)}
    pads = PadStream(spaces, KEY, b"run").take(rows)
    noisy = randomise_padded(add_pads(spaces, codes, pads), plan, KEY)
    mine = subtract_pads({"a": spaces["a"]}, noisy, pads)["a"]
    assert not is_uniform(np.bincount(mine, minlength=7)), "the check can fail: what is known is not uniform"
    for value in range(7):
        assert is_uniform(np.bincount(noisy["b"][mine == value], minlength=5))


def test_the_planes_of_noise_and_pads_are_apart() -> None:
    stream = Keystream(KEY, b"run")
    planes = {stream.column("x", domain).words(0, 0, 4).tobytes() for domain in ("noise", "pad", "records", "order")}
    assert len(planes) == 4
