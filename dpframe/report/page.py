"""The page of a report: promise, limits, proofs, mechanisms of the columns, and accuracy of estimates.

The questions follow the pyramid of NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025),
from the numbers of a promise through its threats to its foundations, and the trade-offs of the W3C Draft
Note Considerations for Reviewing Differential Privacy Systems (for Non-Differential Privacy Experts) of 12 February
2026: privacy, usefulness, and who has to be trusted.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from dpframe.accounting.budget import Budget, upward
from dpframe.accounting.gaussian_dp import promise_step
from dpframe.errors import name_list
from dpframe.estimate import Estimates
from dpframe.plan.beliefs import PRIORS, after, best_guess, chance, percent
from dpframe.plan.certificate import Certificate
from dpframe.plan.measures import measure_parts
from dpframe.plan.plan import Plan
from dpframe.plan.words import UNORDERED
from dpframe.release.info import ReleaseInfo
from dpframe.release.together import Together
from dpframe.report.elements import (
    MECHANISMS,
    Drawing,
    Table,
    bar,
    mechanism_name,
    parts_bar,
    range_bar,
    table,
    unit_word,
)
from dpframe.report.figures import MAX_DRAWN_COLUMNS, Figure, estimate_figures, forecast_rows, share_table
from dpframe.report.overview import overview
from dpframe.spaces.words import number

PROVED, ATTESTED, OPEN = "proved from the file", "stated by the curator", "ask the curator"


def review_table(plan: Plan, certificate: Certificate, together: Together | None = None) -> Table:
    """Return a row for each question: the release's answer, and its source.

    ``together`` is the promise of all tables that were released together.
    """
    nulls = ", and nulls as a value where a column is not nullable" if plan.nulls == "impute" else ""
    order = "; that the order of the rows stays secret is part of the promise" if plan.terms.shuffled_rows else ""
    public_facts = "the number of rows, names, types and possible values of the columns"
    unprotected_text = "; ".join([*certificate.unprotected, public_facts])
    parts = []
    if plan.inferred is not None:
        parts.append(f"{len(plan.inferred.columns)} columns' values were inferred, within the budget.")
    if plan.leaks:
        parts.append(f"Read off the data, and not covered: {name_list(plan.leaks)}.")
    if len(plan.leaks) + (0 if plan.inferred is None else len(plan.inferred.columns)) < len(plan.columns):
        parts.append(f"{'Other' if parts else 'All'} columns' values were declared, or are known by their types.")
    delta = f", δ = {upward(plan.delta)}" if plan.delta else ", δ = 0"
    of_all = "" if together is None else f"All tables together: ε = {upward(together.epsilon)}, δ = "
    of_all += "" if together is None else f"{upward(together.delta)}; quote this. This table by itself: "
    rows = [
        (
            "How strong is the promise?",
            f"{of_all}ε = {upward(plan.epsilon)}{delta}; for a row that was found, ε = {upward(plan.located.epsilon)}.",
            PROVED if certificate.ok else "not verified",
        ),
        ("Who is protected (unit of privacy)?", _unit_text(plan), ATTESTED),
        ("What may differ between neighbouring tables?", _NEIGHBOURS_ANSWER, PROVED),
        ("What is released without protection?", f"{unprotected_text[0].upper()}{unprotected_text[1:]}.", PROVED),
        (
            "Whom do people have to trust?",
            f"The curator, who holds the raw table and the key (central model){order}. Receivers need no trust.",
            ATTESTED,
        ),
        ("Was anything looked at before, or tuned on the data?", " ".join(parts), ATTESTED),
        ("Do other releases of the same people add to it?", _OTHER_RELEASES_ANSWER, OPEN),
        ("Is the noise sound (floating point, timing)?", _NOISE_ANSWER, "the code; losses are proved from the file"),
        ("Who can reach the raw table and the key?", "Not in this file.", OPEN),
        ("How were the data collected, and whom do they miss?", _COLLECTION_ANSWER, OPEN),
        (
            "Is it useful, and for whom least?",
            f"{_USEFULNESS_ANSWER} Values beyond a column's bounds count as the bounds{nulls}.",
            "forecast from the plan",
        ),
    ]
    caption = (
        "Questions in the order of the pyramid of NIST SP 800-226 (2025), with those of the W3C Draft Note "
        "Considerations for Reviewing Differential Privacy Systems (12 February 2026)"
    )
    return table(caption, ("Question", "This release", "Known how"), rows, "review")


_NEIGHBOURS_ANSWER = "The values of one person's rows; the number of rows stays (replace-one)."
_OTHER_RELEASES_ANSWER = "Not in this file: each adds its ε and δ. A ledger of the dataset has the sum."
_NOISE_ANSWER = (
    "Drawn as whole numbers from tables with a keyed stream: no floating point, and no work that follows a value. "
    "Running times were not audited."
)
_COLLECTION_ANSWER = "Not in this file. Noise mends no bias of the data, and hides nothing before the release."
_USEFULNESS_ANSWER = (
    "See the top of this page. Noise is the same for all counts, so small groups are distinguished least."
)


def _unit_text(plan: Plan) -> str:
    rows = "one row" if plan.contributions == 1 else f"up to {plan.contributions} rows"
    if plan.privacy_id is not None:
        return f"A person, by column {plan.privacy_id}, of whom {rows} were chosen."
    return f"A person with {rows}; who owns more is protected less."


def add_remove(budget: Budget) -> Budget:
    """Return the (ε, δ) for adding or removing a row that is worth as much as this one for replacing a row.

    A replacement is one row less and one more, so that (ε, δ) for add/remove is (2ε, (1 + e^ε)·δ) for replace-one.

    >>> add_remove(Budget(1.0, 1e-6)).epsilon
    0.5
    """
    half = budget.epsilon / 2
    # `exp` overflows above 709; at 700 the peer's δ is practically 0.
    return Budget(half, budget.delta / (1 + math.exp(min(half, 700.0))))


def comparison(budget: Budget) -> str:
    """Return how a peer's ε for adding or removing a row compares with a release's, in words."""
    peer = add_remove(budget)
    delta = f", δ = {peer.delta:.2g}" if peer.delta else ""
    return (
        "Many state ε for adding or removing one row. Such an (ε, δ) is at most (2ε, (1 + e^ε)·δ) for replacing one, "
        f"as here: ε = {upward(budget.epsilon)} of this release bounds as much as an add/remove ε = {peer.epsilon:.3g}"
        f"{delta} would. Nothing is claimed the other way: the number of rows is exact, so that a row added or removed "
        "shows."
    )


if TYPE_CHECKING:
    from jinja2 import Environment

GAINS = {
    "basic composition": "the columns' losses added up",
    "optimal composition": "losses composed by their exact laws, with nothing but the rows",
    "secret order": "and rows are shuffled, which pays for the tables as well",
    "secret sample": "and only a secret sample of the rows leaves",
}
"""Each accounting of `Plan.accounting_gains`, in words."""

_LEAST_UNSPENT_SHARE = 0.005
"""Share of the budget below which the unspent part has no line."""

_UNPRINTABLE_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
"""Control characters and non-characters."""


@dataclass(frozen=True)
class Promise:
    """A budget in words: how good a guess it leaves."""

    title: str
    against: str
    budget: Budget
    main: bool = False

    @property
    def epsilon(self) -> str:
        """Its ε, rounded up."""
        return upward(self.budget.epsilon)

    @property
    def delta(self) -> str:
        """Its δ, rounded up; empty if it is 0."""
        return upward(self.budget.delta) if self.budget.delta else ""

    @property
    def chance(self) -> str:
        """Its δ as a chance."""
        return chance(self.budget.delta)

    @property
    def best(self) -> str:
        """How often the best guess is right at most."""
        return percent(best_guess(self.budget))

    @property
    def scale(self) -> Drawing:
        """The chances that a guess can have, on a scale from 0 to 1."""
        best = best_guess(self.budget)
        return range_bar(1 - best, best)


@dataclass(frozen=True)
class Channel:
    """A column's values and its mechanism, by names that readers know."""

    space: str
    mechanism: str


