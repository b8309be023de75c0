"""The ledger: exact sums, no overdraw by any number of processes, nothing forgotten when one is killed."""

import contextlib
import copy
import functools
import math
import operator
import os
import pickle
import random
import sqlite3
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pandas as pd
import processes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from strategies import examples

import dpframe as dpf
from dpframe.accounting.gaussian_dp import Step, share_of_step
from dpframe.errors import BudgetExceeded, LedgerError, ParameterError
from dpframe.ledger import ledger as module
from dpframe.ledger.currencies import Amount, dominated, yearly
from dpframe.ledger.ledger import Ledger, as_ledger
from dpframe.ledger.sqlite import explained, transaction

NEW_SPEND = """
INSERT INTO spends (dataset, release_id, what, who, at, epsilon, delta, mu, slack, part)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", 1.0, 1e-6, accounting="basic")
    return made


@pytest.fixture
def gaussian(tmp_path):
    made = Ledger(tmp_path / "gaussian.sqlite")
    made.create("survey", 1.0, 1e-6)
    return made


def whole_of(ledger):
    """Return M and the pool of a dataset."""
    with transaction(Path(ledger.path), 1.0) as connection:
        mu, slack = connection.execute("SELECT mu, slack FROM datasets").fetchone()
    return Step(float(mu), float(slack))


def spend(ledger, number, epsilon=0.1, delta=0.0):
    return ledger.spend("survey", epsilon, delta, release_id=f"release {number}")


# Sums


def test_ten_tenths_fit_into_one_exactly(ledger):
    assert functools.reduce(operator.add, [0.1] * 10) != 1.0
    for number in range(10):
        entry = spend(ledger, number, 0.1, 1e-7)
    assert entry.cumulative == ledger.spent("survey") == Amount(1.0, 1e-6)
    assert ledger.remaining("survey") == Amount(0.0, 0.0)
    for epsilon, delta in ((5e-324, 0.0), (1e-300, 5e-324)):
        with pytest.raises(BudgetExceeded):
            spend(ledger, "more", epsilon, delta)


@pytest.mark.parametrize("total, parts", [(0.3, [0.1, 0.2]), (0.3, [0.1] * 3), (1e-6, [1e-7] * 10), (0.7, [0.1] * 7)])
def test_what_is_written_in_decimals_adds_up_in_decimals(tmp_path, total, parts):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", total)
    for number, part in enumerate(parts):
        spend(ledger, number, part)
    assert ledger.spent("survey").epsilon == total
    with pytest.raises(BudgetExceeded):
        spend(ledger, "more", 5e-324)


def test_delta_alone_overdraws(ledger):
    spend(ledger, 0, 0.1, 9e-7)
    with pytest.raises(BudgetExceeded, match=r"has epsilon=0\.9, delta=1e-07 left .* delta=2e-07 was asked"):
        spend(ledger, 1, 0.1, 2e-7)
    assert ledger.spent("survey") == Amount(0.1, 9e-7)


def test_a_total_without_delta_takes_pure_releases_only(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0)
    with pytest.raises(BudgetExceeded):
        spend(ledger, 0, 0.1, 5e-324)
    assert spend(ledger, 1).cumulative == Amount(0.1, 0.0)


AMOUNTS = st.one_of(
    st.integers(1, 40).map(lambda k: k / 100),
    st.floats(5e-324, 2.0, allow_subnormal=True),
    st.sampled_from([0.1, 1 / 3, 1e-17, 5e-324, 1e300, 0.30000000000000004]),
)
DELTAS = st.sampled_from([0.0, 0.0, 1e-7, 1 / 3e7, 5e-324])


@settings(max_examples=examples(25))
@given(total=AMOUNTS, asked=st.lists(st.tuples(AMOUNTS, DELTAS), max_size=8))
@pytest.mark.slow
def test_spends_are_taken_as_exact_decimals_say(total, asked):
    """Against a model in fractions of the decimals that were written."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"{folder}/ledger.sqlite")
        ledger.create("survey", total, 1e-6, accounting="basic")
        left = [Fraction(repr(total)), Fraction("1e-6")]
        for number, amounts in enumerate(asked):
            exact = [Fraction(repr(x)) for x in amounts]
            if all(a <= b for a, b in zip(exact, left, strict=True)):
                spend(ledger, number, *amounts)
                left = [b - a for a, b in zip(exact, left, strict=True)]
            else:
                with pytest.raises(BudgetExceeded):
                    spend(ledger, number, *amounts)
        remaining, spent = ledger.remaining("survey"), ledger.spent("survey")
        # Rounded to the side of the ledger, and to the nearest float there.
        assert Fraction(repr(remaining.epsilon)) <= left[0]
        assert Fraction(repr(spent.epsilon)) >= Fraction(repr(total)) - left[0]
        assert remaining.epsilon == pytest.approx(float(left[0]), rel=1e-15, abs=5e-324)
        if remaining.epsilon > 0:  # all of it can be spent
            spend(ledger, "rest", remaining.epsilon, remaining.delta)


