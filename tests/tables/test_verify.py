"""Released files are verified from what they say of themselves, and altered ones are caught."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import exact_epsilon
from examples import channel, plan_of
from readings import digest_of

import dpframe as dpf
from dpframe import Categorical, Integer, Nullable, Real, Subset
from dpframe.cli.main import main

SPACES = {"age": (0, 120), "sex": ["F", "M", "X"], "wage": Nullable(Real(0, 1000, steps=5_000))}


@cache
def pure_plan():
    return plan_of(SPACES, epsilon=3.0, delta=0, n=400)


@cache
def shuffled_plan():
    return plan_of(SPACES, epsilon=1.0, n=400)


@cache
def sampled_plan():
    return plan_of(SPACES, epsilon=1.0, n=400, sample=100)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 121, 400),
            "sex": rng.choice(["F", "M", "X"], 400),
            "wage": np.where(rng.random(400) < 0.1, np.nan, rng.random(400) * 1000),
        }
    )
    frame.to_parquet(folder / "in.parquet", index=False)
    dpf.sanitize(folder / "in.parquet", folder / "out.parquet", plan=pure_plan())
    return folder / "out.parquet"


def rewrite(
    source: Path,
    *,
    text: Callable[[str], str | None] | None = None,
    table: Callable[[pa.Table], pa.Table] | None = None,
) -> Path:
    """Write a released file anew beside it, with its description or its rows changed; return the new path."""
    read = pq.read_table(source)
    description = (read.schema.metadata or {})[b"dpframe"].decode()
    rows = read if table is None else table(read)
    said = description if text is None else text(description)
    path = source.parent / f"changed-{len(list(source.parent.iterdir()))}.parquet"
    pq.write_table(rows.replace_schema_metadata({} if said is None else {"dpframe": said}), path)
    return path


def replanned(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    """Return an edit of a description that changes its plan as JSON."""

    def edit(text: str) -> str:
        data = json.loads(text)
        change(data["plan"])
        return json.dumps(data)

    return edit


def redigested(path: Path) -> Path:
    """Give a file the digest of what it holds, as a careful forger would."""

    def edit(text: str) -> str:
        info = dpf.ReleaseInfo.from_json(text)
        rows = pq.read_table(path)
        return replace(info, n=rows.num_rows, digest=digest_of(rows, info.plan)).to_json()

    return rewrite(path, text=edit)


def only_failure(path: Path) -> str:
    found = dpf.verify(path)
    assert not found.ok
    (failure,) = found.failures
    assert "\n" not in failure
    return failure


def test_a_released_file_is_verified(released: Path) -> None:
    found = dpf.verify(released)
    assert found.ok, found.failures
    assert found.checks[-1].startswith("the file holds the 400 rows that were released")
    assert (found.epsilon, found.proofs) == (pure_plan().verify().epsilon, pure_plan().verify().proofs)
    assert dpf.verify(rewrite(released)).ok
    # Rows have no order of their own.
    assert dpf.verify(rewrite(released, table=lambda t: t.take(np.arange(400)[::-1]))).ok
    assert dpf.verify(redigested(rewrite(released, table=lambda t: t.slice(1)))).ok


def test_changed_rows_are_caught(released: Path) -> None:
    def overwritten(table: pa.Table) -> pa.Table:
        return table.set_column(1, "sex", pa.array(["F"] * 400))

    assert "digest is another" in only_failure(rewrite(released, table=overwritten))

    def replaced(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        other = next(i for i, row in enumerate(rows) if row != rows[-1])
        return pa.concat_tables([table.slice(0, 399), table.slice(other, 1)])

    assert "digest is another" in only_failure(rewrite(released, table=replaced))
    assert only_failure(rewrite(released, table=lambda t: t.slice(1))) == ("the file has 399 rows, the release had 400")
    doubled = only_failure(rewrite(released, table=lambda t: pa.concat_tables([t, t.slice(7, 1)])))
    assert doubled == "the file has 401 rows, the release had 400"


def test_changed_columns_are_caught(released: Path) -> None:
    assert only_failure(rewrite(released, table=lambda t: t.drop_columns(["sex"]))) == (
        "column 'sex' of the plan is not in the file; write some columns of a release with dpframe.write, "
        "and they verify"
    )
    names = pa.array([str(i) for i in range(400)])
    assert only_failure(rewrite(released, table=lambda t: t.append_column("name", names))) == (
        "column 'name' is in the file but not in the plan"
    )
    failure = only_failure(rewrite(released, table=lambda t: t.set_column(0, "age", names)))
    assert failure.startswith("column 'age': ")
    outside = pa.array(["swordfish"] * 400)
    failure = only_failure(rewrite(released, table=lambda t: t.set_column(1, "sex", outside)))
    assert "column 'sex'" in failure
    assert "swordfish" not in failure
    both = dpf.verify(rewrite(released, table=lambda t: t.drop_columns(["sex", "wage"]).slice(3)))
    assert len(both.failures) == 2


def test_another_plans_metadata_is_caught(released: Path) -> None:
    for other in (
        replace(pure_plan(), n=401),
        plan_of(SPACES, epsilon=2.0, n=400),
        replace(pure_plan(), shuffle=False),
    ):
        text = replanned(lambda plan, other=other: plan.update(json.loads(other.to_json())))
        assert "digest is another" in only_failure(rewrite(released, text=text))
    elsewhere = plan_of({"town": ["a", "b"]}, epsilon=1.0)
    found = dpf.verify(rewrite(released, text=lambda _: dpf.ReleaseInfo(elsewhere, 400, "0" * 16).to_json()))
    assert len(found.failures) == 4  # one column is missing, three are too many


def test_a_claim_below_what_is_lost_is_caught(released: Path) -> None:
    """By 1e-9, for the total and for a column, and whoever forges it may recompute the digest."""
    certified = pure_plan().verify().epsilon
    for claim, holds in [(certified - 1e-9, False), (certified + 1e-9, True)]:
        path = rewrite(released, text=replanned(lambda plan, claim=claim: plan.update(epsilon=claim)))
        if holds:
            assert "digest is another" in only_failure(path)
            assert dpf.verify(redigested(path)).ok
            continue
        found = dpf.verify(path)
        (failure,) = found.failures
        assert failure.startswith(f"the total claims epsilon={claim!r}, delta=0.0 but its units lose epsilon=2.9")
        assert found.claimed == dpf.Budget(claim)
        assert found.epsilon == certified
        assert len(found.proofs) == 3


def test_a_claim_for_several_rows_of_a_person(released: Path) -> None:
    row = dpf.Budget(3.0, 1e-6).per_row(4)
    age, sex = channel("geometric", 120, row.epsilon / 2, row.delta), channel("randomized_response", 3, row.epsilon / 4)
    plan = plan_of(SPACES, epsilon=3.0, delta=1e-6, contributions=4, mechanisms={"age": age, "sex": sex})
    whole = plan.verify()
    for change in ({"epsilon": whole.epsilon - 1e-9}, {"delta": whole.delta * 0.99}, {"contributions": 5}):
        said = dpf.ReleaseInfo(plan, 400, "0" * 16).to_json()
        edit = replanned(lambda data, change=change: data.update(change))
        path = rewrite(released, text=lambda _, said=said, edit=edit: edit(said))
        found = dpf.verify(path)
        assert found.failures[0].startswith("the total claims epsilon=")
        assert found.contributions == change.get("contributions", 4)
        assert len(found.proofs) == 3


# --- plans whose order or sample earns credit ---------------------------------------------------------
@pytest.fixture(scope="module")
def credited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("credited")
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"age": rng.integers(0, 121, 400), "sex": rng.choice(["F", "M", "X"], 400), "wage": rng.random(400) * 1000}
    )
    frame.to_parquet(folder / "in.parquet", index=False)
    dpf.sanitize(folder / "in.parquet", folder / "out.parquet", plan=shuffled_plan())
    dpf.sanitize(folder / "in.parquet", folder / "drawn.parquet", plan=sampled_plan())
    return folder / "out.parquet"


def test_releases_with_credit_are_verified(credited: Path) -> None:
    found = dpf.verify(credited)
    assert found.ok, found.failures
    assert (found.epsilon, found.delta) == (1.0, shuffled_plan().verify().delta)
    assert "400 rows in secret order: the privacy blanket of these columns" in found.checks[0]
    assert dpf.verify(rewrite(credited, table=lambda t: t.take(np.arange(400)[::-1]))).ok
    drawn = dpf.verify(credited.parent / "drawn.parquet")
    assert drawn.ok, drawn.failures
    assert "100 rows in secret order" in drawn.checks[0]
    assert "100 of 400 rows chosen in secret" in drawn.checks[0]
    assert "the rows released were drawn uniformly, and the choice is secret" in drawn.attested


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 1.0 - 1e-4},
        {"delta": 0.0},
        {"delta": shuffled_plan().verify().delta * (1 - 1e-9)},
        {"n": 399},
        {"n": None},
        {"n": 1},
        {"shuffle": False},
        {"passthrough": ["id"]},
        {"contributions": 2},
    ],
    ids=str,
)
def test_credit_without_its_ground_is_caught(credited: Path, change: dict[str, Any]) -> None:
    """Each is certified anew under what the plan says now, and named as a total that is exceeded."""
    found = dpf.verify(rewrite(credited, text=replanned(lambda plan: plan.update(change))))
    assert next(failure.split("=")[0] for failure in found.failures) == "the total claims epsilon"
    assert found.contributions == change.get("contributions", 1)
    assert len(found.proofs) == 3
    assert found.epsilon > found.claimed.epsilon or found.delta > found.claimed.delta
    assert 0 <= found.delta <= 1


def test_an_overstated_number_of_rows_is_caught(credited: Path) -> None:
    """By one row or tenfold; the forger recalibrates nothing or all, and recomputes the digest."""
    for n in (401, 4_000):
        said = rewrite(credited, text=replanned(lambda plan, n=n: plan.update(n=n)))
        assert only_failure(redigested(said)) == f"the plan counts on {n:,} rows, the release had 400"
    plan = plan_of(SPACES, epsilon=1.0, n=4_000)
    assert plan["sex"].mechanism.epsilon > shuffled_plan()["sex"].mechanism.epsilon
    info = dpf.ReleaseInfo(plan, 400, "0" * 16).to_json()
    assert only_failure(redigested(rewrite(credited, text=lambda _: info))) == (
        "the plan counts on 4,000 rows, the release had 400"
    )
    fewer = redigested(rewrite(credited, table=lambda t: t.slice(1)))
    assert only_failure(fewer) == "the plan counts on 400 rows, the release had 399"
    # More rows than the plan counts on hide each other better still.
    more = redigested(rewrite(credited, table=lambda t: pa.concat_tables([t, t.slice(0, 5)])))
    assert dpf.verify(more).ok


def test_another_sample_is_caught(credited: Path) -> None:
    drawn = credited.parent / "drawn.parquet"
    for change, failure in [
        ({"sample": 101}, "the plan samples 101 rows, the release had 100"),
        ({"sample": 99}, "the total claims epsilon=1.0"),
        ({"sample": None}, "the total claims epsilon=1.0"),
        ({"sample": 401}, "the plan is not valid: sample=401 rows cannot be chosen"),
        ({"n": 150}, "the total claims epsilon=1.0"),
        ({"delta": 0.0}, "the total claims epsilon=1.0"),
        ({"shuffle": False}, "the total claims epsilon=1.0"),
    ]:
        path = rewrite(drawn, text=replanned(lambda plan, change=change: plan.update(change)))
        found = dpf.verify(path)
        assert any(f.startswith(failure) for f in found.failures), (change, found.failures)


def test_a_pure_sample_is_certified_by_its_formula(credited: Path) -> None:
    """ln(1 + (m/n)(e^ε₁ − 1)): a claim 1e-9 below it is caught, one above it holds."""
    plan = plan_of(SPACES, epsilon=1.0, delta=0, n=400, sample=100, contributions=2)
    row = sum(proof.epsilon for proof in plan.verify().proofs)
    certified = plan.verify().epsilon
    assert certified == pytest.approx(2 * math.log1p(math.expm1(row) / 4), rel=1e-12)
    info = dpf.ReleaseInfo(plan, 100, "0" * 16).to_json()
    for claim, holds in [(certified - 1e-9, False), (certified + 1e-9, True)]:
        edit = replanned(lambda data, claim=claim: data.update(epsilon=claim))
        found = dpf.verify(rewrite(credited, text=lambda _, edit=edit: edit(info)))
        assert found.failures[0].startswith("the total claims" if not holds else "the file has 400 rows")
        assert found.epsilon == pytest.approx(certified, rel=1e-12)


def test_a_blanket_that_is_overstated_is_caught(credited: Path) -> None:
    """Weights travel in the plan; a blanket is computed from them, and no file can state another."""
    plan = plan_of({"sex": ["F", "M"]}, epsilon=1.0, n=400, mechanisms={"sex": dpf.Matrix.of([[0.6, 0.4], [0.4, 0.6]])})
    assert plan.verify().proofs[0].blanket == pytest.approx(0.8)
    found = json.loads(plan.to_json())
    found["columns"][0]["mechanism"]["blanket"] = 0.99
    with pytest.raises(dpf.errors.PlanError, match="mechanism matrix has the fields"):
        dpf.Plan.from_json(json.dumps(found))


def test_several_wrong_columns_are_all_named(released: Path) -> None:
    def spoil(plan: dict[str, Any]) -> None:
        plan["columns"][0]["mechanism"]["mechanism"] = "sorcery"
        plan["columns"][2]["mechanism"]["span"] = 7

    found = dpf.verify(rewrite(released, text=replanned(spoil)))
    assert [failure.split(":")[0] for failure in found.failures] == ["column 'age'", "column 'wage'"]
    assert str(found).startswith("NOT VERIFIED: no claim that can be read")
    assert json.loads(found.to_json())["claimed"] is None
    assert json.loads(found.to_json())["certified"]["epsilon"] is None


def test_groups_sets_and_nulls(tmp_path: Path) -> None:
    """Released sets hold more items than a strict space lets in; a group that is wrong is named as one."""
    hobbies = [["chess"], ["art", "yoga"], []] * 40
    frame = pd.DataFrame({"sex": ["F", "M", "X"] * 40, "town": ["a", "b"] * 60, "hobbies": hobbies})
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    spaces = {
        "sex": ["F", "M", "X"],
        "town": Nullable(Categorical(["a", "b"])),
        "hobbies": Subset(["art", "chess", "yoga"], max_size=2, strict=True),
    }
    plan = plan_of(spaces, epsilon=4.0, groups=[["sex", "town"]])
    out = tmp_path / "out.parquet"
    dpf.sanitize(tmp_path / "in.parquet", out, plan=plan)
    found = dpf.verify(out)
    assert found.ok, found.failures
    assert [proof.unit for proof in found.proofs] == ["sex × town", "hobbies"]

    def spoil(plan: dict[str, Any], **change: Any) -> None:
        plan["groups"][0]["mechanism"].update(change)

    failure = only_failure(rewrite(out, text=replanned(lambda plan: spoil(plan, sizes=[3, 4]))))
    assert failure.startswith("group sex × town: ")
    assert "digest is another" in only_failure(rewrite(out, text=replanned(lambda plan: spoil(plan, epsilon=1.9))))
    failure = only_failure(rewrite(out, text=replanned(lambda plan: spoil(plan, epsilon=3.9))))
    assert failure.startswith("the total claims epsilon=4.0")
    for broken in ([5], [{"names": 5}], [{"names": ["sex", "town"]}], 5):
        damaged = rewrite(out, text=replanned(lambda plan, broken=broken: plan.update(groups=broken)))
        assert not dpf.verify(damaged).ok


def test_columns_passed_through_must_be_there(tmp_path: Path) -> None:
    pd.DataFrame({"sex": ["F", "M"] * 20, "id": range(40)}).to_parquet(tmp_path / "in.parquet", index=False)
    out = tmp_path / "out.parquet"
    with pytest.warns(dpf.errors.PrivacyLeakWarning, match="looks like an identifier"):
        dpf.sanitize(tmp_path / "in.parquet", out, 1.0, spaces={"sex": ["F", "M"]}, passthrough=["id"])
    found = dpf.verify(out)
    assert found.ok
    assert found.unprotected == ("copied as they are: id",)
    failure = only_failure(rewrite(out, table=lambda t: t.drop_columns(["id"])))
    assert failure.startswith("column 'id' of the plan is not in the file; ")


@pytest.mark.parametrize("name", ["part.parquet", "part.csv"])
def test_some_columns_of_a_release_verify_as_they_were_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    frame = pd.DataFrame({"sex": ["F", "M"] * 200, "wage": [1.0, 2.0, 3.0, 4.0] * 100, "ward": list("abcd") * 100})
    safe = frame.dp.sanitize(1.0, spaces={"sex": ["F", "M"], "wage": (1, 4)}, passthrough=["ward"])
    said = dpf.write(safe[["wage"]].sort_values("wage"), path)
    assert said.left_out == ("sex", "ward")
    assert repr(said).splitlines()[0] == "<a release of 400 rows, 1 of 2 randomised columns>"
    assert "NOT PROTECTED" in repr(safe.dp.release)
    assert "NOT PROTECTED" not in repr(said), "what was passed through is left out"
    found = dpf.verify(path)
    assert found.ok, found.failures
    assert found.checks[-1].startswith(
        "the file holds the 400 rows that were written with 1 of the release's 3 columns"
    )
    assert found.attested[-1] == "the columns kept are as they were released; left out: sex, ward"
    with pytest.raises(SystemExit):
        main(["inspect", str(path)])
    assert capsys.readouterr().out.startswith(f"{path}: a release of 400 rows, without sex, ward\n")
    # Without a warning: what is left out is known.
    part = dpf.read(path)
    assert part.dp.mean("wage")["estimate"] == safe.dp.mean("wage")["estimate"]
    part.loc[0, "wage"] = 4.0 if part.loc[0, "wage"] < 3 else 1.0
    assert "digest is another" in dpf.verify(part).failures[0]
    with pytest.warns(dpf.errors.AlteredReleaseWarning, match="cell by cell"):
        part.dp.mean("wage")


def test_some_rows_and_columns_of_a_release_do_not_verify(tmp_path: Path, released: Path) -> None:
    with pytest.warns(dpf.errors.AlteredReleaseWarning):
        said = dpf.write(dpf.read(released).drop(columns="sex").head(300), tmp_path / "part.parquet")
    assert not said.left_out
    lost, rows = dpf.verify(tmp_path / "part.parquet").failures
    assert lost.startswith("column 'sex' of the plan is not in the file; write some columns")
    assert rows == "the file has 300 rows, the release had 400"


# --- channels whose weights are in the plan -----------------------------------------------------------

THREE = [[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [0.2, 0.3, 0.5]]


@pytest.fixture(scope="module", params=["matrix", "optimal"])
def tabulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release under a mechanism whose weights are in the plan, beside a column of its own."""
    folder = tmp_path_factory.mktemp(request.param)
    frame = pd.DataFrame({"rank": np.arange(300) % 3, "sex": ["F", "M", "X"] * 100})
    frame.to_parquet(folder / "in.parquet", index=False)
    mechanism = {"matrix": dpf.Matrix.of(THREE), "optimal": "optimal"}[request.param]
    spaces = {"rank": Integer(0, 2), "sex": ["F", "M", "X"]}
    dpf.sanitize(
        folder / "in.parquet", folder / "out.parquet", epsilon=2.0, spaces=spaces, mechanisms={"rank": mechanism}
    )
    return folder / "out.parquet"


