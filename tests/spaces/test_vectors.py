"""Vectors: balls in integers, coding from every kind of list, refusals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from checks import refused
from examples import space_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import examples

from dpframe import Curve, Nullable, Vector
from dpframe.errors import ColumnError, ParameterError

ORDERS = {"l1": 1, "l2": 2, "linf": math.inf}


@settings(max_examples=examples(150))
@given(st.data())
def test_no_rounding_leaves_the_ball(data: st.DataObject) -> None:
    """The codes' own norm is at most U in integers, and a vector moves by little more than half a step a coordinate."""
    norm, bits = data.draw(st.sampled_from(sorted(ORDERS))), data.draw(st.sampled_from([4, 8, 16]))
    length = data.draw(st.integers(1, 15))
    space = Vector(length, 3.0, norm, bits)
    scale = data.draw(st.sampled_from([1e-3, 1.0, 3.0, 1e3, 1e120]))
    rows = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(40, length)) * scale
    rows[:length] = np.eye(length)[:40] * scale  # along the axes the surface has no grid points
    codes = space.encode(rows)
    odd = space.coordinates(codes).astype(object)
    sizes = {"l1": abs(odd).sum(axis=1), "l2": (odd * odd).sum(axis=1), "linf": abs(odd).max(axis=1)}[norm]
    assert max(sizes) <= (space.ball.last**2 if norm == "l2" else space.ball.last)
    back = np.array(space.decode(codes).to_pylist())
    plain = rows / np.abs(rows).max(axis=1, keepdims=True)
    longest = 3.0 / np.linalg.norm(plain, ORDERS[norm], axis=1)
    clipped = plain * np.minimum(np.abs(rows).max(axis=1), longest)[:, None]
    # Half a step for rounding, and where the ball is small beside the grid one more for each coordinate that is kept.
    assert np.abs(back - clipped).max() <= space.step * (1 + length if norm != "linf" else 1)


@pytest.mark.parametrize("norm", sorted(ORDERS))
@pytest.mark.parametrize(("length", "bits"), [(1, 2), (2, 4), (3, 4), (6, 2), (2, 8)])
def test_distances_of_codes_are_bounded_by_what_the_accountant_takes(norm: str, length: int, bits: int) -> None:
    if norm == "l1" and length > (1 << bits) - 1:
        return
    ball = Vector(length, 1.0, norm, bits).ball
    every = np.stack(np.meshgrid(*[np.arange(ball.last + 1)] * length), axis=-1).reshape(-1, length)
    inside = ball.odd(every)[ball.measure(ball.odd(every)) <= ball.limit]
    assert len(inside) >= ball.points > 0
    # The farthest pair is that of a vector and its negative.
    assert np.abs(inside).sum(axis=1).max() <= ball.farthest
    if norm != "l2":
        assert np.abs(inside).sum(axis=1).max() == ball.farthest
    assert np.abs(inside + 1).sum(axis=1).max() <= 2 * ball.from_centre
    assert 4 * (inside**2).sum(axis=1).max() <= ball.move**2
    packed = ball.pack(every)
    np.testing.assert_array_equal(ball.unpack(packed), every)
    kept = ball.odd(ball.unpack(ball.within(packed)))
    assert (ball.measure(kept) <= ball.limit).all()
    stays = ball.measure(ball.odd(every)) <= ball.limit
    np.testing.assert_array_equal(kept[stays], ball.odd(every)[stays])