def test_many_equal_spends_are_counted_not_added(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1e4)
    with transaction(Path(ledger.path), 1.0, write=True) as connection:
        rows = (
            ("survey", f"r{i}", "release", "me", "2026-01-01T00:00:00+00:00", "0.1", "0.0", "0.2", "0.0", None)
            for i in range(50_000)
        )
        connection.executemany(NEW_SPEND, rows)
    assert spend(ledger, "one more").cumulative == Amount(5000.1, 0.0)


def test_yearly():
    assert (
        yearly(0.1)
        == "one such release every night (epsilon=0.1, delta=0 each) would add up to epsilon=36.5, delta=0 in a year"
    )
    assert yearly(1, 0.01).endswith("epsilon=365, delta=3.65 in a year, which promises nothing")
    assert "epsilon=inf" in yearly(1e308)
    with pytest.raises(ParameterError, match="epsilon must be finite"):
        yearly(0)


# Replays


def test_a_replay_costs_nothing_and_says_so(ledger):
    first, other = spend(ledger, 1, 0.6, 1e-7), spend(ledger, 2, 0.3)
    again = spend(ledger, 1, 0.6, 1e-7)
    assert (first.replayed, other.replayed, again.replayed) == (False, False, True)
    assert (again.when, again.who, again.amount, again.cumulative) == (
        first.when,
        first.who,
        first.amount,
        Amount(0.6, 1e-7),
    )
    assert ledger.spent("survey") == Amount(0.9, 1e-7)
    assert ledger.find("release 1") == again
    assert ledger.find("release 9") is None


def test_a_replay_needs_nothing_left(ledger):
    spend(ledger, 1, 1.0, 1e-6)
    assert spend(ledger, 1, 1.0, 1e-6).replayed


def test_a_release_id_stands_for_one_dataset_and_amount(ledger):
    ledger.create("other", 1.0)
    spend(ledger, 1, 0.1)
    for dataset, epsilon, delta in (("survey", 0.2, 0.0), ("survey", 0.1, 1e-9), ("other", 0.1, 0.0)):
        with pytest.raises(LedgerError, match=r"release_id release 1 is.*dataset or amount"):
            ledger.spend(dataset, epsilon, delta, release_id="release 1")
    assert (ledger.spent("survey"), ledger.spent("other")) == (Amount(0.1, 0.0), Amount(0.0, 0.0))


# What it keeps


def test_it_keeps_who_when_what_and_what_it_came_to(ledger):
    ledger.create("other", 5)
    before = datetime.now(UTC)
    ledger.spend("survey", 0.1, 1e-9, release_id="a")
    ledger.spend("other", 2, 0, release_id="b", what="mean of ages", who="Ada")
    ledger.spend("survey", 0.2, 1e-9, release_id="c")
    table = ledger.history()
    assert list(table["dataset"]) == ["survey", "other", "survey"]
    assert list(table["release_id"]) == ["a", "b", "c"]
    assert list(table["what"]) == ["release", "mean of ages", "release"]
    assert table["who"][1] == "Ada"
    assert table["who"][0]
    assert list(table["epsilon"]) == [0.1, 2.0, 0.2]
    assert list(table["cumulative_epsilon"]) == [0.1, 2.0, 0.3]
    assert list(table["cumulative_delta"]) == [1e-9, 0.0, 2e-9]
    assert str(table["when"].dtype) == "datetime64[us, UTC]"
    assert table["when"].is_monotonic_increasing
    assert table["when"].between(before, datetime.now(UTC)).all()
    pd.testing.assert_frame_equal(ledger.history("survey"), table.iloc[[0, 2]].reset_index(drop=True))
    with pytest.raises(LedgerError, match="dataset third is not in"):
        ledger.history("third")