def weights_of(plan: dict[str, Any]) -> list[list[int]]:
    """Return the weights of the first column, from its strings of hexadecimal digits."""
    laws = plan["columns"][0]["mechanism"]["table"]
    width = len(laws[0]) // len(laws)
    return [[int(law[i : i + width], 16) for i in range(0, len(law), width)] for law in laws]


def set_weights(plan: dict[str, Any], weights: list[list[int]]) -> None:
    plan["columns"][0]["mechanism"]["table"] = ["".join(f"{w:016x}" for w in law) for law in weights]


STEP = 2**64 >> 20


def test_a_weight_that_is_off_is_caught(tabulated: Path) -> None:
    """By 2^-20 of the mass: a law that does not sum up; one that loses more; one that loses less."""

    def heavier(plan: dict[str, Any]) -> None:
        weights = weights_of(plan)
        weights[0][0] += STEP
        set_weights(plan, weights)

    assert dpf.verify(tabulated).ok
    failure = only_failure(rewrite(tabulated, text=replanned(heavier)))
    assert failure.startswith("column 'rank': mechanism ")
    assert "sum to 2**64" in failure

    text = json.loads((pq.read_schema(tabulated).metadata or {})[b"dpframe"])
    weights = weights_of(text["plan"])
    honest = float(exact_epsilon(weights))
    outcomes = Counter()
    for x, y, z in [(x, y, z) for x in range(3) for y, z in permutations(range(3), 2)]:
        moved = [list(law) for law in weights]
        moved[x][y] += STEP
        moved[x][z] -= STEP
        path = rewrite(tabulated, text=replanned(lambda plan, moved=moved: set_weights(plan, moved)))
        failure = only_failure(path)
        # What loses more than is claimed contradicts itself; the rest is a plan that these rows were not made by.
        worse = float(exact_epsilon(moved)) > text["plan"]["columns"][0]["mechanism"]["epsilon"]
        outcomes[worse] += 1
        assert ("loses more than" in failure) == worse
        assert ("digest is another" in failure) == (not worse)
        if worse:
            assert failure.startswith("column 'rank': ")
    assert outcomes[True] > 0
    assert outcomes[False] > 0
    assert honest <= text["plan"]["columns"][0]["mechanism"]["epsilon"]


