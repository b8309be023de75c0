import os
import traceback
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from signatures import check_signature
from tables import KEY, ROWS, SPACES, people, plan_of, same, write_files

import dpframe as dpf
from dpframe.engines import job
from dpframe.release import budgets
from dpframe.tables import persons

dd = pytest.importorskip("dask.dataframe", reason="pip install 'dpframe[dask]'")
engine = pytest.importorskip("dpframe.engines.dask", reason="pip install 'dpframe[dask]'")
dask = pytest.importorskip("dask")
cloudpickle = pytest.importorskip("cloudpickle")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def many_buckets(monkeypatch):
    monkeypatch.setattr(job, "WORKER_BUCKET_ROWS", 700)


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.fixture(scope="module")
def flat(table):
    """The same without lists, which Dask frames made from pandas take for text."""
    return table.drop(columns="hobbies")


@pytest.fixture(scope="module")
def plan(flat):
    return plan_of(flat, spaces={name: space for name, space in SPACES.items() if name != "hobbies"})


@pytest.fixture(scope="module")
def full_plan(table):
    return plan_of(table)


@pytest.fixture(scope="module")
def expected(flat, plan):
    return dpf.sanitize(flat, plan=plan, key=KEY)


def test_several_tables_are_refused(flat):
    frame = dd.from_pandas(flat.assign(person=np.arange(ROWS)), npartitions=2)
    tables, keys = {"people": flat.assign(person=np.arange(ROWS)), "visits": frame}, {"visits": {"person": "people"}}
    with pytest.raises(dpf.ParameterError, match="table 'visits' is of Dask, which cannot link tables; write Parquet"):
        dpf.sanitize(tables, epsilon=1, keys=keys, contributions=1)


