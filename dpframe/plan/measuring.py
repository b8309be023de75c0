"""Which tables are measured in addition to the rows, and with how much noise: a function of public facts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dpframe.accounting.budget import Budget
from dpframe.accounting.discrete_gaussian import IntegerNoise, noise_step
from dpframe.accounting.gaussian_dp import Step, promise_step
from dpframe.errors import DpframeWarning, ParameterError, list_below, name_list, tuple_label, warn
from dpframe.plan.budget_shares import budget_shares, goal_costs, goal_shares, listed_shares
from dpframe.plan.candidate_tables import JOINT_NUMBER_BINS, candidate_tables, listed_tables
from dpframe.plan.default_tables import MOST_BINS, choose_defaults, fit_to_noise, missing_tables
from dpframe.plan.levels import FIRST_LEVEL_CELLS
from dpframe.plan.measures import MEASURED_SLACK_SHARE, Measure, check_measures
from dpframe.spaces import Space
from dpframe.spaces.cells import ball_of, cell_count, is_cut
from dpframe.totals.least_noise import FAINTEST, least_noise

MIN_MEASURED_ROWS = 50
"""Least rows for which tables are measured by default: tables of fewer rows are mostly noise (tuned; effect not
measured)."""

_ROWS_ONLY_WEIGHT = 1 / 9
"""Weight of questions that only rows answer, such as questions of three columns, if all pairs are measured (tuned;
effect not measured)."""
_ROWS_ONLY_WEIGHT_OF_LISTED = 1 / 4
"""Weight of questions that only rows answer if only listed tables are measured (tuned; effect not measured)."""

_LARGEST_MU = 1e6
"""μ above all valid requests (limit of the format)."""

_WEIGHT_SUMS_SHARE = 0.6
"""Share of the tables' budget for sums of weights, if there are any (tuned; at a half weighted counts of a made survey
err 1.8 times as much as its counts, at this share some 1.5 times)."""

_SEPARATE_MU_FACTOR = 1 - 1e-3
"""Part of μ that two groups of tables take whose costs are proved one by one (tolerance)."""

_TOO_SMALL = "epsilon is too small to measure tables; raise epsilon, or pass measure=None"


@dataclass(frozen=True)
class Workload:
    """Requested tables and their share of the budget, before their noise is known."""

    measure: str | tuple[tuple[str, ...], ...] | None
    share: float | None = None
    """Share of M² after inference for tables; None for the share of least forecast error, see `taken`."""
    paid: bool = False
    """Whether spaces have been paid for: a request is then reduced rather than refused."""
    goals: Mapping[tuple[str, ...], float] | None = None
    """Target standard errors by table, of shares or of a mean; they determine the cost of each table."""
    added: tuple[tuple[str, ...], ...] = ()
    """Tables in addition to the default ones."""
    weights: str | None = None
    """Column of weights, which are added up by the cells of every other column."""
    context: tuple[str, ...] = ()
    """Columns of another table, which default tables count only in pairs with columns of this one."""
    portion: float = 1.0
    """Part of the tables' cost that these tables take, beside sums of weights."""

    @property
    def is_default(self) -> bool:
        """Whether the default tables are requested."""
        return isinstance(self.measure, str)

    @property
    def listed(self) -> Workload:
        """The request for only the listed tables, at an equal share."""
        return replace(self, measure=self.added or None, added=(), share=self.taken) if self.is_default else self

    def tables(self, spaces: Mapping[str, Space]) -> list[Measure]:
        """Return the default or listed tables, with noise of an arbitrary size; refuse tables that cannot be made."""
        if self.measure is None:
            return []
        if isinstance(self.measure, str):
            measures = list(candidate_tables(spaces, context=self.context))
            if self.added:
                check_measures([*measures, *missing_tables(measures, self.added, spaces, MOST_BINS)], spaces)
            return measures
        measures = list(listed_tables(self.measure, spaces))
        check_measures(measures, spaces)
        return measures

    @property
    def taken(self) -> float:
        """The share of M² for tables.

        An error from tables falls with the root of their share s, an error from rows with the root of 1 − s. The
        weighted geometric mean of both is least at s = 1/(1 + w), for any n and ε. The weight w is of questions that
        only rows answer, relative to questions that tables answer.
        """
        by_rows = _ROWS_ONLY_WEIGHT if isinstance(self.measure, str) else _ROWS_ONLY_WEIGHT_OF_LISTED
        return 1 / (1 + by_rows) if self.share is None else self.share

    def most(self, promise: Budget, inference: Step | None) -> Step:
        """Return the upper limit of the tables' cost after inference: public before anything is measured."""
        # Exact up to the root, then rounded down: tables and rows together stay within the budget.
        square_left_over = promise_step(promise).square - (0 if inference is None else inference.square)
        return Step(
            math.sqrt(max(0.0, float(square_left_over * Fraction(self.taken)))) * (1 - 1e-12),
            MEASURED_SLACK_SHARE * promise.delta,
        )

    def measures(
        self,
        spaces: Mapping[str, Space],
        promise: Budget,
        inference: Step | None,
        n: int,
        contributions: int,
        *,
        proved: bool = True,
    ) -> tuple[Measure, ...]:
        """Return the tables, with the noise that costs their share of M² after inference.

        No default tables are measured of fewer than fifty rows, or if their noise would exceed the number of rows. With
        ``proved=False`` the noise is the normal law's, for forecasts only: the lattice law costs some 1e-4 more.
        """
        if self.weights is not None:
            other_tables = replace(self, weights=None, portion=1 - _WEIGHT_SUMS_SHARE)
            measured_counts = other_tables.measures(spaces, promise, inference, n, contributions, proved=proved)
            sums = self._weight_sums(measured_counts, spaces)
            # A little less than all: tables that are proved apart cost a little more together.
            mu = self.most(promise, inference).mu * math.sqrt(_WEIGHT_SUMS_SHARE) * _SEPARATE_MU_FACTOR
            find_sums = partial(
                _find_least_noise, spaces=spaces, mu=mu, contributions=contributions, delta=promise.delta
            )
            noisy_sums = find_sums(sums, [1 / len(sums)] * len(sums), proved) if sums else None
            return (*measured_counts, *(noisy_sums or ()))
        auto, tables = self.is_default, self.tables(spaces)
        measure_added = partial(self.listed.measures, spaces, promise, inference, n, contributions, proved=proved)
        if not tables or (auto and n < MIN_MEASURED_ROWS):
            return measure_added() if self.added else ()
        if self.goals is not None:
            weights = goal_shares(tables, spaces, self.goals)
        else:
            weights = budget_shares(tables) if auto else listed_shares(tables, spaces)
        mu = self.most(promise, inference).mu
        if self.portion < 1:
            mu *= math.sqrt(self.portion) * _SEPARATE_MU_FACTOR

        find_noise = partial(_find_least_noise, spaces=spaces, mu=mu, contributions=contributions, delta=promise.delta)
        if auto and proved:
            measured_tables = choose_defaults(tables, weights, find_noise, spaces, n, self.added, self.context)
        else:
            measured_tables = find_noise(tables, weights, proved)
            if auto and measured_tables is not None:
                measured_tables = find_noise(
                    *fit_to_noise(measured_tables, spaces, n, self.added, self.context), proved
                )
        # Vectors are counted with a weight, other rows with 1.
        units = [ball_of(spaces[m.columns[0]]).last if m.kind == "vectors" else 1 for m in measured_tables or ()]
        counts = [m.sigma2 / unit**2 for m, unit in zip(measured_tables or (), units, strict=True) if m.kind != "sum"]
        # Sums are in steps of a number: their variance does not compare with a count's.
        lowest_variance = min(counts, default=math.inf)
        if measured_tables is None and not auto:
            if not self.paid:
                raise ParameterError(_TOO_SMALL)
            warn(f"nothing was measured: {_TOO_SMALL}", DpframeWarning)
        if auto and (measured_tables is None or lowest_variance > n**2):
            return measure_added() if self.added else ()
        return tuple(measured_tables or ())

    def _weight_sums(self, measures: Sequence[Measure], spaces: Mapping[str, Space]) -> list[Measure]:
        """Return the sums of weights by the cells of every other column, with noise of an arbitrary size."""
        sums = []
        one_ways = {measure.columns[0] for measure in measures if measure.kind == "one_way"}
        for name, space in spaces.items():
            is_plain = not space.holds_sets and not space.holds_vectors
            if (
                not is_plain
                or name == self.weights
                or not 1 < cell_count(space, JOINT_NUMBER_BINS) <= FIRST_LEVEL_CELLS
            ):
                continue
            # The noisy one-way of a number cuts it into bins.
            if not is_cut(space, JOINT_NUMBER_BINS) or name in one_ways:
                sums.append(
                    Measure("weights", (str(self.weights), name), 1.0, 0 if space.is_listed else JOINT_NUMBER_BINS)
                )
        return sums

    def met_from(self, spaces: Mapping[str, Space], n: int, contributions: int) -> float:
        """Return about the least μ at which tables meet their goals without the rows: by the normal law, unproved."""
        tables, goals = self.tables(spaces), self.goals or {}
        square = math.fsum(goal_costs(tables, spaces, goals)) * math.fsum(goal_shares(tables, spaces, goals))
        return contributions / n * math.sqrt(square / self.taken)

    def without(self, spaces: Mapping[str, Space], lost: Collection[str] = ()) -> Workload:
        """Return the request without tables that spaces already paid for do not allow, with a warning.

        ``lost`` are columns whose spaces inference did not find.
        """
        listed = self.added if isinstance(self.measure, str) else self.measure or ()
        feasible, refusals = [], []
        for names in listed:
            if missing_columns := [name for name in names if name in lost]:
                refusals.append(
                    f"{tuple_label(names)} needs the space of {name_list(missing_columns)}, which was not found"
                )
                continue
            try:
                (replace(self, added=(names,)) if self.is_default else Workload((names,))).tables(spaces)
            except ParameterError as error:
                refusals.append(str(error))
            else:
                feasible.append(names)
        if refusals:
            warn(
                "tables of measure= were left out, as the inferred spaces do not allow them:" + list_below(refusals),
                DpframeWarning,
            )
        if self.is_default:
            return replace(self, added=tuple(feasible), paid=True)
        return replace(self, measure=tuple(feasible) or None, paid=True)


