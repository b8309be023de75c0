"""A kind of space is one class under a tag: whatever takes a registered space takes it, and no other file knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dpframe as dpf
from dpframe.spaces import SPACES, Nullable, Space, space_from_json
from dpframe.spaces.base import missing_of, refuse_object, refuse_type

KEY = bytes(range(32))
ROWS = 4_000


@dataclass(frozen=True)
class Dozens(Space):
    """Whole numbers, in dozens."""

    most: int

    tag: ClassVar[str] = "dozens"

    @property
    def metric(self) -> str:
        return "line"

    @property
    def size(self) -> int:
        return self.most + 1

    @property
    def step(self) -> float:
        return 12.0

    natural_type = pa.int64()

    def check_type(self, type_: pa.DataType) -> None:
        if not pa.types.is_integer(type_):
            raise refuse_type("Dozens", type_, "convert the column to whole numbers")

    def _encode(self, array: pa.Array, lenient: bool) -> tuple[Any, Any]:
        dozens = np.asarray(pc.fill_null(array, 0)) // 12
        return np.clip(dozens, 0, self.most).astype(self.code_type), missing_of(array)

    def _object_code(self, value: Any, lenient: bool) -> int:
        if not isinstance(value, int):
            raise refuse_object("whole number", "Dozens", "convert the column to whole numbers")
        return min(max(value // 12, 0), self.most)

    def _decode(self, codes: Any, type_: pa.DataType, missing: Any) -> pa.Array:
        return pa.array(codes.astype(np.int64) * 12, mask=missing).cast(type_)

    def labels(self) -> list[Any]:
        return [12 * code for code in range(self.size)]

    def numbers(self, codes: Any) -> Any:
        return codes * 12.0


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPACES, "dozens", Dozens)


@pytest.fixture(params=[Dozens(5), Nullable(Dozens(5)), Dozens(400)], ids=["few", "nullable", "many"])
def space(request: pytest.FixtureRequest) -> Space:
    return request.param


@pytest.fixture
def frame(space: Space) -> pd.DataFrame:
    eggs = pd.array(np.arange(ROWS) ** 2 % space.values * 12, dtype="Int64")
    eggs[: 400 if space.has_null else 0] = pd.NA
    return pd.DataFrame({"eggs": eggs, "sex": np.where(np.arange(ROWS) % 3, "F", "M")})


@pytest.mark.slow
def test_it_is_declared_written_and_read(space, frame, tmp_path):
    assert space_from_json(space.to_json()) == space
    assert space.contains(24)
    assert not space.contains(25)
    plan = dpf.plan(frame, epsilon=4, spaces={"eggs": space, "sex": ["F", "M"]})
    assert type(plan).from_json(plan.to_json()) == plan
    safe = dpf.sanitize(frame, plan=plan, key=KEY)
    frame.to_parquet(tmp_path / "in.parquet")
    dpf.sanitize(tmp_path / "in.parquet", tmp_path / "out.parquet", plan=plan, key=KEY)
    pd.testing.assert_frame_equal(dpf.read(tmp_path / "out.parquet"), safe, check_dtype=False, check_names=False)
    assert dpf.verify(tmp_path / "out.parquet").ok
    assert "eggs" in str(plan.explain())
    assert "eggs" in safe.dp.report().to_html()


@pytest.mark.parametrize("measure", ["auto", None])
@pytest.mark.slow
def test_its_estimates_hold_the_truth(space, frame, measure):
    safe = dpf.sanitize(frame, epsilon=4, spaces={"eggs": space, "sex": ["F", "M"]}, measure=measure, key=KEY)
    present = frame.dropna()

    def held(answer: Any, truth: float) -> None:
        # Five standard errors are exceeded with probability 6e-7.
        assert abs(answer["estimate"] - truth) < 5 * answer["std_error"]

    held(safe.dp.mean("eggs"), present["eggs"].mean())
    held(safe.dp.std("eggs"), present["eggs"].std())
    held(safe.dp.quantile("eggs", 0.3), present["eggs"].quantile(0.3))
    held(safe.dp.count({"eggs": (0, 12)}), present["eggs"].between(0, 12).sum())
    for sex, row in safe.dp.mean("eggs", by="sex").iterrows():
        held(row, present.loc[present["sex"] == sex, "eggs"].mean())
    if space.size < 10:
        for value, row in safe.dp.value_counts("eggs").iterrows():
            held(row, (present["eggs"] == value).sum())
        for (value, sex), row in safe.dp.joint(["eggs", "sex"]).iterrows():
            held(row, ((present["eggs"] == value) & (present["sex"] == sex)).sum())
    rows = safe.dp.synthesize(random_state=1)
    assert rows["eggs"].dropna().isin(space.inner_space.labels()).all()