class TestSameAsPandas:
    @pytest.mark.parametrize("parts", [1, 7])
    def test_whatever_the_partitions(self, flat, plan, expected, parts):
        safe = engine.sanitize(dd.from_pandas(flat, npartitions=parts, sort=False), plan, key=KEY)
        same(safe.compute(), expected)
        assert safe.npartitions == 8
        assert safe.compute().index.equals(pd.RangeIndex(ROWS, name="shuffled"))
        assert safe.divisions[0] == 0
        assert safe.divisions[-1] == ROWS - 1

    def test_two_actions_and_another_scheduler(self, flat, plan, expected):
        safe = engine.sanitize(dd.from_pandas(flat, npartitions=3), plan, key=KEY)
        with dask.config.set(scheduler="synchronous"):
            assert safe["age"].sum().compute() == expected["age"].sum()
        same(safe.partitions[2].compute(), safe.compute().loc[safe.divisions[2] : safe.divisions[3] - 1])
        fresh = engine.sanitize(dd.from_pandas(flat, npartitions=3), plan)
        pd.testing.assert_frame_equal(fresh.compute(), fresh.compute())
        assert (fresh["age"].compute() != expected["age"]).mean() > 0.2

    @pytest.mark.parametrize("options", [{"sample": 900}, {"shuffle": False}, {"sample": 900, "shuffle": False}])
    @pytest.mark.filterwarnings("ignore:.*keeps its order")
    def test_samples_and_kept_orders(self, flat, plan, options):
        plan = plan_of(flat, spaces=plan.spaces, **options)
        safe = engine.sanitize(dd.from_pandas(flat, npartitions=4, sort=False), plan, key=KEY).compute()
        same(safe, dpf.sanitize(flat, plan=plan, key=KEY))

    def test_kept_orders_that_tell_of_rows(self, flat, plan, tmp_path):
        plan = plan_of(flat, spaces=plan.spaces, shuffle=False)
        rows = flat.sort_values("age", ignore_index=True)
        with pytest.warns(dpf.OrderLeakWarning, match=r"the input is sorted.*its order: positions"):
            engine.sanitize(dd.from_pandas(rows, npartitions=4, sort=False), plan)
        (tmp_path / "in" / "sex=F").mkdir(parents=True)
        flat[:100].drop(columns="sex").to_parquet(tmp_path / "in" / "sex=F" / "part.parquet")
        with pytest.warns(dpf.OrderLeakWarning, match=r"the input is partitioned.*keeps its order"):
            engine.sanitize(tmp_path / "in", plan_of(flat[:100], spaces=plan.spaces, shuffle=False))

    def test_columns_passed_through_and_dropped(self, flat):
        spaces = {"age": (0, 120), "income": SPACES["income"]}
        plan = plan_of(flat, spaces=spaces, passthrough=["sex", "occupation"], drop=["education"])
        safe = engine.sanitize(dd.from_pandas(flat, npartitions=4, sort=False), plan, key=KEY)
        same(safe.compute(), dpf.sanitize(flat, plan=plan, key=KEY))
        assert safe.dtypes.to_dict().keys() == {"age", "sex", "occupation", "income"}

    @pytest.mark.parametrize("target", [None, "out"])
    def test_periods_and_intervals_passed_through(self, flat, tmp_path, target):
        table = flat[["age"]].assign(
            month=pd.period_range("2020-01", periods=ROWS, freq="D"), stay=pd.interval_range(0, ROWS)
        )
        plan = dpf.plan(table, 1, 1e-6, spaces={"age": (0, 120)}, passthrough=["month", "stay"])
        safe = engine.sanitize(dd.from_pandas(table, npartitions=3), plan, target and tmp_path / target, key=KEY)
        safe = safe.compute() if target is None else dpf.read(tmp_path / target)
        same(safe, dpf.sanitize(table, plan=plan, key=KEY))

    @pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
    def test_a_key_is_of_the_inference_as_well(self, flat, tmp_path):
        """What is repeated under one key is one release, as on one machine, and not a second one that nobody counts."""
        frame = dd.from_pandas(flat[["age", "sex"]], npartitions=3, sort=False)
        here = dpf.sanitize(flat[["age", "sex"]], epsilon=3, key=KEY).dp.release
        assert engine.sanitize(frame, epsilon=3, key=KEY).dp.release == here
        assert engine.sanitize(frame, None, tmp_path / "out", epsilon=3, key=KEY) == here
        assert here.measured

    def test_a_plan_made_here(self, flat, plan):
        frame = dd.from_pandas(flat, npartitions=4, sort=False)
        assert engine.plan(frame, epsilon=3, spaces=plan.spaces) == plan

    def test_a_promise_and_options_in_place_of_a_plan(self, flat, tmp_path):
        ledger, frame = dpf.Ledger(tmp_path / "ledger.sqlite"), dd.from_pandas(flat, npartitions=3)
        ledger.create("survey", epsilon=1.0, delta=1e-5)
        spaces = {name: space for name, space in SPACES.items() if name in flat.columns}
        how = {"delta": 1e-6, "spaces": spaces, "measure": None, "ledger": ledger, "dataset": "survey"}
        told = engine.sanitize(frame, None, tmp_path / "out", epsilon=0.4, **how)
        expected = dpf.plan(flat, 0.4, 1e-6, spaces=spaces, measure=None)
        assert told.plan == expected
        assert dpf.verify(tmp_path / "out").ok
        safe = frame.dp.sanitize(0.4, **how)
        assert safe.dp.release.plan == expected
        assert ledger.history("survey")["what"].tolist() == ["release", "release"]

    def test_text_and_signature_have_every_option(self):
        for function in (engine.plan, engine.sanitize, dd.DataFrame.dp.plan, dd.DataFrame.dp.sanitize):
            check_signature(function)

    def test_the_key_stands_in_work_alone(self, flat, plan):
        """Dask's workers move data to disk, and the results of work, but no work."""
        graph = dict(engine.sanitize(dd.from_pandas(flat, npartitions=3), plan, key=KEY).optimize().dask)
        secret = {type(node).__name__ for node in graph.values() if KEY in cloudpickle.dumps(node)}
        assert secret == {"Task"}