@dataclass(frozen=True)
class Accuracy:
    """Estimates of the first columns, if the release is at hand, and forecasts of its plan."""

    figures: list[Figure]
    forecast: Table
    more: bool


@dataclass(frozen=True)
class Spend:
    """Spends of a release's parts: a share of the whole, and its purpose."""

    parts: list[tuple[str, str]]
    bar: Drawing


def _promises_together(info: ReleaseInfo) -> list[Promise]:
    """Return the promise of all tables that were released together, if there are several."""
    together = info.together
    if together is None:
        return []
    threat = f"Against anyone who sees all of {name_list(together.tables)}, for a person with all rows in all of them."
    return [Promise("All tables together", threat, Budget(together.epsilon, together.delta), main=True)]


def page(info: ReleaseInfo, certificate: Certificate, estimates: Estimates | None) -> str:
    """Return the report on a release as one HTML page.

    Without ``estimates`` the page shows the plan's forecast accuracy, instead of estimates.
    """
    plan = info.plan
    rows = [(p.unit, upward(p.claimed.epsilon), upward(p.epsilon), p.method) for p in certificate.proofs]
    caption = "Each channel's claim, and the loss recomputed from its integers"
    release_threat = (
        "Against anyone who sees the release, even if they know everybody else's row and how all was randomised."
    )
    row_threat = (
        "The same as for the release: no secret of order or sample is counted on."
        if plan.local == plan.release
        else "Even against someone who found out which released row is the person's."
    )
    release_title = "The release as a whole" if info.together is None else "This table by itself"
    return (
        environment()
        .get_template("template.html.jinja")
        .render(
            title=f"Release of {info.title} and {len(plan.columns)} randomised columns",
            plan=plan,
            digest=info.digest,
            certificate=certificate,
            overview=overview(plan, info.n, estimates),
            promises=[
                *_promises_together(info),
                Promise(release_title, release_threat, plan.release, main=info.together is None),
                Promise("Each row on its own", row_threat, plan.local),
            ],
            weak_rows=plan.local != plan.release and best_guess(plan.local) > 0.95,
            capped=percent(best_guess(Budget(2.0, plan.local.delta))),
            beliefs=_belief_table(plan),
            unprotected=_unprotected_lines(plan, certificate),
            proofs=table(caption, ("Column", "#Claims ε", "#Loses ε", "How"), rows),
            columns=_column_table(plan),
            mechanisms=_mechanism_texts(plan),
            accuracy=_accuracy_of(info, estimates),
            gains=_gain_table(plan),
            spend=_spend_of(plan),
            review=review_table(plan, certificate, info.together),
            comparison=comparison(plan.release),
            measured=measure_parts(plan.measures),
            shares=share_table(plan, info.n),
        )
    )


