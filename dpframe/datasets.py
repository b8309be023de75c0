"""Synthetic tables about people, drawn from a population whose every probability is known.

Estimates from a randomised table are judged by their distance from the truth.  The census here is drawn row
by row from a fixed model, and the truth is computed from the model: :func:`make_census` draws a table,
:func:`census_population` returns the true values of the population.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.extensions import ExtensionArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# The position of a column is its key in the random streams: a new column goes to the end, or every table
# drawn with an older version changes.
COLUMNS: Final = (
    "age",
    "sex",
    "education",
    "occupation",
    "region",
    "income",
    "birth_date",
    "hobbies",
    "load_curve",
)

SEXES: Final = ("F", "M")
EDUCATION: Final = ("none", "primary", "secondary", "vocational", "bachelor", "master")
OCCUPATIONS: Final = (
    "cleaner",
    "farm worker",
    "driver",
    "cook",
    "sales assistant",
    "electrician",
    "office clerk",
    "nurse",
    "teacher",
    "engineer",
    "manager",
    "physician",
)
REGIONS: Final = (
    "Aldermark",
    "Grünhavn",
    "Caldora",
    "Kestermoor",
    "Brunsee",
    "Fjällmora",
    "Norrhelm",
    "Estvale",
    "Quillmont",
    "Rivanza",
    "Løvensund",
    "Tarnwick",
    "Południca",
    "Dornfels",
    "Ymberley",
    "Höchstau",
)
HOBBIES: Final = (
    "watching films",
    "reading",
    "cooking",
    "walking",
    "listening to music",
    "gardening",
    "travelling",
    "cycling",
    "video games",
    "fitness",
    "swimming",
    "handicraft",
    "photography",
    "running",
    "football",
    "baking",
    "hiking",
    "playing an instrument",
    "dancing",
    "fishing",
    "painting",
    "chess",
    "bird watching",
    "climbing",
)

OCCUPATION_NULL_RATE: Final = 0.06
INCOME_NULL_RATE: Final = 0.04
INCOME_MAX: Final = 250_000.0

_REFERENCE_YEAR: Final = 2026
_AGE_MIN: Final = 18
# All tables of probabilities are whole-number weights: their running sums are exact, so the last bound is
# exactly 1 and a cell of weight zero is never drawn.
_AGE_WEIGHTS: Final = np.array(
    [
        *(93, 94, 96, 98, 101, 104, 107),  # 18..24
        *(110, 112, 115, 118, 122, 126, 130, 133, 135, 136),  # 25..34
        *(136, 135, 133, 131, 129, 127, 125, 124, 123, 122),  # 35..44
        *(120, 118, 117, 119, 124, 130, 137, 144, 151, 158),  # 45..54
        *(163, 167, 169, 170, 170, 168, 164, 159, 153, 147),  # 55..64
        *(141, 135, 129, 123, 117, 112, 107, 103, 99, 95),  # 65..74
        *(90, 84, 79, 77, 76, 75, 74, 72, 69, 65),  # 75..84
        *(59, 52, 45, 38, 32, 26, 21, 16, 12, 9, 6),  # 85..95
    ],
    dtype=np.int64,
)
_AGES: Final = np.arange(_AGE_MIN, _AGE_MIN + _AGE_WEIGHTS.size, dtype=np.int64)
_SEX_WEIGHTS: Final = np.array([51, 49], dtype=np.int64)
_REGION_WEIGHTS: Final = np.array([210, 155, 130, 95, 75, 65, 52, 45, 38, 33, 28, 23, 19, 15, 11, 6], dtype=np.int64)

_BAND_STARTS: Final = np.array([18, 21, 25, 35, 50, 65, 80], dtype=np.int64)
_EDUCATION_WEIGHTS: Final = np.array(  # a row per age band, a column per level of EDUCATION
    [
        [2, 18, 72, 8, 0, 0],
        [2, 9, 49, 25, 14, 1],
        [2, 7, 24, 29, 24, 14],
        [2, 9, 24, 33, 18, 14],
        [3, 13, 26, 36, 12, 10],
        [5, 24, 26, 31, 7, 7],
        [9, 36, 25, 22, 4, 4],
    ],
    dtype=np.int64,
)
_OCCUPATION_WEIGHTS: Final = np.array(  # a row per level of EDUCATION, a column per member of OCCUPATIONS
    [
        [36, 26, 14, 12, 9, 1, 1, 0, 0, 0, 1, 0],
        [24, 16, 20, 13, 19, 4, 3, 0, 0, 0, 1, 0],
        [7, 5, 14, 10, 28, 7, 20, 3, 1, 1, 4, 0],
        [2, 4, 9, 9, 13, 24, 16, 17, 1, 1, 4, 0],
        [1, 1, 2, 2, 7, 3, 25, 12, 15, 20, 12, 0],
        [1, 1, 1, 1, 3, 1, 10, 3, 24, 23, 18, 14],
    ],
    dtype=np.int64,
)

_INCOME_MEDIAN_AT_PEAK: Final = np.array([15e3, 19e3, 27e3, 32e3, 44e3, 58e3])
_INCOME_LOG_SD: Final = np.array([0.55, 0.52, 0.50, 0.47, 0.54, 0.62])
_INCOME_PEAK_AGE: Final = 48
# Pay climbs faster before the peak than pensions fall behind after it.
_INCOME_LOG_FALL: Final = np.where(_AGES < _INCOME_PEAK_AGE, 6e-4, 2e-4) * (_AGES - _INCOME_PEAK_AGE) ** 2
_INCOME_LOG_MEDIAN: Final = np.log(_INCOME_MEDIAN_AT_PEAK)[None, :] - _INCOME_LOG_FALL[:, None]

_HOBBY_COUNT_WEIGHTS: Final = np.array([8, 17, 25, 22, 15, 9, 4], dtype=np.int64)
_HOBBY_POPULARITY: Final = 1.0 / np.arange(2, len(HOBBIES) + 2)
# Change of the log popularity per decade of age, zero for the hobbies liked alike at every age.
_HOBBY_AGE_SLOPE: Final = np.array(
    [
        *(0, 0.1, 0, 0.1, 0, 0.25, 0, 0, -0.4, -0.15, 0, 0.1),
        *(0, -0.2, -0.2, 0, 0.05, 0, -0.1, 0.05, 0, 0.1, 0.3, -0.3),
    ]
)

_HOUSEHOLD_WEIGHTS: Final = np.array([30, 34, 22, 14], dtype=np.int64)
# A household type is a base load in kW and its daily peaks as (hour, height in kW, width in hours).
_Household = tuple[float, tuple[tuple[float, float, float], ...]]
_HOUSEHOLDS: Final[tuple[_Household, ...]] = (
    (0.11, ((7.0, 0.22, 1.1), (19.5, 0.42, 2.0))),  # one person, out at work
    (0.21, ((7.0, 0.55, 1.3), (13.0, 0.25, 2.0), (19.0, 0.95, 2.3))),  # family
    (0.15, ((8.5, 0.32, 1.6), (12.0, 0.48, 1.5), (18.5, 0.40, 2.2))),  # retired couple
    (0.24, ((10.5, 0.34, 2.8), (15.0, 0.30, 2.6), (20.0, 0.52, 2.0))),  # working from home
)
_HOURS: Final = np.arange(24)

# Lists are built in slices so that the 24 random numbers of a row are never in memory for all rows at once.
_SLICE_ROWS: Final = 65_536


def _probabilities(weights: IntArray) -> FloatArray:
    """Return weights over the last axis, scaled to sum to one."""
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


def _upper_bounds(weights: IntArray) -> FloatArray:
    """Return the upper bounds of cells of [0, 1) whose lengths are proportional to the weights of the last axis."""
    running = np.cumsum(weights, axis=-1)
    return np.asarray(running / running[..., -1:], dtype=np.float64)


def _choose(uniform: FloatArray, weights: IntArray) -> IntArray:
    """Return the category of each uniform draw by inversion; shapes (n,), (k,) -> (n,)."""
    return np.searchsorted(_upper_bounds(weights), uniform, side="right").astype(np.int64, copy=False)


def _choose_given(uniform: FloatArray, group: IntArray, weights: IntArray) -> IntArray:
    """Return the category of each uniform draw given its group; shapes (n,), (n,), (groups, k) -> (n,)."""
    groups, k = weights.shape
    # The groups are on one axis, group g on [g, g + 1), so that one search serves all of them.
    axis = (_upper_bounds(weights) + np.arange(groups)[:, None]).ravel()
    # Adding the group rounds, and a draw just below 1 must not be rounded into the next group.
    shifted = np.minimum(uniform + group, np.nextafter(np.arange(1.0, groups + 1), 0.0)[group])
    return np.asarray(np.searchsorted(axis, shifted, side="right") - group * k, dtype=np.int64)


def _band_of(ages: IntArray) -> IntArray:
    """Return the row of the education table for each age."""
    return np.asarray(np.searchsorted(_BAND_STARTS, ages, side="right") - 1, dtype=np.int64)


def _day_number(years: IntArray) -> IntArray:
    """Return the days from 1970-01-01 to the first of January of each year."""
    return (years - 1970).astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)


def _household_profiles() -> FloatArray:
    """Return the mean load in kW of each household type at each hour, shape (types, 24)."""
    profiles = np.empty((len(_HOUSEHOLDS), _HOURS.size))
    for row, (base, peaks) in zip(profiles, _HOUSEHOLDS, strict=True):
        row[:] = base
        for hour, height, width in peaks:
            # Distance round the clock: a late peak runs on after midnight.
            distance = np.abs(_HOURS - hour)
            row += height * np.exp(-0.5 * (np.minimum(distance, 24 - distance) / width) ** 2)
    return profiles


class _People:
    """The random draws of one table; a cached property is drawn once for several columns."""

    def __init__(self, n_rows: int, random_state: int) -> None:
        self.n_rows = n_rows
        self.random_state = random_state

    def _stream(self, column: str, part: int = 0) -> np.random.Generator:
        # A stream for each part of each column: its values depend neither on the other columns asked for
        # nor, since no two parts take turns at one stream, on the number of rows below.
        key = (COLUMNS.index(column), part)
        return np.random.default_rng(np.random.SeedSequence(self.random_state, spawn_key=key))

    def _uniform(self, column: str, part: int = 0) -> FloatArray:
        return self._stream(column, part).random(self.n_rows)

    def _slices(self) -> Iterable[slice]:
        for start in range(0, self.n_rows, _SLICE_ROWS):
            yield slice(start, min(start + _SLICE_ROWS, self.n_rows))

    @cached_property
    def age_index(self) -> IntArray:
        return _choose(self._uniform("age"), _AGE_WEIGHTS)

    @cached_property
    def education_index(self) -> IntArray:
        band = _band_of(_AGES)[self.age_index]
        return _choose_given(self._uniform("education"), band, _EDUCATION_WEIGHTS)

    def age(self) -> IntArray:
        return self.age_index + _AGE_MIN

    def sex(self) -> ExtensionArray:
        return _categorical(_choose(self._uniform("sex"), _SEX_WEIGHTS), SEXES)

    def education(self) -> ExtensionArray:
        return _categorical(self.education_index, EDUCATION, ordered=True)

    def occupation(self) -> ExtensionArray:
        code = _choose_given(self._uniform("occupation"), self.education_index, _OCCUPATION_WEIGHTS)
        code[self._uniform("occupation", 1) < OCCUPATION_NULL_RATE] = -1
        # Taking from the twelve strings leaves the string type to pandas and builds no Python string.
        return pd.Series(OCCUPATIONS).array.take(code, allow_fill=True)

    def region(self) -> ExtensionArray:
        return _categorical(_choose(self._uniform("region"), _REGION_WEIGHTS), REGIONS)

    def income(self) -> FloatArray:
        noise = self._stream("income").standard_normal(self.n_rows)
        log_income = _INCOME_LOG_MEDIAN[self.age_index, self.education_index]
        log_income += _INCOME_LOG_SD[self.education_index] * noise
        income: FloatArray = np.clip(np.exp(log_income), 0.0, INCOME_MAX)
        income[self._uniform("income", 1) < INCOME_NULL_RATE] = np.nan
        return income

    def birth_date(self) -> NDArray[np.datetime64]:
        # Aged a on the reference day: born after 1 January a + 1 years before it and up to that day a
        # years before it, so the span has 365 or 366 days.
        latest = _day_number(_REFERENCE_YEAR - _AGES)
        span = latest - _day_number(_REFERENCE_YEAR - 1 - _AGES)
        days_back = (self._uniform("birth_date") * span[self.age_index]).astype(np.int64)
        return (latest[self.age_index] - days_back).astype("datetime64[D]").astype("datetime64[s]")

    def hobbies(self) -> pd.Series:
        counts = _choose(self._uniform("hobbies"), _HOBBY_COUNT_WEIGHTS)
        popularity = _HOBBY_POPULARITY * np.exp(np.outer((_AGES - 50) / 10, _HOBBY_AGE_SLOPE))
        names = np.array(HOBBIES, dtype=object)
        stream = self._stream("hobbies", 1)
        lists: list[list[str]] = []
        for rows in self._slices():
            # The first to ring among exponential clocks running at the popularities: the same as drawing
            # without replacement, for all rows at once.
            clocks = stream.standard_exponential((rows.stop - rows.start, len(HOBBIES)))
            clocks /= popularity[self.age_index[rows]]
            first_hobbies = np.argsort(clocks, axis=1)[:, : _HOBBY_COUNT_WEIGHTS.size - 1]
            names_and_counts = zip(names[first_hobbies].tolist(), counts[rows].tolist(), strict=True)
            lists.extend(names_by_rank[:count] for names_by_rank, count in names_and_counts)
        return pd.Series(lists, dtype=object)

    def load_curve(self) -> pd.Series:
        household = _choose(self._uniform("load_curve"), _HOUSEHOLD_WEIGHTS)
        profiles = _household_profiles()
        angles = 2 * np.pi * np.outer(np.arange(1, 4), _HOURS) / 24
        waves = np.concatenate([np.cos(angles), np.sin(angles)])
        waves = np.asarray(waves * np.tile([0.15, 0.10, 0.07], 2)[:, None], dtype=np.float64)
        stream = self._stream("load_curve", 1)
        lists: list[list[float]] = []
        for rows in self._slices():
            draws = stream.standard_normal((rows.stop - rows.start, 1 + len(waves)))
            sway = 0.35 * draws[:, :1] + draws[:, 1:] @ waves
            # Three decimals: a meter counts whole watt-hours.
            lists.extend(np.round(profiles[household[rows]] * np.exp(sway), 3).tolist())
        return pd.Series(lists, dtype=object)


_BUILDERS: Final[dict[str, Callable[[_People], Any]]] = {name: getattr(_People, name) for name in COLUMNS}


def _categorical(codes: IntArray, categories: tuple[str, ...], *, ordered: bool = False) -> ExtensionArray:
    return pd.Categorical.from_codes(codes.astype(np.int8), categories=pd.Index(list(categories)), ordered=ordered)


def _check_count(name: str, value: Any, remedy: str) -> int:
    try:
        # True is an integer to Python and a slip to everyone else.
        count = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}; {remedy}")
    return count


def _check_columns(columns: Iterable[str] | None) -> list[str]:
    if columns is None:
        return list(COLUMNS)
    # A string is iterable too, and would be refused letter by letter.
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ValueError(
            f'columns must be a list of column names, got {columns!r}; write columns=["age"] for one column'
        )
    names = list(columns)
    for position, name in enumerate(names):
        if name not in COLUMNS:
            raise ValueError(f"columns must name columns of the census, got {name!r}; choose from {', '.join(COLUMNS)}")
        if name in names[:position]:
            raise ValueError(f"columns must name each column once, got {name!r} twice; drop the repetition")
    return names


def make_census(n_rows: int = 10_000, random_state: int = 0, *, columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Draw a table of independent people from the fixed population model.

    A column's values do not depend on which other columns are requested, and a shorter table of the same
    ``random_state`` is the head of a longer one.

    Parameters
    ----------
    n_rows : int, default 10_000
        Number of people, at least 0.
    random_state : int, default 0
        Seed, at least 0.  The same seed gives the same table.
    columns : iterable of str, optional
        The columns to draw, in the order wanted; all nine of ``COLUMNS`` if omitted.  The lists of
        ``hobbies`` and ``load_curve`` cost far more time and memory than the seven columns before them.

    Returns
    -------
    pandas.DataFrame of shape (n_rows, number of columns), with a range index and the columns

    - ``age``: int64, whole years on 2026-01-01, 18 to 95
    - ``sex``: categorical, ``SEXES``
    - ``education``: ordered categorical, ``EDUCATION``; depends on the age band
    - ``occupation``: strings, present or last of ``OCCUPATIONS``; depends on education; null with
      probability 0.06
    - ``region``: categorical, ``REGIONS``; independent of the rest
    - ``income``: float64, currency units per year, clipped to [0, 250_000]; log-normal given education and
      age; NaN with probability 0.04
    - ``birth_date``: datetime64[s], a uniform day among those that give the age
    - ``hobbies``: object, lists of 0 to 6 distinct members of ``HOBBIES``, best liked first; depends on age
    - ``load_curve``: object, lists of 24 floats, mean electric load of the household in kW for each hour of
      the day; depends on a household type that is not in the table

    Raises
    ------
    ValueError
        If ``n_rows`` or ``random_state`` is negative or no integer, or if ``columns`` is no list of names,
        names a column that does not exist or names one twice.

    Examples
    --------
    >>> people = make_census(1000, random_state=7, columns=["age", "education", "income"])
    >>> people.shape
    (1000, 3)
    >>> people["age"].agg(["min", "max"]).tolist(), str(people["education"].max())
    ([18, 95], 'master')
    """
    rows = _check_count("n_rows", n_rows, "pass the number of people to draw, such as n_rows=1000")
    seed = _check_count("random_state", random_state, "pass a whole-number seed, such as random_state=0")
    names = _check_columns(columns)
    people = _People(rows, seed)
    return pd.DataFrame({name: _BUILDERS[name](people) for name in names}, index=pd.RangeIndex(rows))