class TestEstimates:
    def test_the_same_as_of_pandas(self, flat, plan, expected):
        frame = dd.from_pandas(flat, npartitions=4, sort=False)
        safe = frame.dp.sanitize(plan=plan, key=KEY).persist()
        pd.testing.assert_frame_equal(safe.dp.mean("age", by="sex"), expected.dp.mean("age", by="sex"))
        pd.testing.assert_frame_equal(safe.dp.crosstab("sex", "education"), expected.dp.crosstab("sex", "education"))
        pd.testing.assert_series_equal(dpf.Estimates(safe).var("income"), expected.dp.var("income"))
        assert safe.dp.release == expected.dp.release
        assert safe.dp.verify()
        assert repr(safe.dp).splitlines()[:2] == repr(expected.dp).splitlines()[:2]
        with pytest.warns(dpf.errors.AlteredReleaseWarning, match="the release 5,000.*whole release"):
            safe[safe["age"] > 30].dp.mean("age")

    def test_what_is_not_there(self, flat, plan):
        frame = dd.from_pandas(flat, npartitions=2)
        with pytest.raises(dpf.NotSanitizedError, match="carries no release plan"):
            dpf.Estimates(frame)
        assert "not sanitized, 5 columns" in repr(frame.dp)
        with pytest.raises(dpf.ParameterError, match="not drawn by an engine; write the release"):
            frame.dp.sanitize(plan=plan, key=KEY).dp.synthesize()

    @pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
    @pytest.mark.parametrize("source", ["frame", "files"])
    def test_spaces_are_found_as_on_one_machine(self, table, flat, tmp_path, monkeypatch, source):
        """Under one key: workers count what one machine counts."""
        monkeypatch.setattr(budgets.secrets, "token_bytes", lambda size: KEY)
        if source == "frame":
            mine = dd.from_pandas(flat, npartitions=3, sort=False).dp.plan(epsilon=3, infer_share=0.3)
            assert mine == dpf.plan(dd.from_pandas(flat, npartitions=1).compute(), epsilon=3, infer_share=0.3)
        else:
            files = write_files(table, tmp_path / "in")
            mine = engine.plan(files, epsilon=3, infer_share=0.3)
            assert mine == dpf.plan(files, epsilon=3, infer_share=0.3)
        assert not mine.not_found


class TestObjects:
    """Sets and mixed objects, which Dask keeps where it is not told to make text of objects."""

    @pytest.mark.filterwarnings("ignore:spaces of such a table were inferred before")
    def test_are_read_as_on_one_machine(self, table, monkeypatch):
        table = table.assign(hobbies=table["hobbies"].map(set), occupation=table["occupation"].astype(object))
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(table, npartitions=3, sort=False)
            with monkeypatch.context() as patch:
                patch.setattr(budgets.secrets, "token_bytes", lambda size: KEY)
                plan = frame.dp.plan(epsilon=4, infer_share=0.5)
                assert plan == dpf.plan(table, epsilon=4, infer_share=0.5)
            safe = engine.sanitize(frame, plan, key=KEY).compute()
        pd.testing.assert_frame_equal(safe, dpf.sanitize(table, plan=plan, key=KEY))

    @pytest.mark.parametrize("target", [None, "out"])
    @pytest.mark.parametrize(
        "odd", [[1] * 6, [b"caf\xe9 of Anna"] + ["x"] * 5, [None] * 6], ids=["kinds", "bytes", "null"]
    )
    def test_of_several_kinds_that_are_passed_through_cost_nothing(self, flat, tmp_path, odd, target):
        """Partitions of one kind each, one value that Arrow cannot hold, nulls that have no kind."""
        table = flat[["age"]][:12].assign(note=pd.Series([*odd, *"xyzxyz"], dtype=object))
        ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", epsilon=2.0, delta=1e-5)
        how = {
            "epsilon": 1,
            "spaces": {"age": (0, 120)},
            "passthrough": ["note"],
            "ledger": ledger,
            "dataset": "survey",
        }
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(table, npartitions=2, sort=False)
            with pytest.raises(dpf.ColumnError, match=r"'note': is passed through.*objects of several") as caught:
                engine.sanitize(frame, None, target and tmp_path / target, **how)
        assert "Anna" not in "".join(traceback.format_exception(caught.value))
        assert ledger.history("survey").empty


