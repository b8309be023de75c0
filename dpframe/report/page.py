"""The page: what is promised, what is not, what was proved, how columns were randomised, how exact estimates are."""

from __future__ import annotations

import math

from dpframe.accounting.budget import Budget, upward
from dpframe.errors import name_list
from dpframe.estimate import Estimates
from dpframe.plan.certificate import Certificate
from dpframe.plan.plan import UNORDERED, Plan
from dpframe.release.info import ReleaseInfo
from dpframe.report.elements import Html, bar, el, items, join, range_bar, split_bar, table
from dpframe.report.figures import MOST_COLUMNS, estimate_panels, forecast_rows
from dpframe.report.style import STYLE
from dpframe.report.words import (
    MECHANISMS,
    after,
    best_guess,
    chance,
    mechanism_name,
    number,
    percent,
    space_words,
    unit_word,
)

PRIORS = (0.01, 0.1, 0.5, 0.9)

GAINS = {
    "basic composition": "the columns' losses added up",
    "optimal composition": "losses composed by their exact laws",
    "secret order": "and rows leave in a secret order",
    "secret sample": "and only a secret sample of the rows leaves",
}
"""What stands for each accounting of `Plan.accounting_gains`, in words."""


def page(info: ReleaseInfo, certificate: Certificate, estimates: Estimates | None) -> str:
    """Return the report on a release as one HTML page.

    Without ``estimates`` the page shows what accuracy the plan forecasts, instead of what the release says.
    """
    plan = info.plan
    title = f"Release of {info.n:,} rows and {len(plan.columns)} randomised columns"
    sections = (
        _head(title, plan, certificate),
        _promise(plan),
        _unprotected(plan, certificate),
        _proofs(certificate),
        _columns(plan),
        _accuracy(plan, info.n, estimates),
        _gains(plan),
        _spend(plan),
        _words(),
        _foot(info),
    )
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    )
    parts = "\n".join(section for section in sections if section)
    head += f"{el('title', title)}\n<style>{STYLE}</style>\n</head>\n"
    return f"{head}<body>\n<main>\n{parts}\n</main>\n</body>\n</html>\n"


def _section(title: str, *parts: object) -> Html:
    return el("section", el("h2", title), *parts)


def _head(title: str, plan: Plan, certificate: Certificate) -> Html:
    order = ", and the rows left in a secret order" if plan.shuffle else ", and the rows kept their order"
    lead = (
        f"Every row was randomised before it left{order}. This page says what that promises to the people in the "
        "table, what it does not, and how exact the numbers are that can be read from the release."
    )
    return el("header", el("p", "dpframe report", class_="over"), el("h1", title), el("p", lead), _verdict(certificate))


def _verdict(certificate: Certificate) -> Html:
    if certificate.ok:
        says = " The promise below was recomputed from the random tables that the plan states, and holds."
        return el("p", el("strong", "Verified."), says, class_="verdict good")
    says = " Do not rely on this release before this is explained:"
    return el("div", el("strong", "Not verified."), says, items(certificate.failures), class_="verdict bad")


def _promise(plan: Plan) -> Html:
    rows = "" if plan.contributions == 1 else f", who may own up to {plan.contributions} rows"
    lead = (
        "The promise is about one person at a time"
        f"{rows}: had that person's data been different in any way, the release would have looked nearly as likely. "
        "ε bounds how far the odds of a bet on a person can move; δ is the chance left out of that bound."
    )
    same = plan.local == plan.release
    panels = [
        _panel(
            "The release as a whole",
            plan.release,
            "against anyone who sees the release, even if they know everybody else's row and how all was randomised",
            main=True,
        ),
        _panel(
            "Each row on its own",
            plan.local,
            "the same as for the release: no secret of order or sample is counted on"
            if same
            else "even against someone who found out which released row is the person's",
        ),
    ]
    said = []
    if not same and best_guess(plan.local) > 0.95:
        said.append(
            el(
                "p",
                "On its own a row is weakly protected: the promise rests on the order"
                f"{' and the choice' if plan.sample is not None else ''} of the rows staying secret.",
            )
        )
    if plan.release.epsilon > 4:
        said.append(el("p", "An ε this large promises little against the worst case."))
    return _section("What is promised", el("p", lead), el("div", *panels, class_="panels"), *said, _beliefs(plan))