def _find_least_noise(
    tables: Sequence[Measure],
    weights: Sequence[float],
    proved: bool = True,
    *,
    spaces: Mapping[str, Space],
    mu: float,
    contributions: int,
    delta: float,
) -> list[Measure] | None:
    """Return the tables with about the least noise of a step (exact if ``proved``) within μ; None if there is none."""
    # Below this slack the distance of noise from its law counts.
    if not mu > 0 or delta * MEASURED_SLACK_SHARE < FAINTEST:
        return None

    # Tables of equal noise and weight are one group: wide tables have thousands of pairs in few groups.
    groups: dict[tuple[IntegerNoise, float], list[int]] = {}
    for place, (table, weight) in enumerate(zip(tables, weights, strict=True)):
        groups.setdefault((table.noise(spaces), weight), []).append(place)
    examples = [tables[places[0]] for places in groups.values()]

    def cost_of(scales: Sequence[float]) -> Step:
        if not proved:
            return Step(0.0)
        noises: list[IntegerNoise] = []
        try:
            for example, sigma2, places in zip(examples, scales, groups.values(), strict=True):
                noises += [replace(example, sigma2=sigma2).noise(spaces)] * len(places)
            return noise_step(noises, contributions, MEASURED_SLACK_SHARE * delta)
        except ParameterError:  # noise so small that its tails count costs more than anything
            return Step(_LARGEST_MU)

    queries, group_weights = [noise for noise, _ in groups], [weight for _, weight in groups]
    variances = least_noise(queries, group_weights, mu, contributions, cost_of)
    if variances is None:
        return None
    sigma2_of = {place: sigma2 for places, sigma2 in zip(groups.values(), variances, strict=True) for place in places}
    return [replace(table, sigma2=sigma2_of[place]) for place, table in enumerate(tables)]