def test_summary(ledger):
    ledger.create("other", 5)
    spend(ledger, 0, 0.25, 1e-7)
    table = ledger.summary()
    assert table.loc["survey"].tolist() == ["basic", "row", 1.0, 0.25, 0.75, 1e-6, 1e-7, 9e-7, 1]
    assert table.loc["other"].tolist() == ["basic", "row", 5.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0]
    assert ledger.datasets() == ["survey", "other"]
    assert ledger.total("survey") == dpf.Budget(1.0, 1e-6)


@pytest.mark.parametrize(
    "unit, words",
    [("row", "a row"), ("10 rows", "up to 10 rows of a person"), ("person:patient", "a person, by column 'patient'")],
)
def test_a_dataset_adds_up_promises_of_its_own_unit_alone(ledger, unit, words):
    ledger.create("clinic", 1.0, unit=unit)
    assert str(ledger.unit("clinic")) == unit == ledger.summary().loc["clinic", "unit"]
    ledger.spend("clinic", 0.1, 0.0, release_id="a", unit=unit)
    for other in {"row", 2, "10 rows", "person:patient", "person:visit"} - {unit}:
        with pytest.raises(ParameterError, match=rf"^dataset clinic adds up promises for {words}, and this one is for"):
            ledger.spend("clinic", 0.1, 0.0, release_id="b", unit=other)
    assert ledger.summary().loc["clinic", "releases"] == 1


@pytest.mark.parametrize("unit", [None, 0, True, 1.5, "", "rows", "0 rows", "ten rows", "person:", "² rows"])
def test_what_is_no_unit_is_refused(ledger, unit):
    with pytest.raises(ParameterError, match=r'^unit must be "row", "10 rows" .* or "person:COLUMN"'):
        ledger.create("clinic", 1.0, unit=unit)
    with pytest.raises(ParameterError, match=r'^unit must be "row"'):
        ledger.spend("survey", 0.1, 0.0, release_id="a", unit=unit)


def test_empty_tables_have_their_dtypes(ledger):
    before = ledger.history()
    spend(ledger, 0)
    assert before.empty
    assert (ledger.history().dtypes == before.dtypes).all()


def test_what_was_spent_cannot_be_changed_by_hand(ledger):
    spend(ledger, 0)
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        for statement in (
            "DELETE FROM spends",
            "UPDATE spends SET epsilon = '0.0'",
            "UPDATE datasets SET epsilon = '9.0'",
            "DELETE FROM datasets",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="what was spent stays spent"):
                connection.execute(statement)


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_what_was_spent_cannot_be_replaced(ledger, recursive):
    """SQLite deletes the row that a REPLACE meets, and by default without a trigger."""
    spend(ledger, 0)
    ledger.create("clinic", 1.0, parts=["north", "south"])
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        columns = ", ".join(row[1] for row in connection.execute("PRAGMA table_info(spends)"))
        less = columns.replace("epsilon", "'0.0'")
        other = less.replace("position", "position + 1")
        name = less.replace("release_id", "'another'")
        for statement in (
            f"INSERT OR REPLACE INTO spends ({columns}) SELECT {less} FROM spends",
            f"INSERT OR REPLACE INTO spends ({columns}) SELECT {other} FROM spends",
            f"REPLACE INTO spends ({columns}) SELECT {name} FROM spends",
            "REPLACE INTO datasets SELECT name, '9.0', delta, at, accounting, mu, slack, moving, unit FROM datasets",
            "INSERT OR REPLACE INTO parts SELECT dataset, name FROM parts",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="what was spent stays spent"):
                connection.execute(statement)
        connection.commit()
    assert ledger.history()["epsilon"].tolist() == [0.1]


def test_total_stands(ledger):
    with pytest.raises(LedgerError, match=r"dataset survey is in .* already, and its total cannot change"):
        ledger.create("survey", 9.0)
    assert ledger.total("survey").epsilon == 1.0


@pytest.mark.parametrize("name", ["Survey", "survey ", "SURVEY", "\uff53urvey"])
def test_a_name_that_reads_like_another_is_no_second_total(ledger, name):
    with pytest.raises(LedgerError, match=r"dataset survey is in .* already, and (.* reads like it|its total)"):
        ledger.create(name, 9.0)
    ledger.create("caf\u00e9", 1.0)
    with pytest.raises(LedgerError, match=r"reads like it but.*encoded: spend from"):
        ledger.create("cafe\u0301", 1.0)
    assert ledger.datasets() == ["survey", "caf\u00e9"]


