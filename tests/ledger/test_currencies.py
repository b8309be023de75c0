"""What a ledger adds up: μ² and a pool of δ₀ beside ε and δ, parts, and ledgers of the first schema."""

import contextlib
import itertools
import math
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from strategies import examples

from dpframe.accounting.budget import Budget
from dpframe.accounting.gaussian_dp import Step, composed_steps, largest_step, pure_step, share_of_step, step_epsilon
from dpframe.datasets import make_census
from dpframe.errors import BudgetExceeded, DpframeWarning, LedgerError, ParameterError
from dpframe.ledger.currencies import (
    GAUSSIAN,
    Amount,
    DatasetTotal,
    GaussianCurrency,
    StoredAmount,
    Sum,
    Tally,
    dominated,
    yearly,
)
from dpframe.ledger.ledger import Ledger

WHOLE = GAUSSIAN.whole(Budget(1.0, 1e-6)).step


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", 1.0, 1e-6)
    return made


def spend(ledger, number, step=None, *, budget=(0.1, 0.0), dataset="survey", part=None):
    return ledger.spend(dataset, *budget, release_id=f"release {number}", step=step, part=part)


# Totals


def gaussian_profile(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 1e-6), (0.1, 1e-9), (8.0, 0.01), (0.7, 0.3)])
def test_a_total_becomes_m_squared_and_half_of_delta(epsilon, delta):
    whole = GAUSSIAN.whole(Budget(epsilon, delta)).step
    assert whole.delta == delta / 2
    assert whole.delta + (1 - whole.delta) * gaussian_profile(whole.mu, epsilon) == pytest.approx(delta, rel=1e-9)


def test_half_of_delta_costs_6_percent_of_m_squared():
    best = largest_step(Budget(1.0, 1e-6), 0.03)
    assert 0.93 < WHOLE.square / best.square < 0.95


def test_accounting_follows_delta_unless_it_is_named(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("a", 1.0)
    ledger.create("b", 1.0, 1e-6)
    ledger.create("c", 1.0, 1e-6, accounting="basic")
    ledger.create("d", 1.0, 0.0, accounting="basic")
    assert ledger.summary()["accounting"].tolist() == ["basic", "gaussian", "basic", "basic"]
    with pytest.raises(ParameterError, match=r'^accounting="gaussian" needs a delta.*0;.*delta, or create'):
        ledger.create("e", 1.0, accounting="gaussian")
    for name in ("Gaussian", "", 3, ["basic"]):
        with pytest.raises(ParameterError, match=r'^accounting must be "gaussian" or "basic"; give'):
            ledger.create("e", 1.0, 1e-6, accounting=name)
    assert ledger.datasets() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-6, 700.0, 1e308])
@pytest.mark.parametrize("delta", [5e-324, 1e-323, 1e-300, 0.99])
def test_any_budget_is_a_total_and_a_spend(epsilon, delta):
    kept = GAUSSIAN.whole(Budget(epsilon, delta))
    assert kept.step.mu > 0
    assert Fraction(kept.slack) < Fraction(kept.delta)
    step = dominated(Budget(epsilon, delta))
    assert step.mu >= math.sqrt(math.pi / 2) * min(epsilon, 1.0) / 1.3
    total = DatasetTotal("survey", GAUSSIAN, kept)
    (amount,) = GAUSSIAN.spent([total.exact], total)
    assert amount.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [599.0, 600.0, 699.0])
def test_domination_beyond_what_exponentials_hold_is_above_the_exact(epsilon):
    assert pure_step(epsilon).mu <= dominated(Budget(epsilon)).mu < 1.02 * pure_step(epsilon).mu


# Sums


@pytest.mark.parametrize("times", [4, 16, 256])
@pytest.mark.slow
def test_equal_spends_fit_to_the_last_digit(ledger, times):
    step = Step(WHOLE.mu / math.isqrt(times))
    for number in range(times):
        entry = spend(ledger, number, step)
    assert entry.cumulative == ledger.spent("survey") == Amount(1.0, 0.0)
    assert ledger.remaining("survey") == Amount(0.0, 5e-7)
    assert ledger.more("release 0") == 0
    with pytest.raises(
        BudgetExceeded, match=r"has epsilon=0 left of 1 .*: nothing was spent .*; nothing fits any more; create"
    ):
        spend(ledger, "more", Step(5e-324))