@cache
def environment() -> Environment:
    """Return the environment of this folder's templates: it escapes every value, and fails at unknown names."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    template_environment = Environment(
        loader=PackageLoader("dpframe", "report"),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    template_environment.globals["zip"] = zip
    return template_environment


def printable(value: object) -> object:
    """Return text without the characters that HTML forbids even when they are escaped, other values as they are.

    >>> printable("a\\x07b"), printable(3)
    ('a�b', 3)
    """
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return _UNPRINTABLE_CHARACTERS.sub("\ufffd", value)
    return value


def _belief_table(plan: Plan) -> Table:
    rows = []
    for prior in PRIORS:
        posteriors = [after(prior, budget) for budget in (plan.release, plan.local)]
        rows.append((f"{100 * prior:.0f} %", *(percent(share) for share in posteriors)))
    caption = (
        "The same for other beliefs: how sure someone was of a person's true row, of two, and how sure they can be "
        "afterwards at most" + (", on average over what they may see" if plan.delta else "")
    )
    return table(caption, ("Before", "#After the release", "#After, knowing which row it is"), rows, "beliefs")


def _unprotected_lines(plan: Plan, certificate: Certificate) -> list[str]:
    lines = [line[0].upper() + line[1:] for line in certificate.unprotected]
    lines += [
        "The number of rows, the columns' names and types, and the values that each column may hold: they are public.",
        "What is true of people in general: a release is made to teach that, and it may be applied to anyone, "
        "also to people who are not in the table.",
        "Anything kept elsewhere: the original table, the key, and other releases. Each further release of the same "
        "people adds its ε and δ to these.",
    ]
    if plan.unit.person is None:
        rows = plan.unit.rows
        row_limit_text = "one: each of their rows is" if rows == 1 else f"{rows}: any {rows} of their rows are"
        lines.append(f"People who own more rows than {row_limit_text} protected, but not all of them at once.")
    if plan.drop:
        lines.append(f"Left out, so that nothing of them is in the release: {name_list(plan.drop)}.")
    return lines


def _column_table(plan: Plan) -> Table:
    rows = []
    for unit in plan.units:
        # Values without order have no distance: their error is a chance of change.
        chances = unit.space.metric in UNORDERED
        error_texts = [f"{100 * x:.3g} %" if chances else number(x) for x in (unit.expected_error, unit.error_bound)]
        error_unit = "chance of change" if chances else unit_word(unit.space.unit)
        if any(missing.column in unit.names for missing in plan.not_found):
            error_texts, error_unit = ["not found"] * 2, ""
        channel = Channel(unit.space.contents, mechanism_name(unit.mechanism.tag))
        rows.append((unit.label, channel, upward(unit.mechanism.budget.epsilon), *error_texts, error_unit))
    heads = ("Column", "Values, and mechanism", "#ε of a row", "#Expected error", "#Least possible", "Unit")
    return table("How each column was randomised", heads, rows, "columns", hide=True)


def _mechanism_texts(plan: Plan) -> list[tuple[str, str]]:
    tags = dict.fromkeys(unit.mechanism.tag for unit in plan.units)
    return [(mechanism_name(tag), MECHANISMS[tag]) for tag in tags if tag in MECHANISMS]


def _accuracy_of(info: ReleaseInfo, estimates: Estimates | None) -> Accuracy | None:
    plan, n = info.plan, info.n
    if not plan.columns or n < 1:
        return None
    caption = (
        "Forecast from only the plan: half-widths of 95 % intervals, drawn as parts of all rows or of the column's "
        "range, from 0.01 % to 100 % on a scale of logarithms"
    )
    heads = ("Column", "Statistic", "#Expected interval", "Part of its range")
    forecast = table(caption, heads, forecast_rows(plan, n), "bars")
    # Joined rows repeat the parents' columns, which the parents' own report shows.
    context = () if info.together is None else info.together.context
    figures = [] if estimates is None else estimate_figures(estimates, context)
    return Accuracy(figures, forecast, len(plan.columns) > MAX_DRAWN_COLUMNS)


def _gain_table(plan: Plan) -> Table | None:
    if not plan.units or not plan.n:
        return None
    gains = plan.accounting_gains()
    noise = gains["noise"].to_numpy(dtype=float)
    # A single accounting has nothing to compare with.
    if len(gains) < 2 or not all(map(math.isfinite, noise)):
        return None
    rows = [
        (f"{name}: {GAINS.get(name, '')}", number(row_epsilon), f"{number(value)} ×", bar(value / noise.max()))
        for name, row_epsilon, value in zip(map(str, gains.index), gains["row_epsilon"], noise, strict=True)
    ]
    heads = ("Accounting", "#ε of a row", "#Noise", "Compared with this release")
    return table("Noise under each accounting", heads, rows, "bars", hide=True)


def _spend_of(plan: Plan) -> Spend | None:
    """Return the parts of the budget, which add up to the promise; None if the rows have all of it."""
    if plan.inferred is not None and plan.inferred.step is None:  # older plans subtract it
        share = plan.inferred.budget.epsilon / plan.epsilon
        shares = {"inference": share, "rows": 1 - share}
    else:
        total_square = max(promise_step(plan.release).square, Fraction(1, 10**300)) if plan.delta else Fraction(0)
        shares = {name: float(step.square / total_square) for name, step in plan.steps.items()} if total_square else {}
    if set(shares) <= {"rows"}:
        return None
    if plan.terms.shuffled_rows is None and "rows" in shares:  # whose losses are composed exactly, and are no step
        shares["rows"] = max(0.0, 1 - sum(share for name, share in shares.items() if name != "rows"))
    unspent_share = 1 - sum(shares.values())
    # Rounding leaves a little, which is no line of its own.
    if unspent_share > _LEAST_UNSPENT_SHARE:
        shares["left"] = unspent_share
    inferred_names = "" if plan.inferred is None else name_list(plan.inferred.columns)
    part_texts = {
        "inference": f"finding the values that {inferred_names} may hold, from noisy counts",
        "tables": f"{len(plan.measures)} measured tables",
        "rows": "the rows",
        "left": "not spent",
    }
    parts = [(f"{100 * share:.2g} %", part_texts[name]) for name, share in shares.items()]
    return Spend(parts, parts_bar([min(max(share, 0.0), 1.0) for share in shares.values()]))