def _clipped_lognormal_mean(log_median: ArrayLike, log_sd: ArrayLike, upper: float) -> FloatArray:
    """Return the mean of min(X, upper) for a log-normal X; the lower clip at 0 never binds."""
    from scipy.special import ndtr  # imported late, as all of SciPy

    log_median, log_sd = np.asarray(log_median), np.asarray(log_sd)
    standardised = (np.log(upper) - log_median) / log_sd
    mean_below = np.exp(log_median + log_sd**2 / 2) * ndtr(standardised - log_sd)
    return np.asarray(mean_below + upper * ndtr(-standardised), dtype=np.float64)


def census_population() -> dict[str, pd.Series | float]:
    """Return the exact values that a table of :func:`make_census` estimates.

    They are computed from the model, not simulated.

    Returns
    -------
    dict with

    - ``"age"``, ``"sex"``, ``"education"``, ``"region"``, ``"occupation"``: Series of probabilities indexed
      by the 78 ages or by the labels in the order of the module's constants, each summing to 1;
      ``"occupation"`` is given that the occupation is present
    - ``"mean_age"``: float, years
    - ``"mean_age_by_education"``: Series of years indexed by education
    - ``"occupation_null_rate"``, ``"income_null_rate"``: float, probability that the value is missing
    - ``"mean_income"``: float, currency units per year, of the clipped income given that it is present

    Examples
    --------
    >>> population = census_population()
    >>> round(float(population["mean_age"]), 2)
    51.53
    >>> population["sex"].to_dict()
    {'F': 0.51, 'M': 0.49}
    """
    age = _probabilities(_AGE_WEIGHTS)
    joint = age[:, None] * _probabilities(_EDUCATION_WEIGHTS)[_band_of(_AGES)]
    education = joint.sum(axis=0)
    income = _clipped_lognormal_mean(_INCOME_LOG_MEDIAN, _INCOME_LOG_SD, INCOME_MAX)
    return {
        "age": _to_series(age, _AGES.tolist(), "age"),
        "sex": _to_series(_probabilities(_SEX_WEIGHTS), SEXES, "sex"),
        "education": _to_series(education, EDUCATION, "education"),
        "region": _to_series(_probabilities(_REGION_WEIGHTS), REGIONS, "region"),
        # Values are missing independently of the value, so that presence changes no probability.
        "occupation": _to_series(education @ _probabilities(_OCCUPATION_WEIGHTS), OCCUPATIONS, "occupation"),
        "mean_age": float(age @ _AGES),
        "mean_age_by_education": _to_series(_AGES @ joint / education, EDUCATION, "education"),
        "occupation_null_rate": OCCUPATION_NULL_RATE,
        "income_null_rate": INCOME_NULL_RATE,
        "mean_income": float((joint * income).sum()),
    }


def _to_series(values: FloatArray, labels: Iterable[object], axis: str) -> pd.Series:
    return pd.Series(values, index=pd.Index(list(labels), name=axis))