@pytest.mark.parametrize("name", ["é", "e\u0301", " a b ", "a\nb", "人口", "'; DROP TABLE spends; --", "𝒜" * 100])
def test_any_text_is_a_name(ledger, name):
    ledger.create(name, 2.0)
    ledger.spend(name, 0.5, 0.0, release_id=name, what=name, who=name)
    assert ledger.remaining(name).epsilon == 1.5
    assert ledger.history(name)["what"].tolist() == [name]
    assert ledger.datasets() == ["survey", name]


BAD_NAMES = ["", " ", "a\0b", "\ud800", b"survey", 3, None]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_names_are_text(ledger, name):
    with pytest.raises(ParameterError, match="dataset must be text of at least one character"):
        ledger.create(name, 1.0)
    for ask in (ledger.remaining, ledger.spent, ledger.total):
        with pytest.raises(ParameterError, match="dataset must be text"):
            ask(name)
    with pytest.raises(ParameterError, match="dataset must be text"):
        ledger.spend(name, 0.1, 0.0, release_id="a")
    with pytest.raises(ParameterError, match="release_id must be text"):
        ledger.spend("survey", 0.1, 0.0, release_id=name)
    with pytest.raises(ParameterError, match="what must be text"):
        ledger.spend("survey", 0.1, 0.0, release_id="a", what=name)
    if name is not None:
        with pytest.raises(ParameterError, match="who must be text"):
            ledger.spend("survey", 0.1, 0.0, release_id="a", who=name)
    assert ledger.history().empty


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), True, "1", None])
def test_epsilon_is_checked(ledger, epsilon):
    with pytest.raises(ParameterError, match="epsilon must be"):
        ledger.spend("survey", epsilon, 0.0, release_id="a")
    with pytest.raises(ParameterError, match="epsilon must be"):
        ledger.create("other", epsilon)
    assert ledger.datasets() == ["survey"]


@pytest.mark.parametrize("delta", [-1e-9, 1, float("nan"), "0", None])
def test_delta_is_checked(ledger, delta):
    with pytest.raises(ParameterError, match="delta must"):
        ledger.spend("survey", 0.1, delta, release_id="a")
    with pytest.raises(ParameterError, match="delta must"):
        ledger.create("other", 1.0, delta)