def test_a_columns_claim_below_what_it_loses_is_caught(tabulated: Path) -> None:
    text = json.loads((pq.read_schema(tabulated).metadata or {})[b"dpframe"])
    lost = float(exact_epsilon(weights_of(text["plan"])))

    def claim(plan: dict[str, Any], value: float) -> None:
        plan["columns"][0]["mechanism"]["epsilon"] = value

    failure = only_failure(rewrite(tabulated, text=replanned(lambda plan: claim(plan, lost - 1e-9))))
    assert failure.startswith("column 'rank': mechanism ")
    assert "loses more than" in failure
    failure = only_failure(rewrite(tabulated, text=replanned(lambda plan: claim(plan, lost + 1e-9))))
    assert "digest is another" in failure


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda text: text[:-5], "metadata is damaged"),
        (lambda text: "[]", "metadata is damaged"),
        (lambda text: json.dumps(json.loads(text) | {"n": "many"}), "metadata is damaged"),
        (lambda text: json.dumps(json.loads(text) | {"plan": 5}), "no JSON object"),
        (replanned(lambda plan: plan.update(epsilon=-1)), "epsilon must be finite and above 0"),
        (replanned(lambda plan: plan.update(epsilon="much")), "epsilon must be a number"),
        (replanned(lambda plan: plan.pop("epsilon")), "no epsilon"),
        (replanned(lambda plan: plan.update(contributions=0)), "contributions must be"),
        (replanned(lambda plan: plan.update(columns={})), "no list of columns"),
        (replanned(lambda plan: plan["columns"].append(5)), "every column needs a name"),
        (replanned(lambda plan: plan["columns"].append(plan["columns"][0])), "appears twice"),
    ],
)
def test_descriptions_that_cannot_be_read(released: Path, edit: Callable[[str], str], match: str) -> None:
    assert match in only_failure(rewrite(released, text=edit))