def test_a_column_is_coded_as_its_values_are() -> None:
    space, rows = Vector(3, 2.0, bits=8), [[0.5, -1.0, 0.25], [9.0, 0.0, -9.0], [0.0, 0.0, 0.0]]
    expected = space.encode(rows).tolist()
    kinds = [
        pa.array(rows, pa.list_(pa.float64())),
        pa.array(rows, pa.large_list(pa.float32())),
        pa.array(rows, pa.list_(pa.float64(), 3)),
        pa.chunked_array([pa.array(rows[:1]), pa.array(rows[1:])]),
        pa.array([None, *rows], pa.list_(pa.float32(), 3))[1:],
        pd.Series(rows),
        pd.Series(rows, dtype=pd.ArrowDtype(pa.list_(pa.float64()))),
        [tuple(row) for row in rows],
        [np.array(row, dtype=np.float32) for row in rows],
        np.array(rows),
        np.asfortranarray(np.array(rows, dtype=np.float32)),
    ]
    for column in kinds:
        assert space.encode(column).tolist() == expected
    assert space.encode([[1, 0, -1]]).tolist() == space.encode([[1.0, 0.0, -1.0]]).tolist()
    assert space_of({"space": "vector", "length": 3, "bound": 2.0, "bits": 8}) == space


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ([[1.0, 2.0], [1.0]], "list of another length than 2, .* at row position 1$"),
        (pa.array([[1.0, 2.0], [1.0, 2.0, 3.0]]), "list of another length than 2, .* at row position 1$"),
        ([[1.0, 2.0], [math.nan, 0.0]], "NaN or null within a list.* at row position 1$"),
        ([[1.0, 2.0], [None, 0.0]], "NaN or null within a list.* at row position 1$"),
        (pa.array([None, [1.0, 2.0], [None, 0.0]])[1:], "NaN or null within a list.* at row position 1$"),
        (np.array([[1.0, 2.0], [0.0, np.nan]]), "NaN or null within a list.* at row position 1$"),
        ([[1.0, 2.0], [math.inf, 0.0]], "an infinity within a list.* at row position 1$"),
        ([[1.0, 2.0], "swordfish"], "no list of numbers.* at row position 1$"),
        ([[1.0, 2.0], ["swordfish", "b"]], "no list of numbers.* at row position 1$"),
        ([[1.0, 2.0], {1.0, 2.0}], "no list of numbers.* at row position 1$"),
        ([[1.0, 2.0], [[1.0], [2.0]]], "no list of numbers.* at row position 1$"),
        ([[1.0, 2.0], [True, False]], "no list of numbers.* at row position 1$"),
        ([[1.0, 2.0], None], "is null, .* at row position 1$"),
        (pa.array([[1, 2]]), "has type list<.*int64>, which a space of vectors cannot hold"),
        (pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float64(), 3)), "which a space of 2 numbers cannot hold"),
        (pa.array(["a"]), "has type text, which a space of vectors cannot hold"),
    ],
)
def test_what_is_no_vector_is_refused_by_its_row(column, match) -> None:
    refused(ColumnError, match, lambda: Vector(2, 1.0).encode(column))


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_chunks_show_nowhere(bits: int) -> None:
    """A row's code and value are its own, whatever stands beside it; a refusal counts rows from the array's start."""
    count = 2 * (1 << 15) // 24 + 7  # more than two chunks of numbers
    rows = np.random.default_rng(8).normal(size=(count, 24))
    for space in (Vector(24, 2.0, bits=bits), Curve(range(24), 2.0, {"name": "RBF", "length_scale": 1.5}, 16, bits)):
        codes = space.encode(rows)
        some = [0, 3, count // 2, count - 1]
        assert codes[some].tolist() == [space.encode(rows[i : i + 1])[0].tolist() for i in some]
        values = space.decode(codes)
        assert values.take(some).to_pylist() == space.decode(codes[some]).to_pylist()
        broken = rows.copy()
        broken[count - 2, 5] = math.nan
        with pytest.raises(ColumnError, match=f"NaN or null within a list.* at row position {count - 2}$"):
            space.encode(broken)


def test_nulls_are_imputed_or_values_and_infinities_clip_where_asked() -> None:
    space = Vector(2, 1.0)
    centre = space.code_array([space.fixed_point])[0].tolist()
    assert space.encode([None, [1.0, 0.0]], nulls="impute")[0].tolist() == centre
    found = space.decode(space.encode([[math.inf, 0.0]], nulls="impute")).to_pylist()
    assert found[0][0] > 0.999
    assert Nullable(space).decode(Nullable(space).encode([None, [0.1, 0.2]])).to_pylist()[0] is None
    refused(ColumnError, "NaN or null within a list", lambda: Nullable(space).encode([[math.nan, 0.0]]))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, 1.0), "size must be a whole number from 1 to 4096"),
        ((5_000, 1.0), "size must be"),
        ((2, 0.0), "bound must be a number above 0"),
        ((2, math.inf), "bound must be a number above 0"),
        ((2, "1"), "bound must be a number above 0"),
        ((2, 1.0, "l3"), "norm must be one of l1, l2, linf"),
        ((2, 1.0, "l2", 5), "bits must be 2, 4, 8 or 16"),
        ((20, 1.0, "l1", 4), "bits=4 are too few for 20 coordinates in l1; take 16"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(arguments, match) -> None:
    with pytest.raises(ParameterError, match=match):
        Vector(*arguments)


def test_what_is_in_a_space() -> None:
    space = Vector(2, 1.0)
    assert space.contains([0.6, 0.8])
    for outside in ([0.7, 0.8], [0.1], None, "ab", [math.nan, 0.0], [math.inf, 0.0], [None, 0.0]):
        assert not space.contains(outside)
    assert space.distance([0.6, 0.0], [0.0, 0.8]) == pytest.approx(1.0, abs=1e-4)
    assert space.outside(np.array([[0.6, 0.8], [1.0, 1.0]])).tolist() == [False, True]
    with pytest.raises(ParameterError, match="vectors have too many values to list"):
        space.labels()
    assert not space.is_numeric
    assert space.released.encode([[1.0, 1.0]]).tolist() != space.encode([[1.0, 1.0]]).tolist()