def test_ten_tenths_of_both_fit_and_no_more(ledger):
    tenth = Step(share_of_step(WHOLE, 0.1).mu, 5e-8)
    for number in range(10):
        spend(ledger, number, tenth)
        assert ledger.more("release 0") == 9 - number
    assert ledger.remaining("survey").delta == 0
    with pytest.raises(
        BudgetExceeded,
        match=r"and 0 of the 5e-07 that .*drawn; nothing fits any more; create a dataset",
    ):
        spend(ledger, "more", tenth)


def test_refusal_says_which_is_short_and_nothing_happens(ledger):
    spend(ledger, 0, Step(0.1, 4e-7))
    with pytest.raises(
        BudgetExceeded,
        match=r"1e-07 of the 5e-07.*fail with, too.*; the largest delta.*fits is 4.*: ask",
    ):
        spend(ledger, 1, Step(0.01, 2e-7), budget=(0.1, 9e-7))
    with pytest.raises(BudgetExceeded) as caught:
        spend(ledger, 2, Step(0.21), budget=(0.9, 1e-6))
    assert str(caught.value) == (
        "dataset survey has epsilon=0.8928 left of 1 at its delta=1e-06, too little for this release of epsilon=0.9, "
        "delta=1e-06: nothing was spent and nothing was drawn; the largest epsilon that still fits is 0.866 "
        "at this release's delta: ask for no more, or create a dataset with a larger total, "
        "which counts from 0: for the same people both add up"
    )
    assert len(ledger.history()) == 1
    assert ledger.find("release 1") is None


def test_refusal_of_what_is_dear_names_both_costs_and_the_remedy(ledger):
    """Unshuffled rows: ε = 0.1 by domination takes 30 % of the total, and a tenth by addition."""
    for number in range(3):
        spend(ledger, number)
    with pytest.raises(
        BudgetExceeded,
        match=r'this release takes 29\.9.*10.*created with accounting="basic"$',
    ):
        spend(ledger, 3)
    cheap = Step(0.2)
    with pytest.raises(BudgetExceeded) as caught:
        spend(ledger, 4, cheap, budget=(0.95, 1e-9))
    assert "accounting=" not in str(caught.value)


STEPS = st.builds(
    Step,
    st.one_of(st.sampled_from([0.0, 5e-324, 1e-200, WHOLE.mu / 2, WHOLE.mu / 4]), st.floats(0, WHOLE.mu)),
    st.sampled_from([0.0, 1e-7, 1.25e-7, 5e-8, 5e-324, 2.5e-7]),
)


def check_filter(currency, steps):
    """Against a model in fractions."""
    tally = Tally(DatasetTotal("survey", currency, GAUSSIAN.whole(Budget(1.0, 1e-6))))
    square, pool = Fraction(WHOLE.mu) ** 2, Fraction("5e-7")
    for step in steps:
        kept = StoredAmount.of(Budget(0.1), step)
        fits = step.square <= square and Fraction(repr(step.delta)) <= pool
        try:
            tally.refuse(kept, None)
        except BudgetExceeded:
            assert not fits
        else:
            assert fits
            tally.add(currency.exact(kept), None)
            square, pool = square - step.square, pool - Fraction(repr(step.delta))
    assert tally.left() == Sum(square, pool)


@settings(max_examples=examples(100))
@given(st.lists(STEPS, max_size=12))
@pytest.mark.slow
def test_spends_are_taken_as_exact_squares_say(steps):
    check_filter(GAUSSIAN, steps)


class AddsMu(GaussianCurrency):
    def exact(self, kept):
        return Sum(Fraction(float(kept.mu)), Fraction(kept.slack))


class AddsMuInFloats(GaussianCurrency):
    def exact(self, kept):
        return Sum(Fraction(float(kept.mu) ** 2), Fraction(kept.slack))


class ForgetsThePool(GaussianCurrency):
    def exact(self, kept):
        return Sum(Fraction(float(kept.mu)) ** 2, Fraction(0))