def test_overdraw_says_what_is_left_and_that_nothing_happened(ledger):
    spend(ledger, 0, 0.7)
    with pytest.raises(BudgetExceeded) as caught:
        spend(ledger, 1, 0.4)
    assert str(caught.value) == (
        "dataset survey has epsilon=0.3, delta=1e-06 left of epsilon=1, delta=1e-06, and epsilon=0.4, delta=0 was "
        "asked: nothing was spent and nothing was drawn; ask for no more than is left, or create a "
        "dataset with a larger total, which counts from 0: for the same people both add up"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert ledger.spent("survey").epsilon == 0.7
    assert ledger.find("release 1") is None


def test_unknown_dataset_says_which_there_are(ledger):
    ledger.create("line\nbreak", 1.0)
    with pytest.raises(LedgerError) as caught:
        ledger.spend("surwey", 0.1, 0.0, release_id="a")
    assert "dataset surwey is not in" in str(caught.value)
    assert r"which holds survey, 'line\nbreak'; make it with: dpframe ledger create " in str(caught.value)


# A frozen path


def test_it_is_a_path_and_no_connection(ledger):
    spend(ledger, 0)
    for twin in (
        pickle.loads(pickle.dumps(ledger)),
        copy.copy(ledger),
        copy.deepcopy(ledger),
        clone(ledger, safe=False),
    ):
        assert twin == ledger
        assert twin.spent("survey").epsilon == 0.1
    assert vars(ledger).keys() == {"path", "timeout"}
    assert hash(Ledger("a")) == hash(Ledger(Path("a"), timeout=3))
    with pytest.raises(AttributeError):
        ledger.path = "b"
    assert as_ledger(ledger) is ledger
    assert as_ledger(ledger.path) == as_ledger(Path(ledger.path)) == ledger


@pytest.mark.parametrize("path", ["", None, 3, b"ledger", "a\0b"])
def test_path_is_checked(path):
    with pytest.raises(ParameterError, match="ledger must be the path of a file"):
        Ledger(path)


def test_names_of_files_that_a_uri_would_take_apart(tmp_path):
    ledger = Ledger(tmp_path / "a %41?mode=memory#b é.sqlite")
    ledger.create("survey", 1.0)
    spend(ledger, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["a %41?mode=memory#b é.sqlite"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_owner_alone_may_read(tmp_path, mask):
    before = os.umask(mask)
    try:
        ledger = Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", 1.0)
        with transaction(Path(ledger.path), 1.0, write=True) as connection:
            connection.execute("INSERT INTO datasets (name, epsilon, delta, at) VALUES ('b', '1.0', '0.0', '')")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal"], 0o600)


def test_commits_are_durable_and_do_not_hold_up_readers(ledger):
    with transaction(Path(ledger.path), 1.0, write=True) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone()[0] >= 2  # FULL
        assert Ledger(ledger.path, timeout=0.001).spent("survey").epsilon == 0


# Many processes


def raced(ledger, step=None):
    """Let sixteen processes spend at once; return what each answered."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(processes.child(processes.spend_once, ledger, i, step)) for i in range(16)]
        for _, connection in started:
            connection.send("go")
        return [connection.recv() for _, connection in started]


def test_sixteen_processes_share_ten_tenths(ledger):
    answers = raced(ledger)
    assert sorted(answer for answer in answers if isinstance(answer, float)) == [i / 10 for i in range(1, 11)]
    assert [type(answer) for answer in answers].count(BudgetExceeded) == 6
    assert ledger.remaining("survey").epsilon == 0
    assert len(ledger.history()) == 10


@pytest.mark.slow
def test_sixteen_processes_share_ten_tenths_of_mu_squared(gaussian):
    answers = raced(gaussian, share_of_step(whole_of(gaussian), 0.1))
    sums = sorted(answer for answer in answers if isinstance(answer, float))
    assert len({*sums}) == 10
    assert sums == gaussian.history()["cumulative_epsilon"].tolist()
    assert sums[-1] == pytest.approx(1.0, rel=1e-12)
    assert [type(answer) for answer in answers].count(BudgetExceeded) == 6
    assert gaussian.remaining("survey").epsilon < 1e-6


def test_processes_make_one_ledger_together(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(processes.child(processes.create_one, ledger, i)) for i in range(6)]
        for _, connection in started:
            connection.send("go")
        assert [connection.recv() for _, connection in started] == ["done"] * 6
    assert sorted(ledger.datasets()) == [f"survey {i}" for i in range(6)]


def test_threads_share_a_ledger(tmp_path):
    ledger, barrier = Ledger(tmp_path / "ledger.sqlite"), threading.Barrier(8)

    def work(number):
        barrier.wait()
        ledger.create(f"survey {number}", 1.0)
        for i in range(5):
            ledger.spend(f"survey {number}", 0.2, 0.0, release_id=f"{number} {i}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (ledger.summary()["left_epsilon"] == 0).all()
    assert len(ledger.history()) == 40


@pytest.mark.parametrize("accounting", ["ledger", "gaussian"])
def test_a_killed_process_leaves_a_whole_ledger_and_hides_nothing(accounting, request):
    """Killed while it spends, at whatever it does after a drawn number of spends; two spend at a time."""
    ledger = request.getfixturevalue(accounting)
    chance, reported = random.Random(7), set()
    for round_ in range(8):
        with (
            processes.child(processes.spend_forever, ledger, f"{round_} a") as (one, its),
            processes.child(processes.spend_forever, ledger, f"{round_} b") as (two, others),
        ):
            its.send("go"), others.send("go")
            reported |= {its.recv() for _ in range(chance.randrange(1, 12))}
            one.kill()
            reported |= set(processes.received(its))
            reported.add(others.recv())
            two.kill()
            reported |= set(processes.received(others))
        recorded = set(ledger.history()["release_id"])
        assert reported <= recorded
        assert len(recorded - reported) <= 2 * (round_ + 1)  # recorded, and killed before it said so
        with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if accounting == "ledger":
        assert Fraction(repr(ledger.spent("survey").epsilon)) == len(recorded) * Fraction("1e-6")
    else:
        night = whole_of(ledger).square / dominated(dpf.Budget(1e-6)).square
        assert ledger.more(recorded.pop()) == math.floor(night) - len(recorded) - 1


# One clear line


def refusals(ledger):
    """Every method that opens the file."""
    return [
        lambda: ledger.spend("survey", 0.1, 0.0, release_id="a"),
        lambda: ledger.remaining("survey"),
        lambda: ledger.spent("survey"),
        lambda: ledger.total("survey"),
        lambda: ledger.find("a"),
        ledger.datasets,
        ledger.history,
        ledger.summary,
    ]


def refused(ledger, match):
    for ask in refusals(ledger):
        with pytest.raises(LedgerError, match=match) as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_missing(tmp_path):
    ledger = Ledger(tmp_path / "no ledger")
    refused(ledger, "no ledger does not exist; make it with: dpframe ledger create '.*no ledger' --dataset NAME")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerError, match="cannot be made: No such file or directory"):
        Ledger(tmp_path / "no" / "ledger").create("survey", 1.0)


def test_empty_file_is_refused_and_filled(tmp_path):
    """A process that is killed while it makes a ledger may leave an empty file."""
    path = tmp_path / "ledger"
    path.touch()
    refused(Ledger(path), "ledger is empty; make it with")
    Ledger(path).create("survey", 1.0)
    assert Ledger(path).datasets() == ["survey"]


def test_no_ledger(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("word " * 1000)
    refused(Ledger(path), "notes.txt is no ledger; name another file")
    with pytest.raises(LedgerError, match="is no ledger"):
        Ledger(path).create("survey", 1.0)
    assert path.read_text() == "word " * 1000
    refused(Ledger(tmp_path), "is not a regular file")


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_ledger_of_two_names_is_not_overdrawn(ledger, tmp_path, link):
    """SQLite's log goes by the name: by a hard link a spend was not seen while another process read the ledger."""
    other = Ledger(tmp_path / "other.sqlite")
    with transaction(Path(ledger.path), 1.0) as reading:
        reading.execute("SELECT count(*) FROM spends").fetchone()
        ledger.spend("survey", 0.6, 0.0, release_id="by the one")
        link(ledger.path, other.path)
        with pytest.raises((LedgerError, BudgetExceeded)):
            other.spend("survey", 0.6, 0.0, release_id="by the other")
    if link is os.link:
        for refusing in (ledger, other):
            refused(refusing, "has a second name, a hard link")
        Path(other.path).unlink()
    assert ledger.spent("survey").epsilon == 0.6


def test_a_ledger_that_is_mounted_without_its_folder(ledger, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == Path(ledger.path))
    refused(ledger, "is mounted without its folder")


def test_another_kind_of_database(tmp_path):
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE datasets (name)")
    before = path.read_bytes()
    refused(Ledger(path), "other.sqlite is no ledger; name another file")
    with pytest.raises(LedgerError, match="is no ledger"):
        Ledger(path).create("survey", 1.0)
    assert path.read_bytes() == before


def test_newer_schema(ledger):
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    refused(ledger, "has schema 7, this version reads up to 6; upgrade dpframe")
    with pytest.raises(LedgerError, match="upgrade dpframe"):
        ledger.create("other", 1.0)


def test_damaged(ledger):
    spend(ledger, 0)
    path = Path(ledger.path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(LedgerError, match="is damaged; restore a copy"):
        spend(ledger, 1)
    path.write_bytes(whole[:5000])
    with pytest.raises(LedgerError, match="is damaged; restore a copy"):
        spend(ledger, 1)


def test_amounts_that_are_no_numbers(ledger):
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("INSERT INTO datasets (name, epsilon, delta, at) VALUES ('b', 'much', '0', '')")
        connection.execute("INSERT INTO datasets VALUES ('c', '1.0', '1e-6', '', 'silver', '', '', 0, 'row')")
        connection.execute("INSERT INTO datasets VALUES ('d', '1.0', '1e-6', '', 'basic', '', '', 0, 'dozen')")
        connection.commit()
    for name, ask in {"b": ledger.remaining, "c": ledger.spent, "d": ledger.unit}.items():
        with pytest.raises(LedgerError, match="is damaged"):
            ask(name)


def test_locked(ledger):
    hurried = Ledger(ledger.path, timeout=0.01)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"ledger.sqlite is locked: another.*writing to it"):
            spend(hurried, 0)
        assert hurried.remaining("survey").epsilon == 1.0
    assert spend(hurried, 0).cumulative.epsilon == 0.1


def test_full_disk(ledger):
    """SQLite's own error, from its own limit on the size of a file."""
    with (
        pytest.raises(LedgerError, match=r"ledger.sqlite cannot be written:.*free some space"),
        explained(Path(ledger.path)),
        contextlib.closing(sqlite3.connect(ledger.path)) as connection,
    ):
        connection.execute("PRAGMA max_page_count = 12")
        for number in range(1000):
            row = ("survey", f"{number}", "long " * 100, "", "", "0.1", "0.0", "0.2", "0.0", None)
            connection.execute(NEW_SPEND, row)


@pytest.mark.parametrize("size", [64 << 10, 32 << 10, 1 << 10])
def test_files_that_may_not_grow(ledger, size):
    with processes.child(processes.spend_on_a_small_disk, ledger, size) as (_, connection):
        connection.send("go")
        *done, error = processes.received(connection)
    assert error.startswith(f"{ledger.path} cannot be read or written (input/output error); check the disk")
    recorded = set(ledger.history()["release_id"])
    assert set(done) <= recorded
    spend(ledger, "afterwards")


@pytest.mark.parametrize("file_mode, folder_mode", [(0o444, 0o555), (0o444, 0o777), (0o666, 0o555), (0o000, 0o777)])
@pytest.mark.posix
def test_read_only(file_mode, folder_mode):
    with processes.open_folder() as folder:
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.create("survey", 1.0)
        (folder / "ledger.sqlite").chmod(file_mode)
        folder.chmod(folder_mode)
        with processes.nobody():
            with pytest.raises(LedgerError, match=r"cannot be opened for.*read and write"):
                spend(ledger, 0)
            if folder_mode == 0o555:
                with pytest.raises(LedgerError, match="cannot be made: Permission denied"):
                    Ledger(folder / "new.sqlite").create("survey", 1.0)
        (folder / "ledger.sqlite").chmod(0o600)
        folder.chmod(0o755)
        assert ledger.spent("survey").epsilon == 0


@pytest.mark.posix
def test_a_folder_that_may_not_be_entered():
    with processes.open_folder() as folder:
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.create("survey", 1.0)
        folder.chmod(0o000)
        with processes.nobody():
            refused(ledger, r"ledger.sqlite cannot be opened: Permission denied")


def test_a_first_release_of_the_whole_promise_has_the_dataset_for_itself(tmp_path):
    book = Ledger(tmp_path / "ledger.sqlite")
    for name in ("one", "two"):
        book.create(name, 1.0, 1e-6)
    dear = Step(1.3, 1e-6)  # rows in known order: far beyond the total's μ, but (1, 1e-6)-private
    book.spend("one", 1.0, 1e-6, release_id="all", step=dear)
    assert book.remaining("one").epsilon == 0.0
    with pytest.raises(BudgetExceeded, match="nothing was spent and nothing was drawn"):
        book.spend("one", 1e-3, 1e-9, release_id="more", step=Step(1e-4, 1e-12))
    # Not the second one: what the first gave may have decided that it is asked.
    book.spend("two", 0.01, 1e-9, release_id="first", step=Step(1e-3, 1e-10))
    with pytest.raises(BudgetExceeded, match="the largest epsilon that still fits is"):
        book.spend("two", 0.5, 1e-7, release_id="second", step=dear)
    with pytest.raises(BudgetExceeded, match="the largest epsilon that still fits is"):
        book.create("three", 1.0, 1e-6)
        book.spend("three", 1.0, 2e-6, release_id="too much", step=dear)


def test_a_clock_that_jumps_back(monkeypatch, tmp_path):
    """What was spent is counted by place, not by time; the history keeps the order in which it was spent."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create("survey", 1.0)
    times = iter([timedelta(0), timedelta(days=-400), timedelta(days=9), timedelta(days=-2_000)])

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 3, 1, tzinfo=UTC) + next(times)

    monkeypatch.setattr(module, "datetime", Clock)
    entries = [ledger.spend("survey", 0.25, 0.0, release_id=f"night {i}") for i in range(4)]
    assert [entry.cumulative.epsilon for entry in entries] == [0.25, 0.5, 0.75, 1.0]
    table = ledger.history("survey")
    assert table["release_id"].tolist() == [f"night {i}" for i in range(4)]
    assert table["cumulative_epsilon"].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert not table["when"].is_monotonic_increasing
    with pytest.raises(BudgetExceeded):
        ledger.spend("survey", 0.25, 0.0, release_id="night 4")
    replayed = ledger.spend("survey", 0.25, 0.0, release_id="night 1")
    assert replayed.replayed
    assert replayed.cumulative.epsilon == 0.5