def test_what_is_no_release_is_bad_input(released: Path) -> None:
    with pytest.raises(dpf.NotSanitizedError, match=r"carries no release plan:.*nothing to verify"):
        dpf.verify(rewrite(released, text=lambda _: None))
    with pytest.raises(dpf.FileError, match="does not exist"):
        dpf.verify(released.parent / "nothing.parquet")
    (released.parent / "rows.csv").write_text("age\n20\n")
    with pytest.raises(dpf.NotSanitizedError, match=r"nothing to verify; if.*its \.dpframe\.json next"):
        dpf.verify(released.parent / "rows.csv")
    for edit in (
        lambda text: json.dumps(json.loads(text) | {"schema": 99}),
        replanned(lambda plan: plan.update(schema=99)),
    ):
        with pytest.raises(dpf.errors.PlanError, match=r"has schema 99.*upgrade dpframe"):
            dpf.verify(rewrite(released, text=edit))


def test_from_the_shell(released: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warnings.showwarning", print)  # restored afterwards

    def run(*arguments: Any) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["verify", *map(str, arguments)])
        return stopped.value.code, *capsys.readouterr()

    code, out, err = run(released)
    assert (code, err) == (0, "")
    assert "VERIFIED: epsilon=3, delta=0, replace-one" in out
    code, out, err = run(released, "--json")
    assert json.loads(out)["ok"] is True
    assert code == 0

    changed = rewrite(released, table=lambda t: t.drop_columns(["sex", "wage"]).slice(3))
    code, out, err = run(changed)
    assert code == 1
    assert err.splitlines() == [
        f"dpframe: {changed}: columns sex, wage of the plan are not in the file; write some columns of a release with "
        "dpframe.write, and they verify",
        f"dpframe: {changed}: the file has 397 rows, the release had 400",
    ]
    assert "NOT VERIFIED" in out
    code, out, err = run(changed, "--json")
    assert (code, json.loads(out)["ok"], len(json.loads(out)["failures"])) == (1, False, 2)

    for path in (rewrite(released, text=lambda _: None), released.parent / "nothing.parquet"):
        code, out, err = run(path)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", [[], {}, ["age"], None, 3])