@pytest.mark.parametrize("wrong", [AddsMu(), AddsMuInFloats(), ForgetsThePool()], ids=lambda x: type(x).__name__)
def test_wrong_sums_are_caught(wrong):
    steps = [Step(WHOLE.mu / 2, 1.25e-7)] * 4 + [Step(1e-200), Step(0, 5e-324)]
    check_filter(GAUSSIAN, steps)
    with pytest.raises(AssertionError):
        check_filter(wrong, steps)


def test_what_was_spent_is_said_in_epsilon_at_the_datasets_delta(ledger):
    steps = [Step(0.05, 1e-8), Step(0.1, 2e-7), Step(0.0, 1e-9)]
    for number, step in enumerate(steps):
        entry = spend(ledger, number, step, budget=(0.2, 3e-7))
        mu = composed_steps(steps[: number + 1]).mu
        assert entry.cumulative.epsilon == pytest.approx(step_epsilon(Step(mu, 5e-7), 1e-6), rel=1e-9)
        assert (entry.step, entry.amount) == (step, Budget(0.2, 3e-7))
    assert ledger.find("release 1").step == steps[1]
    left = math.sqrt(WHOLE.square - composed_steps(steps).square)
    assert ledger.remaining("survey").epsilon == pytest.approx(step_epsilon(Step(left, 5e-7), 1e-6), rel=1e-9)
    assert ledger.remaining("survey").delta == 2.89e-7
    table = ledger.history()
    assert table["mu"].tolist() == [0.05, 0.1, 0.0]
    assert table["slack"].tolist() == [1e-8, 2e-7, 1e-9]
    assert table["cumulative_epsilon"].iloc[-1] == ledger.spent("survey").epsilon
    assert table["cumulative_delta"].tolist() == [1e-8, 2.1e-7, 2.11e-7]
    amounts = ledger.summary().loc["survey"].tolist()
    spent, rest = ledger.spent("survey"), ledger.remaining("survey")
    assert amounts == ["gaussian", "row", 1.0, spent.epsilon, rest.epsilon, 1e-6, spent.delta, rest.delta, 3]


def test_a_spend_without_a_step_is_dominated(ledger, tmp_path):
    assert spend(ledger, 0, budget=(0.1, 1e-9)).step == Step(pure_step(0.1).mu, 1e-9)
    basic = Ledger(tmp_path / "basic.sqlite")
    basic.create("survey", 1.0, 1e-6, accounting="basic")
    assert spend(basic, 0, budget=(0.1, 1e-9)).step == Step(pure_step(0.1).mu, 1e-9)
    assert spend(basic, 1, Step(99.0, 0.5), budget=(0.9, 1e-9)).cumulative == Amount(1.0, 2e-9)


@pytest.mark.parametrize("step", [0.1, (0.1, 1e-9), Budget(0.1), "0.1"])
def test_a_step_is_a_step(ledger, step):
    with pytest.raises(ParameterError, match=r"^step must be a.*delta, e\.g\. Step\(.*leave it out if un"):
        spend(ledger, 0, step)
    assert ledger.history().empty


def test_a_replay_may_not_cost_more_than_it_did(ledger):
    first = spend(ledger, 0, Step(0.1, 1e-8))
    assert spend(ledger, 0, Step(0.1, 1e-8)).replayed
    assert spend(ledger, 0, Step(0.09, 1e-8)).cumulative == first.cumulative
    for more in (Step(0.11, 1e-8), Step(0.1, 2e-8), None):
        with pytest.raises(LedgerError, match=r"release_id release 0 is.*or amount; every"):
            spend(ledger, 0, more)
    assert len(ledger.history()) == 1


def test_more_names_what_is_in_the_ledger(ledger):
    with pytest.raises(LedgerError, match=r"^release_id release 7 is not in .*; name one of its history$"):
        ledger.more("release 7")
    spend(ledger, 0, Step(0.0))
    assert ledger.more("release 0") is None


# A year


NIGHT = largest_step(Budget(0.1, 1e-9), 0.1)


def test_a_year_of_nights_is_said_both_ways():
    assert yearly(0.1, 1e-9, NIGHT) == (
        "one such release every night (epsilon=0.1, delta=1e-09 each) "
        "would add up to epsilon=36.5, delta=3.65e-07 in a year; in Gaussian "
        "accounting to epsilon=1.755, delta=3.65e-07"
    )
    year = Step(composed_steps([NIGHT] * 365).mu, 365 * NIGHT.delta)
    assert step_epsilon(year, 3.65e-7) == pytest.approx(1.755, abs=5e-4)
    dominating = dominated(Budget(0.1, 1e-9))  # its slack takes all of delta
    assert yearly(0.1, 1e-9, dominating) == yearly(0.1, 1e-9)
    assert yearly(1, 0.01, NIGHT) == yearly(1, 0.01)


