"""Special values of numbers and times: codes, types, text, JSON, and what is refused."""

import datetime as dt
import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpframe as dpf
from dpframe.cli.words import to_options_text
from dpframe.spaces import Space, as_space, space_from_json

GRADE = dpf.Integer(0, 10, special=["refused", -9])
INCOME = dpf.Real(0, 1e6, special=[-9, 999_999])
DAY = dpf.Datetime("2020-01-01", "2020-12-31", special=["9999-12-31"])
SPANS = dpf.Datetime("PT0H", "PT8H", "h", special=["PT99H", "none"])
NULLABLE = dpf.Nullable(dpf.Integer(0, 5, special=[-9, "refused"]))


def categories(*values: Any) -> pd.Series:
    return pd.Series(pd.Categorical(values))


COLUMNS: list[tuple[Space, Any, list[int]]] = [
    (GRADE, [3, "refused", -9, 40, 2.0, np.float32(-9)], [3, 11, 12, 10, 2, 12]),
    (GRADE, pd.Series(["3", " refused", "-9", "-9.0", "40"], dtype="str"), [3, 11, 12, 12, 10]),
    (GRADE, categories(3, "refused", -9), [3, 11, 12]),
    (GRADE, np.array([3, -9, 10], dtype=np.int8), [3, 12, 10]),
    (INCOME, np.array([0.0, -9.0, 999_999.0, 1e6, 5e5]), [0, 65_537, 65_538, 65_536, 32_768]),
    (INCOME, np.array([-9, 999_999], dtype=np.float32), [65_537, 65_538]),
    (DAY, pa.array([dt.date(2020, 1, 3), dt.date(9999, 12, 31), dt.date(2021, 5, 1)]), [2, 366, 365]),
    (DAY, [dt.date(2020, 1, 3), dt.datetime(9999, 12, 31)], [2, 366]),
    (SPANS, [dt.timedelta(hours=2), dt.timedelta(hours=99), "none"], [2, 9, 10]),
    (NULLABLE, [3, None, -9, "refused", float("nan")], [3, 8, 6, 7, 8]),
    (NULLABLE, pd.array([3, None, -9], dtype="Int16"), [3, 8, 6]),
]


@pytest.mark.parametrize(("space", "values", "codes"), COLUMNS)
def test_special_values_have_the_codes_after_the_grids(space: Space, values: Any, codes: list[int]):
    assert space.encode(values).tolist() == codes
    assert space.encode(values, tolerant=True).tolist() == codes


@pytest.mark.parametrize("space", [GRADE, INCOME, DAY, SPANS, NULLABLE], ids=str)
def test_every_code_is_a_value_that_has_the_code(space: Space):
    codes = np.array([0, 1, *range(space.values - 1, space.size)])
    assert space.encode(list(space.objects(codes))).tolist() == codes.tolist()
    assert space.encode(space.decode(codes)).tolist() == codes.tolist()
    assert space_from_json(json.loads(json.dumps(space.to_json()))) == space == pickle.loads(pickle.dumps(space))
    assert eval(repr(space), vars(dpf)) == space
    numbers = space.inner_space
    assert space.values == numbers.size and not numbers.flag_codes
    # Each special value, and null, is as far from everything as the two farthest numbers.
    assert {space.code_distance(x, y) for x in range(space.values, space.size) for y in (0, space.values - 1)} == {
        numbers.diameter
    }


def test_codes_keep_the_type_of_numbers_and_words_make_it_text():
    assert dpf.Integer(0, 5, special=[-9]).decode([2, 6], pa.int8()).equals(pa.array([2, -9], pa.int8()))
    assert INCOME.decode([0, 65_538], pa.float32()).to_pylist() == [0.0, 999_999.0]
    assert DAY.decode([0, 366]).to_pylist() == [dt.date(2020, 1, 1), dt.date(9999, 12, 31)]
    assert GRADE.decode([2, 11, 12]).to_pylist() == ["2", "refused", "-9"]
    assert list(GRADE.objects([2, 11, 12])) == [2, "refused", -9]