class TestFiles:
    def test_same_as_parquet(self, table, full_plan, tmp_path):
        source = write_files(table, tmp_path / "in")
        told = dpf.sanitize(source, tmp_path / "one.parquet", plan=full_plan, key=KEY)
        assert engine.sanitize(source, full_plan, tmp_path / "out", key=KEY) == told
        one, many = dpf.read(tmp_path / "one.parquet"), dpf.read(tmp_path / "out")
        same(many, one)
        same(engine.sanitize(source, full_plan, key=KEY).compute(), one)
        files = sorted((tmp_path / "out").iterdir())
        assert [file.name for file in files] == [f"part-{i:05d}.parquet" for i in range(8)]
        for file in files:
            assert pq.read_schema(file).equals(pq.read_schema(tmp_path / "one.parquet"), check_metadata=True)
        assert dpf.verify(tmp_path / "out").ok
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "one.parquet", "out"]

    def test_files_of_several_schemas(self, tmp_path):
        (tmp_path / "in").mkdir()
        ages = pa.array([i % 50 for i in range(100)])
        pq.write_table(pa.table({"age": ages.cast(pa.int32())}), tmp_path / "in" / "0.parquet")
        pq.write_table(pa.table({"sex": ["F", "M"] * 50, "age": ages}), tmp_path / "in" / "1.parquet")
        spaces = {"age": (0, 60), "sex": dpf.Nullable(["F", "M"])}
        plan = engine.plan(tmp_path / "in", epsilon=2, spaces=spaces)
        info = engine.sanitize(tmp_path / "in", plan, tmp_path / "out", key=KEY)
        assert info.digest == dpf.sanitize(tmp_path / "in", tmp_path / "one.parquet", plan=plan, key=KEY).digest

    def test_a_frame_to_files(self, flat, plan, expected, tmp_path):
        frame = dd.from_pandas(flat, npartitions=3, sort=False)
        told = engine.sanitize(frame, plan, tmp_path / "out", key=KEY)
        same(dpf.read(tmp_path / "out"), expected)
        assert dpf.read(tmp_path / "out").dp.release == told

    def test_folders_are_columns(self, flat, plan, tmp_path):
        for sex, part in flat.groupby("sex", observed=True):
            (tmp_path / "in" / f"sex={sex}").mkdir(parents=True)
            part.drop(columns="sex").to_parquet(tmp_path / "in" / f"sex={sex}" / "part.parquet")
        told = dpf.sanitize(tmp_path / "in", tmp_path / "one.parquet", plan=plan, key=KEY)
        assert engine.sanitize(tmp_path / "in", plan, tmp_path / "out", key=KEY) == told
        same(dpf.read(tmp_path / "out"), dpf.read(tmp_path / "one.parquet"))


@pytest.fixture(scope="module")
def known(flat):
    numbers = np.random.default_rng(3).permutation(10**6)[:ROWS]
    return flat.assign(person=numbers, name=[f"p{i}" for i in numbers])


class TestIds:
    @pytest.mark.parametrize("column", ["person", "name"])
    def test_rows_are_known_by_them_in_any_order(self, known, plan, column):
        known = known[[*plan.names, column]]
        mixed = known.sample(frac=1, random_state=1)
        one, other = (
            engine.sanitize(dd.from_pandas(frame, npartitions=parts, sort=False), plan, id=column, key=KEY)
            for frame, parts in ((known, 3), (mixed, 5))
        )
        same(one.compute(), other.compute())
        assert one.compute().dp.verify()

    def test_twice_or_missing(self, known, plan):
        known = known[[*plan.names, "name"]]
        twice = known.assign(name=known["name"].where(np.arange(ROWS) != 7, known["name"].iloc[9]))
        missing = known.assign(name=known["name"].where(np.arange(ROWS) != 7))
        with pytest.raises(dpf.ColumnError, match=r"'name'.*some rows twice.*take another column"):
            engine.sanitize(dd.from_pandas(twice, npartitions=4), plan, id="name")
        with pytest.raises(dpf.ColumnError, match=r"'name'.*is null in some rows.*fill them"):
            engine.sanitize(dd.from_pandas(missing, npartitions=4), plan, id="name")

    def test_what_needs_places(self, known, flat, plan):
        frame = dd.from_pandas(known[[*plan.names, "person"]], npartitions=2)
        with pytest.raises(dpf.ParameterError, match=r"sample needs positions.*to Parquet first"):
            engine.sanitize(frame, plan_of(flat, spaces=plan.spaces, sample=900), id="person")
        with pytest.raises(dpf.ParameterError, match=r"id names 'nobody'.*columns are"):
            engine.sanitize(frame, plan, id="nobody")
        with pytest.raises(dpf.ColumnError, match=r"'income': has type double, and id must be.*cast it"):
            engine.sanitize(frame, plan, id="income")


@pytest.fixture(scope="module", params=["number", "text"])
def owned(request, table):
    """Rows of persons, who own one to some twenty, in a mixed order."""
    owners = (np.random.default_rng(4).random(ROWS) ** 3 * 900).astype(int)
    return table.assign(person=owners if request.param == "number" else [f"p{i}" for i in owners])