def test_a_year_of_nights_fits_where_twenty_did(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for accounting in ("gaussian", "basic"):
        ledger.create(accounting, 2.0, 3.65e-7, accounting=accounting)
        spend(ledger, accounting, NIGHT, budget=(0.1, 1e-9), dataset=accounting)
    assert ledger.more("release gaussian") + 1 >= 365
    assert ledger.more("release basic") + 1 == 20


# Parts


@pytest.mark.parametrize("accounting", ["basic", "gaussian"])
@pytest.mark.parametrize("moving", [False, True])
def test_the_largest_part_counts_or_the_two_largest(tmp_path, accounting, moving):
    """A model over all a replaced row may touch: one part, or two different ones."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    parts = ("north", "south", "west")
    ledger.create("survey", 1.0, 1e-6, accounting=accounting, parts=parts, moving=moving)
    assert ledger.parts("survey") == parts
    gaussian = accounting == "gaussian"
    total = (WHOLE.square, Fraction("5e-7")) if gaussian else (Fraction(1), Fraction("1e-6"))
    entered = []
    asked = [(part, k) for k in (2, 5, 3, 8, 1) for part in ("north", "south", None, "west", "north")]
    for number, (part, k) in enumerate(asked):
        step, budget = Step(k / 60, k * 1e-8), (k / 40, k * 1e-8)
        loss = step.square if gaussian else Fraction(repr(budget[0]))
        added = [*entered, (part, loss, Fraction(repr(k * 1e-8)))]
        touched = itertools.combinations(parts, 2 if moving else 1)
        fits = all(
            sum(own[i] for own in added if own[0] is None or own[0] in some) <= total[i - 1]
            for some in touched
            for i in (1, 2)
        )
        if fits:
            spend(ledger, number, step, budget=budget, part=part)
            entered = added
        else:
            with pytest.raises(
                BudgetExceeded,
                match=r"^dataset survey(, part \w+,)? has .* was drawn; .*create a dataset with a larger total",
            ):
                spend(ledger, number, step, budget=budget, part=part)
    assert 5 < len(entered) < len(asked)
    assert len(ledger.history()) == len(entered)


def test_what_is_left_of_a_part(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for name, moving in (("fixed", False), ("moving", True)):
        ledger.create(name, 1.0, parts=["north", "south", "west"], moving=moving)
        for part, epsilon in (("north", 0.3), ("south", 0.2), (None, 0.1), ("west", 0.05)):
            spend(ledger, f"{name} {part}", budget=(epsilon, 0.0), dataset=name, part=part)
    assert ledger.spent("fixed").epsilon == 0.4
    assert [ledger.remaining("fixed", x).epsilon for x in ("north", "south", "west", None)] == [0.6, 0.7, 0.85, 0.6]
    assert ledger.spent("moving").epsilon == 0.6
    assert [ledger.remaining("moving", x).epsilon for x in ("north", "south", "west", None)] == [0.4, 0.4, 0.55, 0.4]
    assert ledger.history("fixed")["part"].tolist() == ["north", "south", "", "west"]
    assert ledger.find("release fixed None").part is None
    assert ledger.find("release fixed west").part == "west"


def test_a_part_is_one_of_the_datasets(ledger):
    ledger.create("parted", 1.0, parts=("north", "south"))
    with pytest.raises(ParameterError, match=r"^dataset parted has no.*south: name one"):
        spend(ledger, 0, dataset="parted", part="east")
    with pytest.raises(ParameterError, match=r"^part is not to.*leave part out,"):
        spend(ledger, 0, part="north")
    with pytest.raises(ParameterError, match=r"^part must be text of at least one character"):
        spend(ledger, 0, dataset="parted", part="")
    with pytest.raises(ParameterError, match=r"^dataset parted has no part east"):
        ledger.remaining("parted", "east")
    spend(ledger, 0, dataset="parted", part="north")
    for part in ("south", None):
        with pytest.raises(LedgerError, match=r"release 0 is recorded.*amount; every release"):
            spend(ledger, 0, dataset="parted", part=part)


def test_parts_are_names(ledger):
    for parts in ("north", 3, None, []):
        with pytest.raises(ParameterError, match=r"^parts must be names.*parts, e\.g\. parts="):
            ledger.create("parted", 1.0, parts=parts)
    with pytest.raises(ParameterError, match=r"^parts must be names.*parts, e\.g\. parts="):
        ledger.create("parted", 1.0, moving=True)
    with pytest.raises(ParameterError, match=r"^part must be text of at least one character"):
        ledger.create("parted", 1.0, parts=("north", ""))
    with pytest.raises(ParameterError, match=r"^parts must differ from.*of them once"):
        ledger.create("parted", 1.0, parts=("north", "north"))
    with pytest.raises(ParameterError, match=r"^moving must be True.*row may move"):
        ledger.create("parted", 1.0, parts=("north", "south"), moving="yes")
    assert ledger.datasets() == ["survey"]


# The first schema


FIRST = (
    "CREATE TABLE datasets (name TEXT NOT NULL PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, "
    "at TEXT NOT NULL)",
    "CREATE TABLE spends (position INTEGER PRIMARY KEY AUTOINCREMENT, "
    "dataset TEXT NOT NULL REFERENCES datasets (name), release_id TEXT NOT NULL UNIQUE, what TEXT NOT NULL, "
    "who TEXT NOT NULL, at TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL)",
    "CREATE INDEX amounts ON spends (dataset, epsilon, delta)",
    *(
        f"CREATE TRIGGER no_{verb}_of_{table} BEFORE {verb} ON {table} "
        "BEGIN SELECT raise(ABORT, 'what was spent stays spent'); END"
        for table in ("datasets", "spends")
        for verb in ("UPDATE", "DELETE")
    ),
    "PRAGMA application_id = 1685087820",
    "PRAGMA user_version = 1",
)
AT = "2026-01-01T00:00:00.000000+00:00"
OLD = [
    ("survey", "a", "release", "Ada", AT, "0.1", "1e-07"),
    ("other", "b", "mean of ages", "Bob", AT, "2000.0", "0.0"),
    ("survey", "c", "inference", "Ada", AT, "0.30000000000000004", "0.0"),
    ("survey", "d", "release", "Ada", AT, "0.1", "1e-07"),
    ("survey", "e", "release", "Ada", AT, "1e-300", "5e-324"),
]


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in FIRST:
            connection.execute(statement)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO datasets VALUES ('survey', '1.0', '1e-06', ?)", (AT,))
        connection.execute("INSERT INTO datasets VALUES ('other', '2000.5', '0.0', ?)", (AT,))
        connection.executemany("INSERT INTO spends VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", OLD)
    return path


def dump(path, query):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


old_ledger = pytest.mark.filterwarnings("ignore:.* was of an older version")

OLD_FIELDS = "SELECT dataset, release_id, what, who, at, epsilon, delta FROM spends ORDER BY position"


@old_ledger
def test_a_ledger_of_the_first_schema_loses_nothing(old, ledger):
    migrated = Ledger(old)
    assert migrated.remaining("survey") == Amount(0.49999999999999994, 7.999999999999999e-07)
    assert dump(old, OLD_FIELDS) == OLD
    assert dump(old, "SELECT name, epsilon, delta, at, accounting FROM datasets ORDER BY rowid") == [
        ("survey", "1.0", "1e-06", AT, "basic"),
        ("other", "2000.5", "0.0", AT, "basic"),
    ]
    assert dump(old, "PRAGMA user_version") == [(6,)]
    assert [migrated.find(row[1]).step for row in OLD] == [dominated(Budget(float(e), float(d))) for *_, e, d in OLD]
    assert migrated.history("survey")["release_id"].tolist() == ["a", "c", "d", "e"]
    assert dump(old, "PRAGMA integrity_check") == [("ok",)]
    # The same tables and triggers as a new one's.
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    assert dump(old, tables) == dump(ledger.path, tables)
    with (
        contextlib.closing(sqlite3.connect(old)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="what was spent stays spent"),
    ):
        connection.execute("UPDATE spends SET mu = '0.0'")


@old_ledger
def test_a_ledger_of_the_second_schema_gets_what_it_lacks(ledger):
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    new = dump(ledger.path, tables)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for table in ("datasets", "spends", "parts"):
            connection.execute(f"DROP TRIGGER no_REPLACE_of_{table}")
        connection.execute("ALTER TABLE datasets DROP COLUMN unit")
        connection.execute("DROP TABLE runs")
        connection.execute("DROP TABLE draws")
        connection.execute("PRAGMA user_version = 2")
    ledger.spend("survey", 0.1, 0.0, release_id="a")
    assert dump(ledger.path, tables) == new
    assert dump(ledger.path, "PRAGMA user_version") == [(6,)]


def test_a_ledger_that_has_units_is_migrated_in_silence(ledger):
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    new = dump(ledger.path, tables)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE runs")
        connection.execute("DROP TABLE draws")
        connection.execute("PRAGMA user_version = 4")
    ledger.spend("survey", 0.1, 0.0, release_id="a")
    assert dump(ledger.path, tables) == new
    assert dump(ledger.path, "PRAGMA user_version") == [(6,)]


@old_ledger
def test_a_migrated_ledger_goes_on(old):
    migrated = Ledger(old)
    assert migrated.spend("survey", 0.1, 1e-7, release_id="a").replayed
    migrated.spend("survey", 0.4, 1e-7, release_id="f")
    with pytest.raises(BudgetExceeded, match=r"^dataset survey has epsilon=0\.0999\d*, .* left of epsilon=1, delta"):
        migrated.spend("survey", 0.1, 0.0, release_id="g")
    migrated.create("new", 1.0, 1e-6)
    assert migrated.summary()["accounting"].tolist() == ["basic", "basic", "gaussian"]


def test_a_migration_that_fails_changes_nothing(old):
    with contextlib.closing(sqlite3.connect(old)) as connection:
        row = ("survey", "z", "release", "Ada", AT, "much", "0.0")
        connection.execute("INSERT INTO spends VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    before = dump(old, "SELECT * FROM sqlite_master"), dump(old, "SELECT * FROM spends")
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"old\.sqlite is damaged; restore a copy"):
            Ledger(old).spent("survey")
    assert (dump(old, "SELECT * FROM sqlite_master"), dump(old, "SELECT * FROM spends")) == before
    assert dump(old, "PRAGMA user_version") == [(1,)]


def test_a_migrated_ledger_adds_up_promises_for_a_row_and_says_so_once(old):
    with pytest.warns(
        DpframeWarning, match=r"^.*old\.sqlite was of an older version: its datasets .* for a row"
    ) as told:
        assert {str(Ledger(old).unit(name)) for name in ("survey", "other")} == {"row"}
    assert len(told) == 1
    with pytest.raises(ParameterError, match=r"^dataset survey adds up.*is for up"):
        Ledger(old).spend("survey", 0.1, 0.0, release_id="two", unit=2)
    assert dump(old, OLD_FIELDS) == OLD


@old_ledger
def test_many_migrate_one_ledger_at_once(old):
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        return Ledger(old).spend("survey", 0.01, 0.0, release_id=f"thread {number}").replayed

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(work, range(8)))
    assert len(dump(old, OLD_FIELDS)) == len(OLD) + 8


@pytest.mark.slow
def test_what_a_refused_release_is_said_to_leave_does_fit(tmp_path):
    frame = make_census(2_000, columns=["age", "sex"], random_state=3)
    spaces = {"age": (0, 120), "sex": ["F", "M"]}
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0, 1e-6)
    account = {"ledger": ledger, "dataset": "survey"}
    frame.dp.sanitize(0.7, 1e-7, spaces=spaces, **account)
    with pytest.raises(BudgetExceeded) as caught:
        frame.dp.sanitize(0.8, 1e-7, spaces=spaces, **account)
    fits = float(re.search(r"largest epsilon that still fits is (\S+) at this release's delta:", str(caught.value))[1])
    assert 0.2 < fits < 0.8
    with pytest.raises(BudgetExceeded):
        frame.dp.sanitize(fits * 1.05, 1e-7, spaces=spaces, **account)
    frame.dp.sanitize(fits, 1e-7, spaces=spaces, **account)