@pytest.mark.parametrize("around", [lambda spec: spec, lambda spec: {"space": "nullable", "inner": spec}])
def test_bounds_in_json_take_special_values(around: Any):
    expected = dpf.Integer(0, 10, special=["refused"])
    declared = as_space(around({"lower": 0, "upper": 10, "special": ["refused"]}), pa.int64())
    assert declared in (expected, dpf.Nullable(expected))
    assert as_space({"lower": "2020-01-01", "upper": "2020-12-31", "special": ["9999-12-31"]}, pa.date32()) == DAY


@pytest.mark.parametrize(
    ("special", "message"),
    [
        ([5], "special value 5 is one of the space's numbers"),
        ([-9, None], "must not hold null; for nulls declare Nullable"),
        ([float("nan")], "must not hold null; for nulls declare Nullable"),
        ([-9, -9.0], "lists a value twice; list each value once"),
        (list(range(-17, 0)), "must have 1 to 16 values; recode rarer ones as one"),
        ([[1], {}], r'must be words, .*or whole numbers, as in special=\[-9, "refused"\]'),
        ([True], r'must be words, .*or whole numbers, as in special=\[-9, "refused"\]'),
        ([-9.5], r'must be words, .*or whole numbers, as in special=\[-9, "refused"\]'),
        ([" refused"], "without blanks at their ends"),
        (["-9"], "has the word '-9', which writes a number; give the number, without quotes"),
        ("refused", "must be a list of values, such as"),
        ({"refused", -9}, "must be a list of values, such as"),
    ],
)
def test_other_special_values_are_refused_in_one_line(special: Any, message: str):
    with pytest.raises(dpf.ParameterError, match=message) as error:
        dpf.Integer(0, 10, special=special)
    assert len(str(error.value).split()) <= 30 and "\n" not in str(error.value)


def test_a_value_between_the_steps_is_off_the_grid():
    assert dpf.Integer(0, 100, 10, special=[99]).encode([99, 98]).tolist() == [11, 10]
    with pytest.raises(dpf.ParameterError, match="is one of the space's numbers"):
        dpf.Real(0, 1, steps=4, special=[0.25])
    with pytest.raises(dpf.ParameterError, match="2020-03-01 is one of the space's numbers"):
        dpf.Datetime("2020-01-01", "2020-12-31", special=["2020-03-01"])


def test_a_column_whose_type_cannot_hold_a_special_value_is_refused():
    with pytest.raises(dpf.ColumnError, match="has type int8, which the special value 999 cannot hold"):
        dpf.Integer(0, 10, special=[999]).check_type(pa.int8())
    with pytest.raises(dpf.ColumnError, match=r"has type timestamp\[ns\], which the special value 9999-12-31"):
        DAY.check_type(pa.timestamp("ns"))
    with pytest.raises(dpf.ColumnError, match="holds a word that special does not list; add it") as error:
        GRADE.encode(pd.Series(["3", "secret answer"], dtype="str"))
    assert "secret" not in str(error.value) and error.value.row == 1


def test_a_word_among_declared_numbers_gets_the_remedy():
    remedy = r'is no number, .* or list words, as in special=\["refused"\]'
    with pytest.raises(dpf.ColumnError, match=remedy) as error:
        dpf.Integer(0, 10).encode([3, "secret answer"])
    assert len(str(error.value).split()) <= 30 and "secret" not in str(error.value)
    assert 'as in "special": ["refused"]' in to_options_text(str(error.value))


def test_noise_beyond_the_bounds_must_not_reach_a_special_number():
    with pytest.raises(dpf.ParameterError, match="noise would reach a special value; use laplace"):
        dpf.Integer(0, 10, special=[-9]).widened(20)
    assert dpf.Integer(0, 10, special=["refused"]).widened(20) == dpf.Integer(-20, 30, special=["refused"])
