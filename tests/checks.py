"""Common checks, run over the registries: whatever is registered keeps these promises."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import os
import pickle
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dpframe.channels import (
    MECHANISMS,
    Channel,
    GammaDiagonal,
    Geometric,
    Mechanism,
    RandomizedResponse,
    WithNull,
    WrappedGeometric,
    mechanism_from_json,
)
from dpframe.channels.bit_flips import FlipChannel
from dpframe.channels.geometric import GeometricChannel
from dpframe.channels.process import Process
from dpframe.channels.set_channel import SetChannel
from dpframe.channels.set_response import SetResponse
from dpframe.channels.tabulated import Tabulated
from dpframe.channels.vector_noise import BallChannel, VectorChannel
from dpframe.errors import ColumnError, ParameterError, PlanError
from dpframe.noise.keystream import Keystream
from dpframe.noise.tables import ChannelTable, GeometricTable
from dpframe.spaces import SPACES, Space, as_arrow, space_from_json
from dpframe.spaces.base import in_words

DRAWS = int(os.environ.get("DPFRAME_DRAWS", "100000"))
"""Draws of a set and of a vector that are compared with their law; ``DPFRAME_DRAWS=300000`` is the full run.

A right sampler fails as rarely at any; a cell of probability P that is off by the factor 1 ± t adds draws·P·t² to χ².
"""

SECRET = "swordfish"
"""A value that no message may hold."""


def check_space(space: Space, values: Any) -> None:
    """Check everything that a space promises, on its own codes and on a column of values.

    ``values`` is a column that the space can encode: values outside the bounds, and nulls if it is Nullable.
    """
    codes = sampled_codes(space)
    array = as_arrow(values)
    _check_space_statement(space, codes)
    _check_metric(space, codes)
    _check_round_trip(space, codes, array)
    _check_row_independence(space, array)
    _check_nulls(space, array)


def refused(error: type[Exception], match: str, call: Callable[[], Any]) -> str:
    """Check that a call is refused in one line, which matches, and shows nothing of the data."""
    with pytest.raises(error, match=match) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    quoted: BaseException | None = caught.value
    while quoted is not None:
        assert SECRET not in str(quoted)
        quoted = quoted.__cause__ or quoted.__context__
    return message


def sampled_codes(space: Space, most: int = 400) -> np.ndarray:
    """Return all codes of a space, or if they are many both ends and a fixed random choice between."""
    if space.holds_vectors:
        return space.code_array(sampled_vectors(space, most))
    if space.size <= most:
        return space.code_array(range(space.size))
    if space.code_words:
        return space.code_array(sampled_sets(space, most))
    rng = np.random.default_rng(space.size)
    inner = rng.integers(0, space.size, most - 20, dtype=np.uint64)
    ends = [*range(10), *range(space.size - 10, space.size)]
    return np.unique(np.concatenate([inner, np.array(ends, dtype=np.uint64)])).astype(space.code_type)


def sampled_sets(space: Space, most: int) -> list[int]:
    """Return codes of sets: the smallest, the full one (or null), and a fixed random choice of all densities."""
    bits, rng = space.size.bit_length() - 1, np.random.default_rng(7)
    inner = [sum(1 << int(i) for i in np.flatnonzero(rng.random(bits) < density)) for density in rng.random(most // 4)]
    return [*range(5), *inner, (1 << bits) - 1, space.size - 1]


def sampled_vectors(space: Space, most: int) -> list[int]:
    """Return codes of vectors in the ball, of all lengths and on its surface; and null's where it is a value."""
    inner, rng = space.inner_space, np.random.default_rng(7)
    rows = rng.normal(size=(most // 2, inner.width)) * rng.exponential(inner.bound, (most // 2, 1))
    found = sorted({inner.ball.centre, *inner.code_list(inner.encode(rows))})
    return [*found, space.size - 1] if space.has_null else found


def stored_under_nulls(array: pa.Array) -> set[Any]:
    """Return the distinct raw values that lie under the null slots of an Arrow array's own buffers."""
    absent = np.asarray(array.is_null())
    if pa.types.is_null(array.type):
        return {None}  # nothing is stored
    if pa.types.is_dictionary(array.type):
        return stored_under_nulls(array.indices)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return set(np.diff(np.asarray(array.offsets))[absent].tolist())
    validity, *buffers = array.buffers()
    assert validity is not None or not absent.any()
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        width = np.int32 if pa.types.is_string(array.type) else np.int64
        offsets = np.frombuffer(buffers[0], dtype=width)[array.offset :][: len(array) + 1]
        return set(np.diff(offsets)[absent].tolist())
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(buffers[0], dtype=np.uint8), bitorder="little")
        return set(bits[array.offset :][: len(array)][absent].tolist())
    raw = np.frombuffer(buffers[0], dtype=f"V{array.type.bit_width // 8}")[array.offset :][: len(array)]
    return {bytes(v) for v in raw[absent]}


def _check_space_statement(space: Space, codes: np.ndarray) -> None:
    """Size, code type, labels, JSON, equality, and that nothing of it can be changed."""
    assert SPACES[space.tag] is type(space)
    assert space.code_type == (np.uint64 if space.code_words else np.min_scalar_type(space.size - 1))
    assert 0 <= space.fixed_point < space.size
    text = json.dumps(space.to_json(), allow_nan=False)
    again = space_from_json(json.loads(text))
    assert again == space
    assert hash(again) == hash(space)
    assert json.dumps(again.to_json()) == text
    assert pickle.loads(pickle.dumps(space)) == space
    with pytest.raises(PlanError, match=r"has (no|the) field"):
        space_from_json(space.to_json() | {"colour": 1})
    for field in dataclasses.fields(space):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(space, field.name, None)
    for code in (-1, space.size):
        with pytest.raises(ParameterError, match=r"codes must be integers (in 0…|below 2)"):
            space.decode([code])
    if space.is_numeric:  # means, spreads and quantiles are taken of codes
        numbers = space.numbers(np.arange(min(space.values, 1_000)))
        # Beyond 2⁵³ floats have no whole steps.
        steps = np.diff(numbers[np.abs(numbers) < 2**53])
        np.testing.assert_allclose(steps, steps[:1].repeat(len(steps)), rtol=1e-6)
    if space.size <= 1_000:
        labels = space.labels()
        assert len(labels) == len(set(map(repr, labels))) == space.size
        assert labels == space.decode(space.code_array(range(space.size))).to_pylist()


def _check_metric(space: Space, codes: np.ndarray) -> None:
    """Identity, symmetry, triangle; the diameter and the smallest distance are bounds, and attained."""
    known = [code for code in space.code_list(codes) if not space.code_words or _is_value(space, code)]
    some = [*known[:5], *known[5:-5:40], *known[-5:]]
    if space.holds_sets:  # two sets as far apart as any
        inner = space.inner_space
        first = (1 << inner.most) - 1
        some += [first, ((1 << inner.count) - 1 ^ first) & ((1 << 2 * inner.most) - 1)]
    values = space.decode(some).to_pylist()
    table = np.array([[space.code_distance(x, y) for y in some] for x in some])
    different = np.array([[x != y for y in some] for x in some])
    assert (table[~different] == 0).all()
    assert (table == table.T).all()
    share = table / (space.diameter or 1)
    assert (share[:, None, :] <= share[:, :, None] + share[None, :, :] + 1e-9).all()
    if space.size > 1:
        assert table.max() <= space.diameter * (1 + 1e-9)
        assert table[different].min() >= space.min_distance * (1 - 1e-9)
        if not space.holds_vectors:  # of whose corners the grid has none
            assert table.max() == pytest.approx(space.diameter, rel=1e-9)
            assert table[different].min() == pytest.approx(space.min_distance, rel=1e-9)
        assert space.points == space.size or space.code_words
        for i, j in ((0, -1), (-1, 0), (0, 1), (0, 0)):
            given = space.distance(values[i], values[j])
            assert given == pytest.approx(table[i, j], rel=1e-6, abs=1e-3 * space.min_distance)


def _is_value(space: Space, code: int) -> bool:
    """Tell whether a code of a set, a vector or null is one of a value: noise heeds no size."""
    if space.holds_vectors and not (space.has_null and code == space.size - 1):
        words = space.inner_space.code_array([code])
        return bool((space.inner_space.ball.within(words) == words).all())
    return (space.has_null and code == space.size - 1) or code.bit_count() <= space.inner_space.most


def _check_round_trip(space: Space, codes: np.ndarray, array: pa.Array) -> None:
    """Every code survives, values settle after one round trip, and decoded values belong to the space."""
    for type_ in {space.natural_type, space.natural_type if pa.types.is_null(array.type) else array.type}:
        decoded = space.decode(codes, type_)
        if not pa.types.is_dictionary(type_):
            assert decoded.type == type_
        assert decoded.null_count == space.code_list(codes).count(space.size - 1) * (space.has_null)
        decoded.validate(full=True)
        back = space.encode(decoded)
        assert back.dtype == space.code_type
        assert back.tolist() == codes.tolist()
    values = [code for code in space.code_list(codes[:20]) if not space.code_words or _is_value(space, code)]
    assert all(map(space.contains, space.decode(space.code_array(values)).to_pylist()))
    assert not space.contains(object())
    found = space.encode(array)
    assert found.dtype == space.code_type
    assert found.shape == (len(array), *[space.code_words] * bool(space.code_words))
    settled = space.decode(found)
    again = space.encode(settled)
    assert again.tolist() == found.tolist()
    assert space.decode(again).equals(settled)
    assert space.encode(array[:0]).dtype == space.code_type
    assert space.decode([]).type == space.natural_type
    assert len(space.encode(array[:0])) == len(space.decode([])) == 0


def _check_row_independence(space: Space, array: pa.Array) -> None:
    """A row's code is the same in any order, slice, chunking and company."""
    found, n = space.encode(array), len(array)
    order = np.random.default_rng(n).permutation(n)
    moved = pa.array(order, pa.int64())
    if "string_view" not in str(array.type):
        assert space.encode(array.take(moved)).tolist() == found[order].tolist()
        assert space.encode(pa.concat_arrays([array[n // 2 :], array])).tolist() == [
            *found[n // 2 :].tolist(),
            *found.tolist(),
        ]
    for start, length in ((0, n // 2), (n // 3, n), (1, 9), (n, 3)):
        assert space.encode(array.slice(start, length)).tolist() == found[start:][:length].tolist()
    cuts = [0, n // 4, n // 4, n // 2, n]
    pieces = pa.chunked_array([array[a:b] for a, b in pairwise(cuts)], array.type)
    assert space.encode(pieces).tolist() == found.tolist()
    for row in range(min(n, 12)):
        assert space.encode(array[row : row + 1]).tolist() == found[row : row + 1].tolist()


def _check_nulls(space: Space, array: pa.Array) -> None:
    """Nulls are a value of Nullable spaces only, and what lies under them changes nothing and says nothing."""
    nulls = pa.nulls(2, space.natural_type)
    if space.has_null:
        for given in (nulls, pa.nulls(2)):
            assert space.code_list(space.encode(given)) == [space.size - 1] * 2
        assert space.contains(None)
        codes = sampled_codes(space)
        codes = np.insert(codes, np.arange(0, len(codes), 3), space.code_array([space.size - 1])[0], axis=0)
        for type_ in {space.natural_type, space.natural_type if pa.types.is_null(array.type) else array.type}:
            decoded = space.decode(codes, type_)
            if not pa.types.is_string_view(type_):
                assert len(stored_under_nulls(decoded)) == 1
        return
    assert not space.contains(None)
    with pytest.raises(ColumnError, match=r"is null, .* at row position 0$"):
        space.encode(nulls)
    assert space.code_list(space.encode(nulls, nulls="impute")) == [space.fixed_point] * 2
    hidden = _with_first_hidden(array)
    if hidden is not None:
        expected = [space.fixed_point, *space.encode(array)[1:].tolist()]
        assert space.encode(hidden, nulls="impute").tolist() == expected


def _with_first_hidden(array: pa.Array) -> pa.Array | None:
    """Return an array of fixed width with its first value still in the buffer but under a null slot."""
    primitive = not pa.types.is_dictionary(array.type) and len(array.buffers()) == 2
    if not primitive or pa.types.is_boolean(array.type) or array.null_count or not len(array) or array.offset:
        return None
    validity = pa.py_buffer(np.packbits(np.arange(len(array)) > 0, bitorder="little").tobytes())
    return pa.Array.from_buffers(array.type, len(array), [validity, array.buffers()[1]])


def hidden_bytes(folder: Path) -> bytes:
    """Return what is on disk of the one file without a name that this process has open in a folder (Linux)."""
    open_files = [(int(link.name), os.readlink(link)) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    (number,) = [fd for fd, name in open_files if name.startswith(f"{folder}/") and name.endswith("(deleted)")]
    return os.pread(number, os.fstat(number).st_size, 0)


def exact_columns(mechanism: Channel) -> tuple[list[list[int]], int]:
    """Return P(· | x) for every x as integers over one total, from the tables that are sampled.

    Written apart from the library's own `law`: noise is laid on every code and clipped, one value at a time.
    """
    if isinstance(mechanism, RandomizedResponse):
        table, size = mechanism.table, mechanism.size
        if size == 1:
            return [[1]], 1
        columns = [[table.keep if y == x else table.threshold for y in range(size)] for x in range(size)]
        return columns, 1 << table.bits
    if isinstance(mechanism, GeometricChannel):
        return [_clipped(mechanism.table, x) for x in range(mechanism.size)], 1 << 128
    if isinstance(mechanism, WrappedGeometric):
        steps, size = mechanism.table.weights(), mechanism.size
        return [[steps[(y - x) % size] for y in range(size)] for x in range(size)], 1 << 64
    if isinstance(mechanism, GammaDiagonal):
        return [_shifted(mechanism, x) for x in range(mechanism.size)], 1 << mechanism.source.bits
    if isinstance(mechanism, Tabulated):
        return [_binned(mechanism._channel, x) for x in range(mechanism.size)], 1 << 64
    if not isinstance(mechanism, WithNull):
        columns = [mechanism.weights(x) for x in range(mechanism.size)]  # a new one's, until its tables are read here
        return [weights for weights, _ in columns], columns[0][1]
    values, total = exact_columns(mechanism.inner)
    return _with_null(mechanism, values, total)


def _with_null(mechanism: WithNull, values: list[list[int]], total: int) -> tuple[list[list[int]], int]:
    """Lay the flag on the values' laws; a null whose flag flips is at the centre."""
    keep, flip = mechanism.flag.keep, mechanism.flag.threshold
    wide = [[keep * w for w in column] + [flip * total] for column in values]
    return [*wide, [flip * w for w in values[mechanism.inner.centre]] + [keep * total]], total << mechanism.flag.bits


def _binned(table: ChannelTable, x: int) -> list[int]:
    """Count the words of every bin that `ChannelTable.sample` turns into each output."""
    column, words = [0] * table.size, 1 << (64 - table.bits)
    for b in range(1 << table.bits):
        i = (x << table.bits) + b
        first = int(table.limits[i]) - b * words + 1
        column[table.values[2 * i]] += first
        column[table.values[2 * i + 1]] += words - first
    return column


def _shifted(mechanism: GammaDiagonal, x: int) -> list[int]:
    """Add every noise tuple to a tuple, coordinate by coordinate, and count what is seen."""
    column, whole = [0] * mechanism.size, math.prod(mechanism.sizes)
    seen = dict(zip(mechanism.kept, _digits(x, [mechanism.sizes[i] for i in mechanism.kept]), strict=True))
    for z in range(whole):
        weight = (
            mechanism.source.threshold if z else (1 << mechanism.source.bits) - (whole - 1) * mechanism.source.threshold
        )
        y = 0
        for i, (digit, size) in enumerate(zip(_digits(z, mechanism.sizes), mechanism.sizes, strict=True)):
            if i in seen:
                y = y * size + (seen[i] + digit) % size
        column[y] += weight
    return column


def _digits(number: int, sizes: Sequence[int]) -> list[int]:
    found = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        found.append(digit)
    return found[::-1]


def _clipped(table: GeometricTable, x: int) -> list[int]:
    column = [0] * (table.span + 1)
    for k, weight in table.noise_weights.items():
        column[min(max(x + k, 0), table.span)] += weight
    return column


def exact_delta(columns: list[list[int]], total: int, epsilon: float) -> Fraction:
    """Return max over ordered pairs of Σ max(0, P − e^ε P'), to 60 digits."""
    with localcontext(Context(prec=90)):
        factor = Fraction(Decimal(epsilon).exp())
    up, down = factor.numerator, factor.denominator
    scaled = [([p * down for p in column], [p * up for p in column]) for column in columns]
    most = max(sum(p - q for p, q in zip(one, other, strict=True) if p > q) for one, _ in scaled for _, other in scaled)
    return Fraction(most, total * down)


def exact_epsilon(columns: list[list[int]]) -> Decimal:
    """Return ln of the largest ratio P/P', to 60 digits."""
    ratio = max(Fraction(max(row), min(row)) for row in zip(*columns, strict=True) if any(row))
    with localcontext(Context(prec=60)):
        return (Decimal(ratio.numerator) / ratio.denominator).ln()


def check_mechanism(mechanism: Mechanism) -> None:
    """Check all that a mechanism states, against computations of its own."""
    if isinstance(mechanism.inner, Process):
        check_process(mechanism, mechanism.inner)
        return
    if isinstance(mechanism.inner, VectorChannel):
        check_vector_mechanism(mechanism, mechanism.inner)
        return
    if mechanism.code_words:
        check_set_mechanism(mechanism)
        return
    if mechanism.releases_outside_bounds:
        check_wide_mechanism(mechanism, mechanism.inner)
        return
    _check_value(mechanism)
    _check_request(mechanism)
    _check_chunks(mechanism)
    _check_pads(mechanism)
    _check_bad_codes(mechanism)
    if mechanism.size <= 70_000:
        _check_fit(mechanism)
    if mechanism.size <= 40:
        columns, total = exact_columns(mechanism)
        _check_law(mechanism, columns, total)
        _check_loss(mechanism, columns, total)
        _check_blanket(mechanism, columns, total)
        _check_error(mechanism, columns, total)
        _check_inverse(mechanism)


def check_wide_mechanism(mechanism: Mechanism, channel: Any) -> None:
    """Check the same of noise that goes beyond the values' bounds: brute force over all pairs where the law is short.

    The integers are those of the tables; what lies beyond the released codes is at their ends.
    """
    _check_value(mechanism)
    loss, asked = mechanism.loss, mechanism.budget
    assert loss.pure() == loss.epsilon(0.0) == math.inf
    assert loss.delta(asked.epsilon) <= asked.delta
    assert loss.epsilon(asked.delta) <= asked.epsilon
    if channel.table.sigma2 > 100:
        assert loss.delta(asked.epsilon) >= 0.85 * asked.delta
        assert loss.epsilon(asked.delta) >= 0.98 * asked.epsilon
    assert channel.room >= 7 * float(channel.table.sigma2) ** 0.5
    codes = np.random.default_rng(1).integers(0, mechanism.size, 70_001)
    codes[:3] = [0, mechanism.size - 1, mechanism.size // 2]
    stream = Keystream(bytes(range(32))).column("chunks")
    whole = mechanism.sample(codes, stream, first_row=5)
    assert whole.min() >= 0
    assert whole.max() < mechanism.outputs
    for cuts in ([1], [32_768], [32_767, 32_769, 65_537]):
        edges = [0, *cuts, len(codes)]
        parts = [mechanism.sample(codes[a:b], stream, first_row=5 + a) for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    small = codes.astype(np.min_scalar_type(mechanism.size - 1))
    np.testing.assert_array_equal(mechanism.sample(small, stream, first_row=5), whole)
    assert mechanism.sample(codes[:0], stream).shape == (0,)
    _check_wide_fit(mechanism)
    _check_wide_moments(mechanism)
    if mechanism.size <= 40 and mechanism.outputs <= 2_000:
        columns, total = exact_columns(mechanism)
        assert all(sum(column) == total for column in columns)
        exact = np.array([[w / total for w in column] for column in columns]).T
        np.testing.assert_allclose(mechanism.transition(), exact, atol=1e-11)
        for epsilon in {0.0, asked.epsilon / 3, asked.epsilon, 2 * asked.epsilon}:
            true = exact_delta(columns, total, epsilon)
            assert true <= Fraction(loss.delta(epsilon))
            if not isinstance(mechanism, WithNull):
                # The tables' distance from the ideal law is multiplied by e^ε.
                assert loss.delta(epsilon) <= float(true) * (1 + 1e-9) + 1e-15 + 1e-28 * math.exp(epsilon)
        shared = Fraction(sum(min(row) for row in zip(*columns, strict=True)), total)
        assert 0 < Fraction(mechanism.blanket) <= shared
        assert _wide_error(mechanism, channel, exact) == pytest.approx(mechanism.expected_error(), rel=1e-9)


def _wide_error(mechanism: Mechanism, channel: Any, exact: np.ndarray) -> float:
    values = channel.size
    away = np.abs(np.arange(channel.outputs)[:, None] - channel.room - np.arange(values))
    if mechanism.size == values:
        return float((exact * away).sum(axis=0).max())
    shown = (exact[:-1, :values] * away).sum(axis=0) + exact[-1, :values] * channel.diameter
    return float(shown.max())


def _check_wide_fit(mechanism: Mechanism, rows: int = 200_000) -> None:
    """Kolmogorov's test of draws from both ends and the middle: each fails with probability 1e-9."""
    values = mechanism.inner.size
    starts = mechanism.changes(np.array([0, values]))
    for x in sorted({0, values // 3, mechanism.size - 1}):
        stream = Keystream(hashlib.sha256(repr((mechanism, x)).encode()).digest()).column("fit")
        drawn = mechanism.sample(np.full(rows, x), stream)
        seen = np.cumsum(np.bincount(np.searchsorted(starts, drawn, side="right") - 1, minlength=len(starts))) / rows
        cells = mechanism.between(np.unique([0, x, x + 1, values] if x < values else [0, values]), starts)
        law = np.cumsum(cells[:, min(x, 1) if x < values else -1])
        assert np.abs(seen - law).max() < math.sqrt(math.log(2e9) / 2 / rows)


def _check_wide_moments(mechanism: Mechanism) -> None:
    """A polynomial's surrogate has it as its mean, by the law; another function is refused."""
    last = mechanism.size - 1 - (mechanism.inner is not mechanism)
    codes = sorted({0, last // 3, last})
    if mechanism.outputs <= 100_000:
        powers = [lambda c, p=p: (2 * c / last - 1.0) ** p for p in range(5)]
        for f in powers:
            surrogate = mechanism.surrogate_at(f, np.arange(mechanism.outputs))
            scale = np.abs(surrogate).max()
            for x in codes:
                assert abs(surrogate @ mechanism.law(x) - f(np.array(x))) < 1e-7 * max(scale, 1.0)
    if last > 8:
        for call in (
            lambda: mechanism.surrogate_at(lambda c: (c < 3).astype(float), np.arange(3)),
            lambda: mechanism.invert(np.zeros(mechanism.outputs)),
        ):
            with pytest.raises(ParameterError, match=r'take (them|counts) from a fit, method="em"'):
                call()


def check_set_mechanism(mechanism: Mechanism) -> None:
    """Check the same of a channel on sets, whose codes are rows of words and whose inverse goes by items."""
    _check_value(mechanism)
    _check_request(mechanism)
    _check_set_chunks(mechanism)
    _check_pads(mechanism)
    _check_set_codes(mechanism)
    if sets_of(mechanism).items <= 5:
        columns, total = exact_sets(mechanism)
        exact = np.array([[w / total for w in column] for column in columns]).T
        np.testing.assert_allclose(mechanism.transition(), exact, rtol=1e-12)
        _check_loss(mechanism, columns, total)
        _check_blanket(mechanism, columns, total)
        null = mechanism.size - 1 if mechanism.size % 2 else -1
        true = max(
            sum(w * _set_distance(mechanism, x, y, null) for y, w in enumerate(column)) / total
            for x, column in enumerate(columns)
            if x == null or x.bit_count() <= sets_of(mechanism).most
        )
        assert mechanism.expected_error() == pytest.approx(true, rel=1e-9)
        full = (1 << sets_of(mechanism).items) - 1
        _check_word_fit(mechanism, exact, {0, full, mechanism.size - 1, mechanism.size // 2})


def check_vector_mechanism(mechanism: Mechanism, channel: VectorChannel) -> None:
    """Check the same of a channel on vectors, whose loss is a bound: exact in one dimension and in l1."""
    _check_value(mechanism)
    _check_request(mechanism)
    _check_vector_chunks(mechanism, channel)
    if mechanism.size > 300:
        return
    ball = channel.ball
    columns, total = exact_vectors(mechanism, channel)
    exact = np.array([[w / total for w in column] for column in columns]).T
    np.testing.assert_allclose(mechanism.transition(), exact, rtol=1e-12)
    assert Decimal(mechanism.loss.epsilon(0.0)) >= exact_epsilon(columns)
    for epsilon in (0.0, mechanism.epsilon / 2, mechanism.epsilon) if mechanism.size < 20 else ():
        assert Fraction(mechanism.loss.delta(epsilon)) >= exact_delta(columns, total, epsilon)
    shared = Fraction(sum(min(row) for row in zip(*columns, strict=True)), total)
    assert 0 < Fraction(mechanism.blanket) <= shared
    if ball.norm == "l1" or ball.length == 1:
        assert mechanism.loss.epsilon(0.0) <= float(exact_epsilon(columns)) * (1 + 1e-4)
        assert mechanism.blanket >= float(shared) * (1 - 1e-3) or mechanism.size % 2
    assert mechanism.expected_error() >= _vector_error(mechanism, channel, exact) * (1 - 1e-9)
    _check_word_fit(mechanism, exact, {0, mechanism.size // 3, mechanism.size - 1})


def check_process(mechanism: Mechanism, channel: Process) -> None:
    """Check the same of Gaussian noise on vectors: its law one coordinate at a time, its loss against two of them.

    With all of the distance along one coordinate the loss is that of one discrete Gaussian, which is summed here.
    """
    _check_value(mechanism)
    loss, asked = mechanism.loss, mechanism.budget
    assert loss.pure() == loss.epsilon(0.0) == math.inf
    assert asked.delta * 0.999 < loss.delta(asked.epsilon) <= asked.delta
    assert asked.epsilon * 0.999 < loss.epsilon(asked.delta) <= asked.epsilon
    _check_vector_chunks(mechanism, channel)
    ball, sigma = channel.ball, float(channel.table.sigma2) ** 0.5
    assert (ball.last - ball.radius) / 2 >= 6 * sigma
    reach = math.ceil(12 * sigma)
    law = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / 2 / sigma**2)
    law /= law.sum()
    flags = [mechanism.present] if isinstance(mechanism, WithNull) else []
    shown, moves = [(1.0, 1.0, ball.radius)], []
    for keep, flip in flags:
        shown = [(keep, keep, ball.radius)]
        moves = [(keep, flip, (ball.radius + 1) // 2), (flip, keep, (ball.radius + 1) // 2)]
    for one, other, far in [*shown, *moves]:
        for epsilon in (asked.epsilon / 3, asked.epsilon, 2 * asked.epsilon):
            values = np.maximum(one * law[far:] - math.exp(epsilon) * other * law[:-far], 0.0).sum()
            hidden = max(0.0, (1 - one) - math.exp(epsilon) * (1 - other))
            assert values + hidden <= loss.delta(epsilon)
    assert mechanism.expected_error() >= sigma * 0.79
    _check_process_fit(channel, law, reach)


def _check_process_fit(channel: Process, law: np.ndarray, reach: int, rows: int = 200_000) -> None:
    """Kolmogorov's test of every one of a few coordinates, and their correlations: each fails with probability 1e-9."""
    ball = channel.ball
    codes = np.zeros((rows, ball.words), dtype=np.uint64)
    codes[:] = ball.pack(np.full((1, ball.length), ball.last // 2))
    stream = Keystream(hashlib.sha256(repr(channel).encode()).digest()).column("fit")
    noise = ball.unpack(channel.sample(codes, stream)) - ball.last // 2
    below = np.cumsum(law)
    for i in sorted({0, ball.length // 2, ball.length - 1}):
        seen = np.cumsum(np.bincount(noise[:, i] + reach, minlength=len(law))) / rows
        assert np.abs(seen - below).max() < math.sqrt(math.log(2e9) / 2 / rows)
    if ball.length > 1:
        assert abs(np.corrcoef(noise[:, 0], noise[:, -1])[0, 1]) < 6.2 / math.sqrt(rows)


def exact_vectors(mechanism: Mechanism, channel: VectorChannel) -> tuple[list[list[int]], int]:
    """Return P(· | x) for every x as integers over one total: noise on each coordinate, of x drawn to the ball."""
    ball, one = channel.ball, [_clipped(channel.table, x) for x in range(channel.ball.last + 1)]
    columns = []
    for x in range(channel.size):
        inside = ball.unpack(ball.within(np.array([[x]], dtype=np.uint64)))[0].tolist()
        codes = ball.unpack(np.arange(channel.size, dtype=np.uint64)[:, None]).tolist()
        columns.append([math.prod(one[a][b] for a, b in zip(inside, y, strict=True)) for y in codes])
    total = 1 << 128 * ball.length
    return _with_null(mechanism, columns, total) if isinstance(mechanism, WithNull) else (columns, total)


def _vector_error(mechanism: Mechanism, channel: VectorChannel, exact: np.ndarray) -> float:
    """Return the largest expected distance between a vector of the ball and its release, in grid steps."""
    ball, values = channel.ball, np.arange(channel.size, dtype=np.uint64)[:, None]
    fields = ball.unpack(values)
    order = {"l1": 1, "l2": 2, "linf": np.inf}[ball.norm]
    far = np.array([[np.linalg.norm(a - b, order) for b in fields] for a in fields])
    inside = (ball.within(values) == values)[:, 0]
    if mechanism.size % 2:
        far = np.pad(far, ((0, 1), (0, 1)), constant_values=mechanism.diameter)
        far[-1, -1], inside = 0.0, np.append(inside, True)
    return float((exact.T * far).sum(axis=1)[inside].max())


def _check_vector_chunks(mechanism: Mechanism, channel: BallChannel) -> None:
    """Any split and first row give the same vectors, unused bits stay 0, and null stands alone."""
    rows, start, ball = 20_001, 5, channel.ball
    fields = np.random.default_rng(1).integers(0, ball.last + 1, (rows, ball.length))
    codes = np.zeros((rows, mechanism.code_words), dtype=np.uint64)
    codes[:, : ball.words] = ball.pack(fields)
    if isinstance(mechanism, WithNull):
        codes[::7] = np.frombuffer(mechanism.null.to_bytes(8 * mechanism.code_words, "little"), dtype="<u8")
    stream = Keystream(bytes(range(32))).column("chunks")
    kept, whole = codes.copy(), mechanism.sample(codes, stream, first_row=start)
    np.testing.assert_array_equal(codes, kept, err_msg="the input was written to")
    assert in_words(whole, mechanism.size - 1)
    for cuts in ([1], [16_384], [7, 7, 15_000]):
        edges = [0, *cuts, rows]
        parts = [mechanism.sample(codes[a:b], stream, first_row=start + a) for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(mechanism.sample(np.asfortranarray(codes), stream, first_row=start), whole)
    assert mechanism.sample(codes[:0], stream).shape == (0, mechanism.code_words)
    for wrong in (codes[:, 0], codes.astype(np.int64)):
        with pytest.raises(ParameterError, match="codes must be rows of"):
            mechanism.sample(wrong, stream)
    with pytest.raises(ParameterError, match="ask for mean or mean_curve"):
        channel.surrogate_at(lambda c: c, codes)
    with pytest.raises(ParameterError, match="ask for mean or mean_curve"):
        channel.invert(np.zeros(3))


def sets_of(mechanism: Mechanism) -> SetChannel:
    assert isinstance(mechanism.inner, SetChannel)
    return mechanism.inner


def _set_distance(mechanism: Mechanism, x: int, y: int, null: int) -> int:
    return (
        (x ^ y).bit_count()
        if null not in (x, y)
        else min(sets_of(mechanism).items, 2 * sets_of(mechanism).most) * (x != y)
    )


def exact_sets(mechanism: Mechanism) -> tuple[list[list[int]], int]:
    """Return P(· | x) for every x as integers over one total, item by item and one set at a time.

    A set that is cut is each of its parts equally often; of null the empty set is released, if any.
    """
    channel, parts = sets_of(mechanism), 60  # a multiple of the number of parts of up to 5 items
    if isinstance(channel, SetResponse):
        return _whole_sets(channel, parts)
    assert isinstance(channel, FlipChannel)
    h, flips = channel.items, channel.flips

    def shown(x: int, y: int) -> int:
        weight = 1
        for i in range(h):
            one = flips.ones if x >> i & 1 else flips.zeros
            weight *= one if y >> i & 1 else flips.total - one
        return weight

    def cut(x: int) -> list[int]:
        inside = _parts_of(channel, x)
        assert parts % len(inside) == 0
        return [sum(shown(z, y) for z in inside) * (parts // len(inside)) for y in range(1 << h)]

    columns, total = [cut(x) for x in range(1 << h)], parts * flips.total**h
    return _with_null(mechanism, columns, total) if isinstance(mechanism, WithNull) else (columns, total)


def _parts_of(channel: SetChannel, x: int) -> list[int]:
    """Return what a set may be cut to; null, beyond all sets, stays."""
    if x >> channel.items:
        return [x]
    most = min(x.bit_count(), channel.most)
    return [z for z in range(1 << channel.items) if z & x == z and z.bit_count() == most]


def _whole_sets(channel: SetResponse, parts: int) -> tuple[list[list[int]], int]:
    """Do so of a response among whole sets: what the words that are drawn turn a part into, by division."""
    small = [y for y in range(1 << channel.items) if y.bit_count() <= channel.most]
    values, bits = [*small, *range(1 << channel.items, channel.size)], channel.table.bits
    other, columns = channel.table.threshold, []
    for x in range(channel.size):
        column, inside = [0] * channel.size, _parts_of(channel, x)
        for z in inside:
            for y in values:
                share = (1 << bits) - (len(values) - 1) * other if y == z else other
                column[y] += share * (parts // len(inside))
        columns.append(column)
    return columns, parts << bits


def _check_pads(mechanism: Mechanism, rows: int = 500) -> None:
    """Noise that is added in a group commutes with a pad, word by word; other noise is refused under one.

    The group is added in here apart from the library's own way.
    """
    stream, rng = Keystream(bytes(range(32))).column("pads"), np.random.default_rng(3)
    if mechanism.code_words:
        items = (mechanism.size - 1).bit_length()
        bits = rng.integers(0, 2, (2, rows, 64 * mechanism.code_words), dtype=np.uint8)
        bits[:, :, items:] = 0
        plain, pad = np.packbits(bits, axis=2, bitorder="little").view("<u8").astype(np.uint64)
    else:
        plain, pad = rng.integers(0, mechanism.size, (2, rows))
    if not mechanism.adds_in_group:
        with pytest.raises(ParameterError, match="adds no noise in a group"):
            mechanism.sample_padded(plain, stream)
        return
    plain = mechanism.before_pad(plain, Keystream(bytes(32)).column("cut"))
    if mechanism.code_words:
        undone = mechanism.sample_padded(plain ^ pad, stream, 7) ^ pad
    elif isinstance(mechanism, GammaDiagonal):
        places = [np.unravel_index(codes, mechanism.seen_sizes) for codes in (plain, pad)]
        summed = [(x + v) % k for x, v, k in zip(*places, mechanism.seen_sizes, strict=True)]
        moved = mechanism.sample_padded(np.ravel_multi_index(summed, mechanism.seen_sizes), stream, 7)
        found = np.unravel_index(moved, mechanism.seen_sizes)
        undone = np.ravel_multi_index(
            [(y - v) % k for y, v, k in zip(found, places[1], mechanism.seen_sizes, strict=True)], mechanism.seen_sizes
        )
    else:
        undone = (mechanism.sample_padded((plain + pad) % mechanism.size, stream, 7) - pad) % mechanism.size
    np.testing.assert_array_equal(undone, mechanism.sample(plain, stream, 7))


def _check_set_chunks(mechanism: Mechanism) -> None:
    """Any split and first row give the same sets; bits beyond the last item stay 0, and null stands alone."""
    rows, start, words = 20_001, 5, mechanism.code_words
    rng, h = np.random.default_rng(1), sets_of(mechanism).items
    bits = np.zeros((rows, 64 * words), dtype=np.uint8)
    bits[:, :h] = rng.random((rows, h)) < rng.random((rows, 1))
    if mechanism.size % 2:
        bits[::7] = 0
        bits[::7, h] = 1
    codes = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    stream = Keystream(bytes(range(32))).column("chunks")
    kept, whole = codes.copy(), mechanism.sample(codes, stream, first_row=start)
    np.testing.assert_array_equal(codes, kept, err_msg="the input was written to")
    assert (whole.dtype, whole.shape) == (codes.dtype, codes.shape)
    assert in_words(whole, mechanism.size - 1)
    for cuts in ([1], [8_192], [8_191, 8_193, 16_385], [7, 7, 15_000]):
        edges = [0, *cuts, rows]
        parts = [mechanism.sample(codes[a:b], stream, first_row=start + a) for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(mechanism.sample(np.repeat(codes, 2, axis=0)[::2], stream, first_row=start), whole)
    np.testing.assert_array_equal(mechanism.sample(np.asfortranarray(codes), stream, first_row=start), whole)
    assert mechanism.sample(codes[:0], stream).shape == (0, words)


def _check_set_codes(mechanism: Mechanism) -> None:
    stream, words = Keystream(bytes(32)).column("bad"), mechanism.code_words
    zeros = np.zeros((3, words), dtype=np.uint64)
    for wrong in (zeros[:, 0], zeros.astype(np.int64), np.zeros((3, words + 1), np.uint64), np.array(0), [[0.5]]):
        with pytest.raises(ParameterError, match=f"codes must be rows of {words} words"):
            mechanism.sample(wrong, stream)
    if mechanism.size != 1 << 64 * words:
        with pytest.raises(ParameterError, match="below 2"):
            mechanism.sample(zeros + np.uint64(2**64 - 1), stream)
    with pytest.raises(ParameterError, match="first_row"):
        mechanism.sample(zeros, stream, first_row=-1)
    for call in (lambda: mechanism.surrogate_at(lambda c: c, zeros), lambda: mechanism.invert(np.zeros(3))):
        with pytest.raises(ParameterError, match="ask for support, cooccurrence or set_sizes"):
            call()


def _check_word_fit(mechanism: Mechanism, law: np.ndarray, codes: set[int], rows: int = DRAWS) -> None:
    """Chi-square of draws of sets or vectors from some codes; a right sampler fails with probability 1e-9 a code."""
    for x in sorted(codes):
        stream = Keystream(hashlib.sha256(repr((mechanism, x)).encode()).digest()).column("fit")
        drawn = mechanism.sample(np.full((rows, 1), x, dtype=np.uint64), stream)[:, 0]
        expected, observed = rows * law[:, x], np.bincount(drawn.astype(np.int64), minlength=mechanism.size)
        usual = expected > 20
        statistic = ((observed - expected)[usual] ** 2 / expected[usual]).sum()
        assert stats.chi2.sf(statistic, max(usual.sum() - 1, 1)) > 1e-9


def _check_value(mechanism: Mechanism) -> None:
    data = json.loads(json.dumps(mechanism.to_json()))
    assert data["mechanism"] == mechanism.tag
    assert MECHANISMS[mechanism.tag].tag == mechanism.tag
    assert mechanism_from_json(data) == mechanism
    for other in (mechanism_from_json(data), pickle.loads(pickle.dumps(mechanism)), copy.deepcopy(mechanism)):
        assert other == mechanism
        assert hash(other) == hash(mechanism)
        assert other.to_json() == mechanism.to_json()
        assert other.loss == mechanism.loss
    # Of channels that are given by their weights these are the parameters.
    given = len(json.dumps(data)) if isinstance(mechanism, Tabulated) else 0
    assert len(pickle.dumps(mechanism)) < 500 + given, "a pickle holds the parameters, not the tables"
    assert dataclasses.replace(mechanism, epsilon=mechanism.epsilon * 1.5) != mechanism
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 2.0
    for broken in ({**data, "mechanism": "sorcery"}, {**data, "gamma": 1}, {**data, "epsilon": -1}, {"epsilon": 1}):
        with pytest.raises(PlanError, match="mechanism"):
            mechanism_from_json(broken)
    for name, wrong in (("epsilon", 0), ("epsilon", math.nan), ("epsilon", math.inf), ("delta", 1), ("delta", -1e-9)):
        with pytest.raises(ParameterError, match=name):
            dataclasses.replace(mechanism, **{name: wrong})


def _check_request(mechanism: Mechanism) -> None:
    """Never above what was asked, and δ(ε) and ε(δ) inverses of each other."""
    loss, asked = mechanism.loss, mechanism.budget
    assert loss.delta(asked.epsilon) <= asked.delta
    assert loss.epsilon(asked.delta) <= asked.epsilon
    assert loss.delta(loss.epsilon(0.0)) == 0
    assert loss.epsilon(0.0) == loss.pure()
    for delta in (1e-9, 1e-3, 0.2):
        epsilon = loss.epsilon(delta)
        assert loss.delta(epsilon) <= delta
        if epsilon > 0:
            assert loss.delta(math.nextafter(epsilon, 0) * (1 - 1e-12)) > delta
    curve = [loss.delta(loss.pure() * share) for share in (0, 0.1, 0.5, 0.9, 0.999, 1, 1.001)]
    assert curve == sorted(curve, reverse=True)
    assert 0 <= curve[0] <= 1
    assert curve[-2] == 0
    if mechanism.size > 1 and 1e-6 <= asked.epsilon <= 36:
        # Nothing wasted: all of ε, and nearly all of a δ that 32-bit words can resolve.
        assert loss.epsilon() >= asked.epsilon * (1 - 1e-4)
        # (Of vectors beside a flag the way from the centre binds, and a coarse grid may leave some of ε there.)
        tight = asked.epsilon <= 20 and mechanism.tag != "nullable_vector"
        if asked.delta >= (1e-6 if isinstance(mechanism, Geometric) else 1e-3) and tight:
            assert loss.delta(asked.epsilon) >= 0.9 * asked.delta


def _check_chunks(mechanism: Mechanism) -> None:
    """Any split, first row and integer dtype give the same values; so do views with strides."""
    rows, start = 70_001, 5
    codes = np.random.default_rng(1).integers(0, mechanism.size, rows, dtype=np.int64)
    codes[:3] = [0, mechanism.size - 1, mechanism.size // 2]
    stream = Keystream(bytes(range(32))).column("chunks")
    whole = mechanism.sample(codes, stream, first_row=start)
    assert whole.dtype == codes.dtype
    assert whole.min() >= 0
    assert whole.max() < mechanism.size
    for cuts in ([1], [32_768], [32_767, 32_769, 65_537], [7, 7, 50_000]):
        edges = [0, *cuts, rows]
        parts = [mechanism.sample(codes[a:b], stream, first_row=start + a) for a, b in pairwise(edges)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">u8"):
        if np.iinfo(kind).max >= mechanism.size - 1:
            given = codes.astype(kind)
            found = mechanism.sample(given, stream, first_row=start)
            np.testing.assert_array_equal(found, whole)
            assert found.dtype == given.dtype
            np.testing.assert_array_equal(given, codes, err_msg="the input was written to")
    np.testing.assert_array_equal(mechanism.sample(np.repeat(codes, 2)[::2], stream, first_row=start), whole)
    assert mechanism.sample(codes[:0], stream).shape == (0,)


def _check_bad_codes(mechanism: Mechanism) -> None:
    stream = Keystream(bytes(32)).column("bad")
    for wrong in ([mechanism.size], [-1], [0, mechanism.size + 7], [np.iinfo(np.int64).max]):
        with pytest.raises(ParameterError, match=f"codes must lie in 0…{mechanism.size - 1}"):
            mechanism.sample(np.array(wrong, dtype=np.int64), stream)
    for array in (np.zeros(3), np.zeros(3, bool), np.zeros((2, 2), int), np.array(0), np.array(["0"])):
        with pytest.raises(ParameterError, match="1-d integer array"):
            mechanism.sample(array, stream)
    for row in (-1, 1.5, 2**70):
        with pytest.raises(ParameterError, match="first_row"):
            mechanism.sample(np.zeros(1, int), stream, first_row=row)
    with pytest.raises(ParameterError, match=re.escape(f"({mechanism.size},)")):
        mechanism.surrogate(np.zeros((1, 1)))


def _check_fit(mechanism: Mechanism, rows: int = 1_000_000) -> None:
    """Chi-square of a million draws against `law`; a right sampler fails with probability 1e-9 a code."""
    for x in sorted({0, mechanism.size // 3, mechanism.size - 1}):
        stream = Keystream(hashlib.sha256(repr((mechanism, x)).encode()).digest()).column("fit")
        drawn = mechanism.sample(np.full(rows, x), stream)
        expected = rows * mechanism.law(x)
        observed = np.bincount(drawn, minlength=mechanism.size).astype(float)
        # Cells are joined, neighbours first, until each expects 50; what remains joins the last.
        group = np.floor(np.cumsum(expected) / 50).astype(int)
        group = np.minimum(group, max(group.max() - 1, 0))
        expected, observed = np.bincount(group, expected), np.bincount(group, observed)
        expected, observed = expected[expected > 0], observed[expected > 0]
        assert observed.sum() == rows
        assert stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1) > 1e-9 or (
            len(expected) == 1
        )


def _check_law(mechanism: Mechanism, columns: list[list[int]], total: int) -> None:
    assert all(sum(column) == total for column in columns)
    assert all(min(column) > 0 for column in columns)
    exact = np.array([[w / total for w in column] for column in columns]).T
    np.testing.assert_allclose(mechanism.transition(), exact, rtol=1e-12)
    np.testing.assert_allclose(mechanism.transition().sum(axis=0), 1.0, rtol=1e-14)


def _check_blanket(mechanism: Mechanism, columns: list[list[int]], total: int) -> None:
    """γ is never above Σ_y min_x P(y|x), and hardly below; `weights` are those that are sampled."""
    exact = Fraction(sum(min(row) for row in zip(*columns, strict=True)), total)
    assert 0 < Fraction(mechanism.blanket) <= exact
    if mechanism.loss.epsilon(0.0) <= 30:
        assert exact * (1 - Fraction(1, 10**4)) <= Fraction(mechanism.blanket)
    for code, column in enumerate(columns):
        weights, whole = mechanism.weights(code)
        assert [Fraction(w, whole) for w in weights] == [Fraction(w, total) for w in column]


def _check_loss(mechanism: Mechanism, columns: list[list[int]], total: int) -> None:
    """The claim covers the true loss of the integers that are sampled, and hardly more."""
    loss = mechanism.loss
    pure = exact_epsilon(columns)
    assert Decimal(loss.epsilon(0.0)) >= pure
    resolved = loss.epsilon(0.0) <= 30  # rarer events than e^-30 are rounded too coarsely to be tight
    if resolved:
        assert loss.epsilon(0.0) <= float(pure) * (1 + 1e-4)
    for epsilon in {0.0, loss.pure() / 3, loss.pure() * 0.9, mechanism.epsilon, mechanism.epsilon / 2}:
        true = exact_delta(columns, total, epsilon)
        assert Fraction(loss.delta(epsilon)) >= true
        if resolved:
            assert loss.delta(epsilon) <= float(true) + 1e-5
            if mechanism.epsilon <= 10:
                assert loss.delta(epsilon) <= float(true) + 1e-10
        if 0 < loss.delta(epsilon) < 1:
            assert exact_delta(columns, total, loss.epsilon(loss.delta(epsilon))) <= Fraction(loss.delta(epsilon))


def _distances(mechanism: Mechanism) -> list[list[int]]:
    size, metric = mechanism.size, mechanism.own_metric
    if "line" not in metric:
        return [[int(x != y) for y in range(size)] for x in range(size)]
    null = metric == "nullable line"
    last = size - 1 if null else size

    def distance(x: int, y: int) -> int:
        return abs(x - y) if x < last and y < last else (last - 1) * (x != y)

    return [[distance(x, y) for y in range(size)] for x in range(size)]


def _check_error(mechanism: Mechanism, columns: list[list[int]], total: int) -> None:
    true = max(
        Fraction(sum(w * d for w, d in zip(column, row, strict=True)), total)
        for column, row in zip(columns, _distances(mechanism), strict=True)
    )
    # 64-bit weights hold probabilities to 2^-65, which shows only where the whole error is that small.
    assert mechanism.expected_error() == pytest.approx(float(true), rel=1e-9, abs=mechanism.size**2 * 2.0**-63)


def _check_inverse(mechanism: Mechanism) -> None:
    """Surrogates and `invert` against the inverse of the matrix, where that can be had in floats."""
    matrix = mechanism.transition()
    if np.linalg.cond(matrix) > 1e6:
        return
    inverse, rng = np.linalg.inv(matrix), np.random.default_rng(2)
    close = {"rtol": 1e-7, "atol": 1e-7 * np.abs(inverse).max()}
    f = rng.normal(size=mechanism.size)
    surrogate = mechanism.surrogate(f)
    np.testing.assert_allclose(surrogate, f @ inverse, **close)
    np.testing.assert_allclose(surrogate @ matrix, f, rtol=1e-7, atol=1e-7)
    picked = rng.integers(0, mechanism.size, 9)
    np.testing.assert_allclose(mechanism.surrogate_at(lambda codes: f[codes], picked), surrogate[picked], rtol=1e-12)
    counts = rng.integers(0, 1000, size=(mechanism.size, 3))
    kept = counts.copy()
    np.testing.assert_allclose(mechanism.invert(counts), inverse @ counts, rtol=1e-7, atol=1e-4 * close["atol"] * 1e7)
    squares = inverse**2 @ counts
    np.testing.assert_allclose(mechanism.invert(counts, squared=True), squares, rtol=1e-7, atol=1e-7 * squares.max())
    np.testing.assert_allclose(mechanism.invert(counts[:, 0].astype(float)), mechanism.invert(counts)[:, 0])
    np.testing.assert_array_equal(counts, kept)
