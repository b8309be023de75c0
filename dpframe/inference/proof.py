"""Proofs of private inference from a plan's numbers: its noise costs no more than claimed, and its spaces follow from
the requested counts.

Older plans contain only the measured histograms, not all possible requests. Their claims are compared with a lower
bound of the cost, and the curator attests the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpframe.accounting.gaussian_dp import step_delta
from dpframe.errors import PlanError, name_list
from dpframe.inference.histogram_specs import UNKNOWN_DOMAINS, HistogramSpec, find_cost_failures
from dpframe.inference.inferred import Inferred, Measured
from dpframe.inference.kinds import choose_branch, is_possible_request
from dpframe.spaces import Boolean, Datetime, Integer, Space

TYPED: tuple[Space, ...] = (Boolean(), Integer(-128, 127), Integer(0, 255), Datetime("00:00", "23:59", "min"))
"""Spaces that a type determines, so that no counts are needed (theory: types)."""


@dataclass(frozen=True)
class ProvedInference:
    """Results for an inference: failures, proofs, and claims that its curator attests."""

    failures: tuple[str, ...]
    checks: tuple[str, ...]
    attested: tuple[str, ...]


def prove_inference(inferred: Inferred | None, contributions: int, spaces: Mapping[str, Space]) -> ProvedInference:
    """Compute an inference's cost anew from its requests, and replay which requests the recorded counts answer."""
    if inferred is None:
        return ProvedInference((), (), ())
    failures: list[str] = []
    if inferred.step is not None:
        stated = step_delta(inferred.step, inferred.budget.epsilon)
        if stated > inferred.budget.delta:
            claim = inferred.budget.stated()
            failures.append(f"inference claims {claim} on its own, but its step has delta={stated:.4g} there")
    if inferred.asked is None:
        failures += _find_older_failures(inferred, contributions)
        line = f"what inference of {name_list(inferred.columns)} might have asked, and so its cost: the plan says less"
        return ProvedInference(tuple(failures), (), (line,) if inferred.columns else ())
    failures += find_cost_failures(inferred.asked, contributions, inferred.budget, inferred.step)
    failures += _count_failures(inferred, spaces)
    if failures:
        return ProvedInference(tuple(failures), (), ())
    counted_columns = [name for name, histograms in inferred.asked if histograms]
    # Columns without requests have the space that their type determines.
    typed_columns = [name for name in inferred.columns if name not in counted_columns]
    checks = (
        [f"inference: the noise on all that {name_list(counted_columns)} could be asked"] if counted_columns else []
    )
    cost = inferred.budget.stated() if inferred.step is None else f"mu={inferred.step.mu:.6g}"
    attested = [_COUNTS_CLAIM] if counted_columns else []
    attested += [f"the types of {name_list(typed_columns)} say their spaces"] if typed_columns else []
    return ProvedInference((), tuple(f"{check} costs at most {cost}" for check in checks), tuple(attested))


_COUNTS_CLAIM = "no row counted under more cells than stated, and no counts left but those of the plan"


def _count_failures(inferred: Inferred, spaces: Mapping[str, Space]) -> Iterator[str]:
    """Yield the columns whose recorded counts are not the requested ones."""
    specs_by_column, thresholds = dict(inferred.asked or ()), dict(inferred.thresholds)
    if not {m.column for m in inferred.measured} | thresholds.keys() | specs_by_column.keys() <= set(inferred.columns):
        yield "inference has counts of columns that it does not name"
    for name in inferred.columns:
        recorded = [m for m in inferred.measured if m.column == name]
        if name not in specs_by_column:
            if recorded or (name in spaces and spaces[name] not in TYPED):
                yield f"column {name!r} was inferred, and the plan does not say what was asked of it"
            continue
        difference = _find_difference(specs_by_column[name], recorded, thresholds.get(name, 0))
        if difference is not None:
            yield f"column {name!r} was inferred, but {difference}"
        item_limit = getattr(spaces[name].inner_space, "most", None) if name in spaces else None
        items = [h.cells for h in specs_by_column[name] if h.kind == "items"]
        if recorded and recorded[-1].kind == "items" and item_limit is not None and item_limit > max(items, default=0):
            yield f"column {name!r} has up to {item_limit} items a row, and inference counted {max(items, default=0)}"


def _find_difference(histograms: Sequence[HistogramSpec], recorded: Sequence[Measured], threshold: int) -> str | None:
    """Return how recorded counts differ from the rule's requests, or None if they do not."""
    if not is_possible_request([(h.way, h.kind) for h in histograms]):
        return "no column is asked what the plan says of it"
    expected = _expected_histograms(histograms, recorded)
    if [(h.kind, h.variance) for h in expected] != [(m.kind, m.variance) for m in recorded]:
        return "its counts are not those that were asked for"
    if threshold != max((h.threshold for h in expected), default=0):
        return "its threshold is not the one that was asked with"
    if any(count < h.threshold for h, m in zip(expected, recorded, strict=True) if h.threshold for count in m.counts):
        return "has counts below its threshold"
    return None


def _expected_histograms(histograms: Sequence[HistogramSpec], recorded: Sequence[Measured]) -> list[HistogramSpec]:
    """Return the histograms that the rule requests, given the recorded ones before them."""
    ways = {h.way for h in histograms if h.way is not None}
    expected = [h for h in histograms if h.way is None]
    if ways and recorded and recorded[0].kind == "kinds":
        kinds = dict(zip(recorded[0].cells, recorded[0].counts, strict=True))
        branch = choose_branch(kinds, recorded[0].variance ** 0.5, ways)
        expected += [h for h in histograms if h.way == branch]
    for place, histogram in enumerate(expected[: len(recorded)]):
        # Lists of no length have no norms.
        if histogram.kind == "lengths" and recorded[place].kind == "lengths" and not recorded[place].cells:
            return expected[: place + 1]
    return expected


_OLDER_TOLERANCE = 1e-4
"""Relative rounding of an older plan's claims (tolerance)."""


def _find_older_failures(inferred: Inferred, contributions: int) -> list[str]:
    """Return the failures of an older plan's inference, which recorded only the histograms that were measured.

    Every histogram counts a row in one cell at least, so that the cost here is a lower bound.
    """
    if inferred.step is not None and inferred.columns and not inferred.measured:
        return ["inference names columns but no counts that their spaces rest on"]
    thresholds = dict(inferred.thresholds)
    specs: list[tuple[str, tuple[HistogramSpec, ...]]] = []
    try:
        for m in inferred.measured:
            threshold = thresholds[m.column] if m.kind in UNKNOWN_DOMAINS else 0
            specs.append((m.column, (HistogramSpec(m.kind, 1, m.variance, threshold),)))
    except (PlanError, KeyError):
        return ["inference has counts with less noise, or a lower threshold, than any inference asks for"]
    return find_cost_failures(tuple(specs), contributions, inferred.budget, inferred.step, _OLDER_TOLERANCE)