class TestPersons:
    """As many rows of every person, those that one machine chooses."""

    def test_frames(self, owned, plan, monkeypatch):
        monkeypatch.setattr(persons, "PERSON_CHUNK_ROWS", 2_000)
        owned = owned.drop(columns="hobbies")
        plan = dpf.plan(owned, 2, 1e-6, spaces=plan.spaces, privacy_id="person", contributions=3)
        expected = dpf.sanitize(owned, plan=plan, key=KEY)
        for parts in (1, 4):
            frame = dd.from_pandas(owned, npartitions=parts, sort=False)
            assert engine.plan(frame, 2, 1e-6, spaces=plan.spaces, privacy_id="person", contributions=3) == plan
            same(engine.sanitize(frame, plan, key=KEY).compute(), expected)

    def test_files(self, owned, tmp_path):
        source = write_files(owned, tmp_path / "in")
        plan = dpf.plan(owned, 2, 1e-6, spaces=SPACES, privacy_id="person", contributions=2)
        told = dpf.sanitize(source, tmp_path / "one.parquet", plan=plan, key=KEY)
        assert engine.sanitize(source, plan, tmp_path / "out", key=KEY) == told
        same(dpf.read(tmp_path / "out"), dpf.read(tmp_path / "one.parquet"))

    def test_an_interrupted_job_pays_for_inference_once(self, flat, tmp_path):
        """What is inferred anew is another plan, which the job that was paid for cannot take: nothing more is spent."""
        ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", epsilon=9.0, delta=1e-4)
        source = write_files(flat, tmp_path / "in")
        how = {"epsilon": 1.0, "delta": 1e-6, "ledger": ledger, "dataset": "survey"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "BucketWriter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.sanitize(source, None, tmp_path / "out", **how)
        paid = ledger.history("survey")["what"].tolist()
        assert paid == ["inference", "release"]
        with pytest.raises(dpf.errors.LedgerError, match=r"an interrupted run of .* has paid.*pass the plan"):
            engine.sanitize(source, None, tmp_path / "out", **how)
        assert ledger.history("survey")["what"].tolist() == paid

    def test_errors_tell_where_rows_stand(self, owned, plan, tmp_path):
        owned = owned.drop(columns="hobbies")
        plan = dpf.plan(owned, 2, 1e-6, spaces=plan.spaces, privacy_id="person", contributions=3)
        bad = owned.assign(sex=owned["sex"].astype(object).where(np.arange(ROWS) != 3_456))
        with pytest.raises(dpf.ColumnError, match="'sex' at row position 3456: is null"):
            engine.sanitize(dd.from_pandas(bad, npartitions=4, sort=False), plan)
        nobody = owned.assign(person=owned["person"].astype(object).where(np.arange(ROWS) != 3_456))
        nobody["person"] = nobody["person"].convert_dtypes()
        with pytest.raises(dpf.ColumnError, match=r"'person' at row position 3456: is null.*drop such rows"):
            engine.sanitize(dd.from_pandas(nobody, npartitions=4, sort=False), plan)
        frame = dd.from_pandas(owned.assign(row=np.arange(ROWS)), npartitions=2, sort=False)
        with pytest.raises(dpf.ParameterError, match=r"privacy_id needs positions.*to Parquet first"):
            engine.sanitize(frame, plan, id="row")

    def test_an_interrupted_job_is_of_these_persons(self, table, tmp_path):
        ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", epsilon=2.1, delta=1e-5, unit="person:person")
        people = [table.assign(person=np.arange(ROWS) // size) for size in (2, 3)]
        spaces = {"spaces": SPACES, "privacy_id": "person"}
        plan = dpf.plan(people[1], 2, 1e-6, **spaces)
        source = write_files(people[0], tmp_path / "in")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "BucketWriter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.sanitize(source, plan, tmp_path / "out", ledger=ledger, dataset="survey")
        other = write_files(people[1], tmp_path / "other")
        with pytest.raises(dpf.errors.LedgerError, match=r"the input or the.*the interrupted run.*forget"):
            engine.sanitize(other, plan, tmp_path / "out", ledger=ledger, dataset="survey")
        assert engine.sanitize(source, plan, tmp_path / "out", ledger=ledger, dataset="survey").n == ROWS // 2


def swapped(part, switch):
    """Return a partition that changes when a file appears."""
    if switch.exists() and len(part):
        part = part.assign(age=part["age"].where(np.arange(len(part)) != 3, 119 - part["age"]))
    return part


def mixed(part, switch, name):
    """Return a partition two values of whose column change places when a file appears."""
    if switch.exists() and len(part):
        places = np.argsort(part[name].to_numpy(), kind="stable")[[0, -1]]
        order = np.arange(len(part))
        order[places] = places[::-1]
        part = part.assign(**{name: part[name].to_numpy()[order]}).astype(part.dtypes)
    return part


def spoiled(part, switch):
    return part.assign(age=part["age"].astype(float).where(np.arange(len(part)) != 3)) if switch.exists() else part


def shortened(part, switch):
    return part.iloc[1:] if switch.exists() else part


class TestChanged:
    """Another version of a row never leaves under one key."""

    def test_values_that_are_refused_raise_where_there_are_no_rows(self, flat, plan, tmp_path):
        """Dask logs the arguments of a task that raises."""
        switch = tmp_path / "changed"
        frame = dd.from_pandas(flat, npartitions=3).map_partitions(spoiled, switch, meta=flat.iloc[:0])
        safe = engine.sanitize(frame, plan)
        switch.touch()
        with pytest.raises(dpf.ColumnError, match=r"'age' at row position 3: is null") as caught:
            safe.compute()
        assert any(entry.name == "collect_sent" for entry in caught.traceback)

    @pytest.mark.parametrize("change", [swapped, shortened])
    def test_partitions_under_a_lazy_frame(self, flat, plan, tmp_path, change):
        switch = tmp_path / "changed"
        frame = dd.from_pandas(flat, npartitions=3).map_partitions(change, switch, meta=flat.iloc[:0])
        safe = engine.sanitize(frame, plan)
        before = safe.compute()
        switch.touch()
        with pytest.raises(dpf.FileError, match=r"rows or partitions changed.*release it anew"):
            safe.compute()
        switch.unlink()
        pd.testing.assert_frame_equal(safe.compute(), before)

    def test_files_under_a_lazy_frame(self, table, full_plan, tmp_path):
        source = write_files(table, tmp_path / "in")
        safe = engine.sanitize(source, full_plan)
        same(safe.compute(), safe.compute())
        table[:2000].assign(age=20).to_parquet(source / "a.parquet", row_group_size=600)
        with pytest.raises(dpf.FileError, match=r"changed.*release it anew"):
            safe.compute()

    @pytest.mark.parametrize(
        ("change", "options", "named"),
        [
            ("age", {}, {}),
            ("age", {}, {"id": "person"}),
            ("age", {"sample": 900}, {}),
            ("sex", {"passthrough": ["sex"]}, {}),
            ("age", {"privacy_id": "person"}, {}),
            ("person", {"privacy_id": "person"}, {}),
        ],
    )
    def test_between_a_jobs_digest_and_its_first_pass(self, flat, tmp_path, change, options, named):
        """The key is on disk: a second table under it would show how the two differ, once the first is put back."""
        owned = flat[["age", "sex"]].assign(person=np.arange(ROWS) // (2 if options.get("privacy_id") else 1))
        spaces = {name: SPACES[name] for name in ("age", "sex") if name not in options.get("passthrough", ())}
        table = owned if options.get("privacy_id") else owned.drop(columns="person")
        plan = dpf.plan(table, 2, 1e-6, spaces=spaces, measure=None, **options)
        ledger, switch = dpf.Ledger(tmp_path / "ledger.sqlite"), tmp_path / "changed"
        ledger.create("survey", epsilon=2.1, delta=1e-5, unit=plan.unit)
        columns = owned if named else table
        frame = dd.from_pandas(columns, npartitions=3).map_partitions(mixed, switch, change, meta=columns.iloc[:0])
        account = {"ledger": ledger, "dataset": "survey", **named}
        write_release = job.write_release

        def switched(*arguments):
            switch.touch()
            return write_release(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "write_release", switched)
            with pytest.raises(dpf.FileError, match=r"the input changed while.*forget .*--job"):
                engine.sanitize(frame, plan, tmp_path / "out", **account)
        assert not (tmp_path / "out").exists()
        with pytest.raises(dpf.errors.LedgerError, match=r"the input or the.*the interrupted run"):
            engine.sanitize(frame, plan, tmp_path / "out", **account)
        switch.unlink()
        engine.sanitize(frame, plan, tmp_path / "out", **account)
        assert len(ledger.history("survey")) == 1

    def test_between_counting_and_the_first_pass(self, flat, plan, tmp_path):
        frame = dd.from_pandas(flat, npartitions=3)
        table = engine.open_table(frame)
        with pytest.raises(dpf.FileError, match="changed after its release"):
            replace(table, n=ROWS + 1).check(plan.spaces, "error")


class TestLedger:
    @pytest.fixture
    def ledger(self, tmp_path):
        ledger = dpf.Ledger(tmp_path / "ledger.sqlite")
        ledger.create("survey", epsilon=3.1, delta=1e-5)
        return ledger

    def test_spends_before_anything_is_drawn(self, flat, plan, ledger):
        frame = dd.from_pandas(flat, npartitions=3)
        safe = engine.sanitize(frame, plan, ledger=ledger, dataset="survey")
        safe.compute(), safe.compute()
        assert ledger.history("survey")["what"].tolist() == ["release"]
        with pytest.raises(dpf.BudgetExceeded):
            engine.sanitize(frame, plan, ledger=ledger, dataset="survey")

    def test_a_refused_value_costs_nothing(self, flat, plan, ledger):
        bad = flat.assign(sex=flat["sex"].astype(object).where(np.arange(ROWS) != 3_456, None))
        with pytest.raises(dpf.ColumnError, match="'sex' at row position 3456: is null"):
            engine.sanitize(dd.from_pandas(bad, npartitions=3, sort=False), plan, ledger=ledger, dataset="survey")
        assert ledger.history("survey").empty

    def test_an_interrupted_job_is_repeated_but_not_over_another_table(self, table, full_plan, ledger, tmp_path):
        source, target = write_files(table, tmp_path / "in"), tmp_path / "out"
        account = {"ledger": ledger, "dataset": "survey"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "BucketWriter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.sanitize(source, full_plan, target, **account)
        other = write_files(table.assign(age=table["age"].to_numpy()[::-1]), tmp_path / "other")
        with pytest.raises(dpf.errors.LedgerError, match=r"the input or the.*the interrupted run.*forget"):
            engine.sanitize(other, full_plan, target, **account)
        info = engine.sanitize(source, full_plan, target, **account)
        assert info.n == ROWS
        assert len(ledger.history("survey")) == 1

    def test_columns_that_are_passed_through_are_of_the_table(self, flat, ledger, tmp_path):
        """In the digest of an interrupted job, and where a lazy frame is computed."""
        plan = plan_of(flat, spaces={"age": (0, 120), "income": SPACES["income"]}, passthrough=["sex"], drop=REST)
        account = {"ledger": ledger, "dataset": "survey"}
        switch = tmp_path / "changed"
        frame = dd.from_pandas(flat, npartitions=3).map_partitions(renamed, switch, meta=flat.iloc[:0])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "BucketWriter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.sanitize(frame, plan, tmp_path / "out", **account)
        safe = engine.sanitize(frame, plan)
        switch.touch()
        with pytest.raises(dpf.errors.LedgerError, match=r"the input or the.*the interrupted run.*forget"):
            engine.sanitize(frame, plan, tmp_path / "out", **account)
        with pytest.raises(dpf.FileError, match=r"changed.*release it anew"):
            safe.compute()


REST = ["education", "occupation"]


def renamed(part, switch):
    return part.assign(sex=part["sex"].where(np.arange(len(part)) != 3)) if switch.exists() else part


def interrupted(*_):
    raise KeyboardInterrupt


class TestRefusals:
    def test_a_release(self, flat, plan, expected, tmp_path):
        with pytest.raises(dpf.errors.AlreadySanitizedError, match="is a release already"):
            engine.sanitize(engine.sanitize(dd.from_pandas(flat, npartitions=2), plan), plan)

    def test_the_target(self, flat, plan, tmp_path):
        frame = dd.from_pandas(flat, npartitions=2)
        for target, rule in (
            (tmp_path, "exists; an engine writes a new directory"),
            (tmp_path / "no" / "out", "is not a directory; make it first"),
            ("s3://bucket/out", "is no path; name a directory that the driver and all workers see"),
        ):
            with pytest.raises(dpf.FileError, match=rule):
                engine.sanitize(frame, plan, target)
        with pytest.raises(dpf.ParameterError, match="compression must be one of snappy"):
            engine.sanitize(frame, plan, tmp_path / "out", compression="zip")

    def test_what_cannot_be_is_found_before_the_spend(self, flat, plan, tmp_path):
        ledger, frame = dpf.Ledger(tmp_path / "ledger.sqlite"), dd.from_pandas(flat, npartitions=2)
        ledger.create("survey", epsilon=100.0, delta=1e-5)
        account = {"ledger": ledger, "dataset": "survey"}
        with pytest.raises(dpf.FileError, match="could not be written: File name too long"):
            engine.sanitize(frame, plan, tmp_path / ("x" * 300), **account)
        for source in (frame.drop(columns="sex"), frame.assign(more=1)):
            for target in (None, tmp_path / "out"):
                with pytest.raises(dpf.ColumnError, match=r"'(sex|more)': is in the (plan|table) but not in the"):
                    engine.sanitize(source, plan, target, **account)
        for target in (None, tmp_path / "out"):  # spaces are inferred, and paid for, before anything else
            with pytest.raises(dpf.ParameterError, match="key and ledger do not go together"):
                engine.sanitize(frame, None, target, epsilon=1, key=KEY, **account)
        assert ledger.history("survey").empty
        assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]

    def test_ids_that_are_no_text_are_not_quoted(self, flat, plan):
        """A shuffle of them ends with an error that does."""
        ids = [f"person {i}".encode() for i in range(ROWS)]
        ids[1] = b"caf\xe9 of Anna"
        ends = np.cumsum([0, *map(len, ids)]).astype("<i4")
        array = pa.StringArray.from_buffers(ROWS, pa.py_buffer(ends), pa.py_buffer(b"".join(ids)))
        named = flat.assign(person=pd.Series(array, dtype=pd.ArrowDtype(pa.string())))
        spaces = {"age": (0, 120)}
        drop = [name for name in flat.columns if name != "age"]
        for table in (named, named.assign(person=named["person"].take([1, *range(1, ROWS)]).reset_index(drop=True))):
            frame = dd.from_pandas(table, npartitions=3)
            if table is named:
                assert len(engine.sanitize(frame, epsilon=3, spaces=spaces, drop=drop, id="person").compute()) == ROWS
                continue
            with pytest.raises(dpf.ColumnError, match="'person': names some rows twice") as caught:
                engine.sanitize(frame, epsilon=3, spaces=spaces, drop=drop, id="person")
            assert "Anna" not in "".join(traceback.format_exception(caught.value))

    def test_a_promise_and_a_plan(self, flat, plan):
        frame = dd.from_pandas(flat, npartitions=2)
        with pytest.raises(dpf.ParameterError, match=r"epsilon is already decided.*or the other"):
            engine.sanitize(frame, plan, epsilon=1)
        with pytest.raises(dpf.ParameterError, match=r"give epsilon, e\.g\. epsilon=1\.0, or a plan"):
            engine.sanitize(frame)
        with pytest.raises(dpf.ParameterError, match=r"spacs is no option.*you mean 'spaces'"):
            frame.dp.sanitize(1, spacs={})

    def test_what_is_no_table(self, flat, plan, tmp_path):
        with pytest.raises(dpf.ParameterError, match=r"DataFrame is no Dask DataFrame.*pass one"):
            engine.sanitize(flat, plan)
        flat.to_csv(tmp_path / "in.csv")
        with pytest.raises(dpf.FileError, match=r"is CSV, and engines.*it to Parquet"):
            engine.sanitize(tmp_path / "in.csv", plan)
        with pytest.raises(dpf.ParameterError, match="id is for frames"):
            engine.sanitize(tmp_path, plan, id="person")


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="pip install 'dpframe[dask]'")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


class TestCluster:
    """Two workers of their own processes."""

    def test_a_worker_that_dies(self, client, flat, plan, expected, tmp_path):
        armed, died = tmp_path / "armed", tmp_path / "died"
        frame = dd.from_pandas(flat, npartitions=4, sort=False)
        safe = engine.sanitize(frame.map_partitions(ends_once, armed, died, meta=flat.iloc[:0]), plan, key=KEY)
        armed.touch()
        same(safe.compute(), expected)
        assert died.exists()
        logs = str([client.get_worker_logs(), client.get_scheduler_logs(), safe, safe.dask])
        assert not any(form in logs for form in (KEY.hex(), repr(KEY)[2:-1], str(list(KEY))[1:-1]))


def ends_once(part, armed, died):
    """End the process of the first worker that reads a partition when this is armed."""
    if armed.exists():
        try:
            died.touch(exist_ok=False)
        except FileExistsError:
            return part
        os._exit(1)
    return part


def test_the_verbs_take_dask_frames(flat, plan, tmp_path):
    frame = dd.from_pandas(flat, npartitions=3, sort=False)
    assert dpf.plan(frame, epsilon=1, spaces=plan.spaces).names == plan.names
    safe = dpf.sanitize(frame, plan=plan, key=KEY)
    same(safe.compute(), dpf.sanitize(flat, plan=plan, key=KEY))
    assert dpf.verify(safe).ok
    assert dpf.sanitize(frame, tmp_path / "out", plan=plan, key=KEY) == safe.dp.release
    assert dpf.verify(tmp_path / "out").ok