def test_a_name_that_is_no_text_beside_groups_is_one_line(name: Any, tmp_path: Path) -> None:
    plan = plan_of({"a": [1, 2], "b": [1, 2], "c": [1, 2]}, epsilon=1.0, groups=[("a", "b")])
    data = json.loads(dpf.ReleaseInfo(plan, 0, "0").to_json())
    data["plan"]["columns"][2]["name"] = name
    with pytest.raises(dpf.errors.PlanError, match=r"a column's name must.*is not empty"):
        dpf.Plan.from_json(json.dumps(data["plan"]))
    path = tmp_path / "hostile.parquet"
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"dpframe": json.dumps(data)}), path)
    assert not dpf.verify(path).ok


@pytest.mark.parametrize("metric", [[], {}])
def test_a_metric_that_is_no_text_is_refused(metric: Any) -> None:
    data = json.loads(plan_of({"a": dpf.Ordinal(["x", "y", "z"])}, epsilon=1.0).to_json())
    data["columns"][0]["mechanism"]["metric"] = metric
    with pytest.raises(dpf.errors.PlanError, match="metric must be one of"):
        dpf.Plan.from_json(json.dumps(data))


def test_an_index_that_pandas_hides_is_a_column_that_was_not_released(released: Path, tmp_path: Path) -> None:
    table = pq.read_table(released)
    path = tmp_path / "indexed.parquet"
    pq.write_table(table.append_column("__index_level_0__", pa.array(range(len(table)))), path)
    failures = dpf.verify(path).failures
    assert failures == ("column '__index_level_0__' is in the file but not in the plan",)


