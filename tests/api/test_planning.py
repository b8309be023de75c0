"""Check, spend, key, draw: one way in for tables of every kind."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import KEY

import dpframe as dpf
from dpframe.ledger.account import OpenAccount
from dpframe.release.budgets import ReleaseBudget
from dpframe.release.job import run_release_job
from dpframe.release.planning import Request
from dpframe.spaces.field import Field
from dpframe.tables.frames import wrap
from dpframe.tables.parquet_reader import ParquetInput
from dpframe.totals.counts import count_batches

TABLE = pa.table({"age": list(range(90)) * 20, "sex": ["F", "M"] * 900})
DECLARED = {"spaces": {"age": (0, 120), "sex": ["F", "M"]}}
HALF = {"spaces": {"age": (0, 120)}}


def kinds(tmp_path, table=TABLE):
    pq.write_table(table, tmp_path / "in.parquet")
    return [wrap(table), wrap(table.to_pandas()), ParquetInput.open(tmp_path / "in.parquet")]


def prepared(table, request, budget):
    """Return what there is to draw rows with, once it is paid for."""
    return run_release_job(table, request, budget, lambda _, ready: ready)


@dataclass
class Diary(ReleaseBudget):
    """Writes down the order of what is asked of it."""

    def __post_init__(self):
        self.pages = []

    def pay(self, table, what, cost, codes):
        self.pages.append((what, cost.budget))
        return super().pay(table, what, cost, codes)

    @property
    def key(self):
        self.pages.append("key")
        return KEY


@pytest.mark.parametrize("options", [DECLARED, HALF])
def test_the_key_is_asked_for_once_after_the_spend(tmp_path, options):
    plans = []
    for table in kinds(tmp_path):
        budget = Diary(None)
        ready = prepared(table, Request(1.0, 1e-6, options=options), budget)
        assert budget.pages == [("release", dpf.Budget(1.0, 1e-6)), "key"]
        assert list(ready.codes) == (["age", "sex"] if table.held else [])
        plans.append(ready.plan)
    # One key, one request: whatever kind the table is of, the same is inferred.
    assert plans[0] == plans[2]


@pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
def test_a_plan_alone_pays_for_inference_only(tmp_path):
    for table in kinds(tmp_path):
        budget = Diary(None)
        ready = prepared(table, Request(1.0, 1e-6, options=HALF, release=False), budget)
        assert budget.pages == [("inference", ready.plan.inferred.budget), "key"]
        assert ready.codes == {}
        budget = Diary(None)
        assert prepared(table, Request(1.0, 1e-6, options=DECLARED, release=False), budget).plan.inferred is None
        assert budget.pages == ["key"]


@pytest.mark.parametrize("options", [DECLARED, HALF])
def test_a_value_that_is_refused_costs_nothing(tmp_path, options):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("d", 3.0, 1e-3)
    table = TABLE.set_column(0, "age", pa.array([None, *TABLE["age"].to_pylist()[1:]]))
    for kind in kinds(tmp_path, table):
        with pytest.raises(dpf.ColumnError, match="column 'age' at row position 0: is null"):
            account = OpenAccount.of(ledger, "d")
            prepared(kind, Request(1.0, 1e-6, options=options), Diary(account))
    assert ledger.history().empty


@pytest.mark.parametrize(("column", "tag"), [("sex", "typo"), ("sex", "geometric"), ("age", "bitflip")])
def test_a_mechanism_that_fits_no_space_of_a_type_costs_nothing(tmp_path, column, tag):
    """Known by its name and the column's type, before any space is."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("d", 10.0, 1e-3)
    table = dpf.datasets.make_census(300, columns=["sex", "age"]).astype({"sex": "string"})
    with pytest.raises(dpf.ParameterError, match=rf"names none for column '{column}'; use one of .*randomized"):
        table.dp.sanitize(epsilon=1.0, delta=1e-6, mechanisms={column: tag}, ledger=ledger, dataset="d")
    assert ledger.history().empty


def test_measures_of_an_empty_table_are_charged_for_a_release(tmp_path):
    """No row hides in a table of none: what inference spends there is subtracted, as in known order."""
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("d", 10.0, 1e-3)
    table = dpf.datasets.make_census(300, columns=["sex", "age"]).iloc[:0]
    with pytest.warns(dpf.InferenceWarning, match="^the table has no rows"):
        safe = dpf.sanitize(table, epsilon=1.0, delta=1e-6, measure=["age"], ledger=ledger, dataset="d")
    assert len(safe) == 0
    assert len(ledger.history()) == 1


def test_a_key_that_is_none_costs_nothing(tmp_path):
    ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
    ledger.create("d", 3.0, 1e-3)
    with pytest.raises(dpf.ParameterError, match="key must be 32 bytes; take secrets"):
        dpf.sanitize(TABLE, epsilon=1.0, key=b"short", ledger=ledger, dataset="d", **DECLARED)
    assert ledger.history().empty


@dataclass
class Lines:
    """A format of its own: lines of text, read one batch at a time."""

    lines: list[str]
    held: ClassVar[bool] = False
    objects: ClassVar[bool] = False
    text: ClassVar[None] = None

    @property
    def names(self):
        return self.lines[0].split(",")

    @property
    def n(self):
        return len(self.lines) - 1

    def fields(self, names):
        return [Field(name, {"age": pa.int64(), "sex": pa.string()}[name], False) for name in names]

    def arrays(self, name):
        return (batch[name] for batch in self.batches([name]))

    def count(self, counters):
        count_batches(self.batches, counters)

    def batches(self, names):
        for start in range(1, len(self.lines), 700):
            rows = [line.split(",") for line in self.lines[start : start + 700]]
            columns = dict(zip(self.names, zip(*rows, strict=True), strict=True))
            types = {field.name: field.type for field in self.fields(names)}
            yield {name: pa.array(columns[name]).cast(types[name]) for name in names}

    def codes(self, spaces, nulls, inferred=()):
        for batch in self.batches(list(spaces)):
            for name, space in spaces.items():
                space.encode(batch[name], nulls=nulls)
        return {}


@pytest.mark.slow
@pytest.mark.parametrize("options", [DECLARED, HALF, {}])
def test_another_format_is_a_class_with_what_a_table_has(options):
    frame = TABLE.to_pandas()
    lines = Lines(frame.to_csv(index=False).split())
    required = TABLE.cast(pa.schema([pa.field(f.name, f.type, nullable=False) for f in TABLE.schema]))
    plans = [
        prepared(table, Request(1.0, 1e-6, options=options), ReleaseBudget(None, KEY)).plan
        for table in (lines, wrap(required))
    ]
    assert plans[0] == plans[1]
    assert plans[0].names == ("age", "sex")
