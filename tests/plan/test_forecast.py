"""One forecast: a statistic by itself has the error of the table, whatever view asks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpframe as dpf
from dpframe.api.targets import TargetPlans
from dpframe.errors import ParameterError
from dpframe.forecast.forecast import STATISTICS
from dpframe.plan.build import build_plan
from dpframe.plan.setting import forecast_of
from dpframe.tables.frames import wrap

SPACES = {"age": (0, 120), "sex": ["F", "M"], "region": list("abcd"), "likes": dpf.Subset(["art", "chess"])}
PLANS = {
    "rows": {"n": 900},
    "sample": {"n": 900, "sample": 200},
    "group": {"n": 900, "groups": [("sex", "region")]},
}


@pytest.mark.parametrize("name", PLANS)
def test_one_statistic_has_the_error_of_the_table(name):
    forecast = forecast_of(build_plan(SPACES, epsilon=1.0, **PLANS[name]))
    table = forecast.table["std_error"]
    for statistic, names in forecast.errors:
        assert forecast.std_error(statistic, names) == table.loc[statistic, " × ".join(names)]
    assert {statistic for statistic, _ in forecast.errors} == set(STATISTICS) - {"mean curve"}


def test_tables_lower_the_error_of_one_statistic_as_that_of_all():
    frame = pd.DataFrame({"age": np.arange(900) % 100, "sex": ["F", "M", "M"] * 300})
    forecast = forecast_of(dpf.plan(frame, 1.0, 1e-6, spaces={"age": (0, 120), "sex": ["F", "M"]}))
    for statistic, names in [("marginal", ("sex",)), ("mean", ("age",))]:
        assert forecast.std_error(statistic, names) == pytest.approx(forecast.std_errors[statistic, names], rel=1e-12)
        assert forecast.std_error(statistic, names) < forecast.row_errors(statistic, names).typical


def test_types_are_checked_of_plans_without_shares():
    plan = build_plan({"likes": SPACES["likes"]}, epsilon=1.0, n=900)
    with pytest.raises(ParameterError, match="which is not a randomised column"):
        plan.forecast(types={"sex": [0.5, 0.5]})


def test_a_target_of_two_columns_of_a_larger_group_is_the_forecast_of_the_plan():
    spaces = {name: SPACES[name] for name in ("sex", "region")} | {"ill": [False, True]}
    frame = pd.DataFrame({"sex": ["F", "M"] * 300, "region": list("abcd") * 150, "ill": [False, True, True] * 200})
    options = {"spaces": spaces, "groups": [("sex", "region", "ill")], "measure": None}
    targets = TargetPlans.of(wrap(frame), {("sex", "region"): 0.05}, None, 0.0, options)
    plan = targets.plan_at(2.0)
    (error,) = targets.errors(plan)
    assert error == plan.forecast().loc[("joint", "sex × region"), "std_error"]


def test_a_curve_leaves_out_columns_without_an_inverse():
    """Gaussian noise ends beyond the bounds, so that no share of a value is estimated from its rows."""
    spaces = {name: SPACES[name] for name in ("age", "sex")}
    plan = build_plan(spaces, epsilon=1.0, n=900, mechanisms={"age": "gaussian"})
    curves = [plan.sample_curve("marginal", columns, points=3) for columns in (None, ["sex"])]
    pd.testing.assert_frame_equal(*curves)