def test_a_plan_is_verified_by_its_file(tmp_path: Path) -> None:
    plan = dpf.plan(pd.DataFrame({"sex": ["F", "M"] * 20}), 1.0, spaces={"sex": ["F", "M"]})
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert dpf.verify(tmp_path / "plan.json") == dpf.verify(plan)
    with pytest.raises(dpf.errors.PlanError):
        (tmp_path / "other.json").write_text("{}")
        dpf.verify(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("library", "verdict"),
    [
        ({}, "like those that verify it"),
        ({"version": "9.1.dev2"}, "unlike those that verify it"),
        ({"digest": "0" * 64}, "unlike those that verify it"),
        (None, None),
        ({"version": "0.3\x1b[2J"}, "names no library by version and digest"),
        ({"digest": "00"}, "names no library by version and digest"),
        ([], "names no library by version and digest"),
    ],
)
def test_the_library_that_made_a_release_is_named(released: Path, library: Any, verdict: str | None) -> None:
    def edit(text: str) -> str:
        data = json.loads(text)
        data["library"] = data["library"] | library if isinstance(library, dict) else library
        return json.dumps(data)

    found = dpf.verify(rewrite(released, text=edit))
    if verdict is not None and verdict.startswith("names no"):
        assert verdict in only_failure(rewrite(released, text=edit))
        return
    lines = [line for line in found.attested if line.startswith("made by dpframe")]
    assert found.ok, found.failures
    assert len(lines) == (verdict is not None)
    if verdict is not None:
        assert lines[0].endswith(verdict)
        assert f"dpframe {library.get('version', dpf.__version__)}," in lines[0]


def test_the_digest_of_the_library_is_that_of_its_files(released: Path) -> None:
    """As `sha256sum` lists them, sorted by name; see docs/SECURITY.md."""
    package = Path(dpf.__file__).parent
    paths = sorted(package.rglob("*.py"), key=lambda path: str(path.relative_to(package.parent)).encode())
    listing = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(package.parent).as_posix()}\n"
        for path in paths
    ]
    (line,) = [line for line in dpf.verify(released).attested if line.startswith("made by dpframe")]
    assert hashlib.sha256("".join(listing).encode()).hexdigest() in line
