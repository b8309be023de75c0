"""Patients and their visits, which tests of several tables release."""

from __future__ import annotations

import numpy as np
import pandas as pd

KEY = bytes(range(32))
KEYS = {"visits": {"patient_id": "patients"}}
SPACES = {
    "patients": {"sex": ["F", "M"], "ward": ["A", "B"], "age": (18, 90)},
    "visits": {"kind": ["urgent", "routine"], "cost": (0.0, 400.0)},
}


def made_tables(n, seed=0):
    """Patients and their visits: women of ward A have more, and urgent ones cost more."""
    rng = np.random.default_rng(seed)
    patients = pd.DataFrame({"patient_id": np.arange(n) + 1_000, "sex": rng.choice(["F", "M"], n)})
    patients["ward"], patients["age"] = rng.choice(["A", "B"], n, p=[0.6, 0.4]), rng.integers(18, 91, n)
    counts = rng.poisson(1 + (patients["sex"] == "F") + 0.5 * (patients["ward"] == "A"))
    visits = patients.loc[patients.index.repeat(counts), ["patient_id", "sex"]]
    urgent = rng.random(len(visits)) < np.where(visits.pop("sex") == "F", 0.7, 0.2)
    visits["kind"] = np.where(urgent, "urgent", "routine")
    visits["cost"] = (150 + 100 * urgent + 30 * rng.normal(size=len(visits))).clip(0, 400).round(2)
    return {"patients": patients, "visits": visits.sample(frac=1, random_state=seed).reset_index(drop=True)}


def covers(result, truth):
    return ((result["lower"] <= truth) & (truth <= result["upper"])).all()