def _panel(title: str, budget: Budget, against: str, *, main: bool = False) -> Html:
    best = best_guess(budget)
    within = ", up to the chance δ" if budget.delta else ""
    at_most = f"Even odds become at most {percent(after(0.5, budget))}{within}."
    text = (
        f" Whoever must guess which of two equally likely rows a person has is right at most {percent(best)} of the "
        "time, whatever they do; a coin is right 50 %."
    )
    small = (
        "δ = 0: without exception"
        if budget.delta == 0
        else f"δ = {upward(budget.delta)}: a chance of {chance(budget.delta)}"
    )
    return el(
        "section",
        el("h3", title),
        el("p", f"ε = {upward(budget.epsilon)}", el("small", small), class_="size"),
        el("p", against[0].upper() + against[1:] + ".", class_="note"),
        el(
            "div",
            range_bar(1 - best, best),
            el("div", *(el("span", mark) for mark in ("0 %", "even odds", "100 %")), aria_hidden="true"),
            class_="scale",
        ),
        el("p", el("strong", at_most), text),
        class_="panel main" if main else "panel",
    )


def _beliefs(plan: Plan) -> Html:
    rows = []
    for before in PRIORS:
        known = [after(before, budget) for budget in (plan.release, plan.local)]
        rows.append((f"{100 * before:.0f} %", *(percent(share) for share in known)))
    caption = (
        "The same for other beliefs: how sure someone was that a person's row is one of two, and how sure they can be "
        "afterwards at most" + (f" (but for a chance of δ, {chance(plan.delta)})" if plan.delta else "")
    )
    return table(caption, ("Before", "#After the release", "#After, knowing which row it is"), rows, "beliefs")


def _unprotected(plan: Plan, certificate: Certificate) -> Html:
    lines = [*certificate.unprotected]
    lines = [line[0].upper() + line[1:] for line in lines]
    lines += [
        "The number of rows, the columns' names and types, and the values that each column may hold: they are public.",
        "What is true of people in general: a release is made to teach that, and it may be applied to anyone, "
        "also to people who are not in the table.",
        "Anything kept elsewhere: the original table, the key, and other releases. Each further release of the same "
        "people adds its ε and δ to these.",
    ]
    if plan.contributions == 1:
        lines.append("People who own more rows than one: each of their rows is protected, but not all of them at once.")
    if plan.drop:
        lines.append(f"Left out, so that nothing of them is in the release: {name_list(plan.drop)}.")
    return _section("What is not protected", items(lines))


def _proofs(certificate: Certificate) -> Html:
    proved = [(p.unit, upward(p.claimed.epsilon), upward(p.epsilon), p.method) for p in certificate.proofs]
    caption = "Each channel's claim, beside the loss recomputed from its integers"
    return _section(
        "What was proved, and what is attested",
        el("p", "Proofs need nobody's word: they follow from the file alone. The rest only the curator can vouch for."),
        el("h3", "Proved from the file"),
        table(caption, ("Column", "#Claims ε", "#Loses ε", "How"), proved) if proved else "",
        items(certificate.checks),
        el("h3", "Attested by the curator, beyond any proof"),
        items(certificate.attested),
    )


def _columns(plan: Plan) -> Html:
    rows = []
    for unit in plan.units:
        chances = unit.space.metric in UNORDERED
        shown = [f"{100 * x:.3g} %" if chances else number(x) for x in (unit.expected_error, unit.error_bound)]
        what = join([space_words(unit.space), " — ", el("em", mechanism_name(unit.mechanism.tag))])
        measured = "chance of change" if chances else unit_word(unit.space)
        if any(missing.column in unit.names for missing in plan.not_found):
            shown, measured = ["not found"] * 3, ""
        rows.append((unit.label, what, upward(unit.mechanism.budget.epsilon), *shown, measured))
    heads = ("Column", "Values, and mechanism", "#ε of a row", "#Expected error", "#Least possible", "Unit")
    tags = dict.fromkeys(unit.mechanism.tag for unit in plan.units)
    legend = [join([el("em", mechanism_name(tag)), f": {MECHANISMS[tag]}"]) for tag in tags if tag in MECHANISMS]
    note = (
        "Expected error: how far a single released value lies from the true one on average, in the worst case. "
        "Least possible: what no mechanism gets below at the same ε and δ (Holohan, Leith and Mason, differential "
        "privacy in metric spaces, Theorems 6 and 7). Numbers about many rows are far more exact than one value."
    )
    caption = "How each column was randomised"
    return _section(
        "How each column was randomised",
        table(caption, heads, rows, "columns", hide=True),
        el("p", note, class_="note"),
        items(legend, "note"),
    )


