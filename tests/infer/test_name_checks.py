"""Names propose spaces, and their checks cost no more than is claimed: the law of all counts, summed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exact_laws import NOTHING, Pair, count_law

import dpframe as dpf
from dpframe.accounting.gaussian_dp import Step, step_delta
from dpframe.inference.cost import GaussianNoise, Histogram, spend
from dpframe.inference.fit_counts import NameCheck, step_after
from dpframe.inference.name_checks import CheckDesign
from dpframe.inference.names import propose_spaces
from dpframe.noise.gaussian import gaussian_table
from dpframe.spaces.field import Field
from dpframe.totals.counts import counting

TOTAL = Step(3.0, 1e-4)


@pytest.mark.parametrize(
    ("name", "type_", "first"),
    [
        ("age", pa.int64(), dpf.Integer(0, 120)),
        ("ageAtEntry", pa.float64(), dpf.Real(0.0, 120.0, 120)),
        ("Patient age", pa.float32(), dpf.Real(0.0, 120.0, 120)),
        ("birth_year", pa.int16(), dpf.Integer(1900, 2050)),
        ("month", pa.int32(), dpf.Integer(1, 12)),
        ("gender", pa.string(), dpf.Categorical(["female", "male"], other="other")),
        ("is_member", pa.large_string(), dpf.Categorical(["no", "yes"], other="other")),
        ("rating", pa.int64(), dpf.Integer(1, 5)),
    ],
)
def test_a_name_and_a_type_propose_a_space(name, type_, first):
    (proposal,) = propose_spaces([Field(name, type_, False)])
    assert proposal.spaces[0] == first


@pytest.mark.parametrize(
    ("name", "type_"),
    [("wage", pa.int64()), ("x", pa.string()), ("age", pa.string()), ("age", pa.int8()), ("member_no", pa.int64())],
)
def test_other_names_and_types_propose_none(name, type_):
    assert propose_spaces([Field(name, type_, False)]) == ()


def test_every_pattern_proposes_spaces_whose_overlaps_are_counted():
    names = ("age", "sex", "month", "day", "weekday", "quarter", "treatment", "smoker", "class", "country", "region")
    for type_ in (pa.int64(), pa.float64(), pa.string(), pa.null()):
        for proposal in propose_spaces([Field(name, type_, True) for name in names]):
            labels = [set(space.labels()) for space in proposal.spaces if space.is_listed]
            grids = [set(range(int(one.lower), int(one.upper) + 1)) for one in proposal.spaces if not one.is_listed]
            values = [value for one in (*labels, *grids) for value in one - {"other"}]
            assert proposal.most_fits >= max(map(values.count, values)), proposal.name


FIELDS = [Field("age", pa.int64(), False), Field("smoker", pa.string(), True), Field("x", pa.int64(), False)]
TABLES = [
    {"age": pa.array([30] * 5), "smoker": pa.array(["yes"] * 4 + [last])} for last in ("yes", "Y", None)
]  # fmt: skip


DESIGN = CheckDesign(propose_spaces(FIELDS), 1.0, 2.0, 1)
"""Checks with less noise than five rows would get, so that outcomes differ; halves follow the joint count."""


def whole_law(made: CheckDesign, tables: Any, reach: int, charged: bool = True) -> Pair:
    """Return the law of all checks of two tables, and of a later count that takes all of the step that is left."""

    class NextCheck(Exception):
        pass

    def outcomes(noisy_counts: tuple[Any, ...]) -> Iterator[Pair]:
        requested: list[Any] = []

        def drawn(table: Any) -> Any:
            rest = iter(noisy_counts)

            def noisy(counts, variance, check):
                known = next(rest, None)
                if known is None:
                    requested.append((counts, variance))
                    raise NextCheck
                return known

            return made.draw(5, counting(lambda _: iter([table])), noisy)

        try:
            checks, _ = drawn(tables[0])
        except NextCheck:
            with pytest.raises(NextCheck):
                drawn(tables[1])
            (one, variance), (other, _) = requested
            cells = np.flatnonzero(one != other)
            law = count_law(GaussianNoise(gaussian_table(variance)), one[cells], other[cells], reach)
            branches: dict[bytes, tuple[Any, list[int]]] = {}
            for place, row in enumerate(law.counts):
                counts = one.copy()
                counts[cells] = row
                # Outcomes that lead to the same next request are joined: the choice, and acceptance.
                after = decided(made, [*noisy_counts, counts])
                branches.setdefault(after, (counts, []))[1].append(place)
            for counts, places in branches.values():
                seen = Pair(law.one[places], law.other[places])
                for part in outcomes((*noisy_counts, counts)):
                    yield part.times(seen)
            return
        left = step_after(TOTAL, checks, 1) if charged else TOTAL
        noise = spend(left, [Histogram("intervals", 1, 1.0)], 5).noises[0]
        assert isinstance(noise, GaussianNoise)
        yield NOTHING.times(count_law(noise, np.array([1, 0]), np.array([0, 1]), 4))

    return Pair.joined(part.merged() for part in outcomes(()))


def decided(made: CheckDesign, noisy_counts: list[Any]) -> bytes:
    """Return all that further checks depend on: the chosen alternatives, and which groups are accepted."""
    parts = []
    for place, counts in enumerate(noisy_counts):
        is_choice = place == 0
        check = NameCheck("fit", ("c",), tuple(map(int, counts)), len(counts), made.fit_variance)
        parts.append(int(np.argmax(counts)) if is_choice else (check.accepts(5), check.has_nulls))
    return repr(parts).encode()


@pytest.mark.slow
@pytest.mark.parametrize("other", [1, 2])
def test_all_checks_and_what_follows_keep_the_claim(other):
    law = whole_law(DESIGN, (TABLES[0], TABLES[other]), 4)
    print(f"\nleft out {law.left_out:.1e}")
    for epsilon in (0.0, 1.0, 2.0, 4.0, 6.0):
        print(f"  epsilon={epsilon:3.1f}  exact {law.most(epsilon):.6f}  claimed {step_delta(TOTAL, epsilon):.6f}")
    assert law.least(0.0) > 0.1
    assert all(law.most(epsilon) <= step_delta(TOTAL, epsilon) for epsilon in (0.0, 1.0, 2.0, 4.0, 6.0))


@pytest.mark.slow
def test_checks_that_are_not_charged_are_caught():
    law = whole_law(DESIGN, (TABLES[0], TABLES[1]), 4, charged=False)
    assert law.least(2.0) > step_delta(TOTAL, 2.0)