def _accuracy(plan: Plan, n: int, estimates: Estimates | None) -> Html:
    if not plan.columns or n < 1:
        return Html("")
    parts: list[object] = []
    if estimates is not None:
        more = len(plan.columns) - MOST_COLUMNS
        says = (
            "Estimates of the original table, made from the release alone, with 95 % intervals. Shares of values "
            "are unbiased, and so may fall below 0 %; distributions of numbers are fitted."
            + (f" The first {MOST_COLUMNS} of {len(plan.columns)} columns." if more > 0 else "")
        )
        parts += [el("p", says), el("div", estimate_panels(estimates), class_="figures")]
    forecast = forecast_rows(plan, n)
    if forecast:
        caption = (
            "Forecast from the plan alone: half-widths of 95 % intervals, drawn as parts of the whole range "
            "(100 %, or the column's bounds)"
        )
        parts.append(table(caption, ("Column", "Statistic", "#Expected interval", "Of its range"), forecast, "bars"))
    return _section("How exact it is", *parts)


def _gains(plan: Plan) -> Html:
    if not plan.units or not plan.n:
        return Html("")
    found = plan.accounting_gains()
    noise = found["noise"].to_numpy(dtype=float)
    if len(found) < 2 or not all(map(math.isfinite, noise)):
        return Html("")
    rows = [
        (f"{name}: {GAINS.get(name, '')}", number(lost), f"{number(value)} ×", bar(value / noise.max()))
        for name, lost, value in zip(map(str, found.index), found["row_epsilon"], noise, strict=True)
    ]
    says = "The same promise could have been kept by coarser accounting, at the price of more noise in every number."
    heads = ("Accounting", "#ε of a row", "#Noise", "Beside this release")
    return _section("What makes the noise small", el("p", says), table("Levers", heads, rows, "bars", hide=True))


def _spend(plan: Plan) -> Html:
    if plan.inferred is None:
        return Html("")
    spent = plan.inferred.budget
    share = spent.epsilon / plan.epsilon
    key = [
        el(
            "p",
            el("span", class_="key part0"),
            f"ε = {number(spent.epsilon)}, δ = {number(spent.delta)}: finding the "
            f"values that {name_list(plan.inferred.columns)} may hold, from noisy counts",
        ),
        el(
            "p",
            el("span", class_="key part1"),
            f"ε = {number(plan.released.epsilon)}, δ = {number(plan.released.delta)}: the rows",
        ),
    ]
    return _section("What the budget was spent on", el("div", split_bar([share, 1 - share]), class_="split"), *key)


def _words() -> Html:
    said = {
        "ε (epsilon)": "How much one person's row can change the chance of anything that is released: by the factor "
        "e^ε at most. 0 would be perfect secrecy, and a useless release.",
        "δ (delta)": "The part of the chance that may escape this factor.",
        "Neighbouring tables": "Two tables of the same number of rows that differ in one person's (replace-one).",
        "95 % interval": "In about 95 of 100 releases such an interval holds the original table's number.",
    }
    pairs = [part for word, text in said.items() for part in (el("dt", word), el("dd", text))]
    return _section("Words", el("dl", *pairs))


def _foot(info: ReleaseInfo) -> Html:
    return el(
        "footer",
        f"Release {info.digest or 'without a digest'}, plan {info.plan.digest.hex()}. This page is the "
        "same each time it is made from this release; it loads nothing and runs nothing.",
    )
