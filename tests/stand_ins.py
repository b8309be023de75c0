"""Tables that stand for Adult and Groceries where those files are not: their columns and sizes, made from a seed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

# Counts in a hundred thousand, near those of Adult; what is left of a column is missing.
WORKCLASS = {
    "Private": 69_700, "Self-emp-not-inc": 7_800, "Local-gov": 6_430, "State-gov": 3_990, "Self-emp-inc": 3_430,
    "Federal-gov": 2_950, "Without-pay": 40, "Never-worked": 20,
}  # fmt: skip
EDUCATION = {  # from the least to the most: education_num counts them from 1
    "Preschool": 160, "1st-4th": 520, "5th-6th": 1_020, "7th-8th": 1_980, "9th": 1_580, "10th": 2_870, "11th": 3_610,
    "12th": 1_330, "HS-grad": 32_250, "Some-college": 22_390, "Assoc-voc": 4_240, "Assoc-acdm": 3_280,
    "Bachelors": 16_450, "Masters": 5_290, "Prof-school": 1_770, "Doctorate": 1_260,
}  # fmt: skip
OCCUPATION = {  # from those with little schooling to those with much
    "Priv-house-serv": 460, "Handlers-cleaners": 4_210, "Farming-fishing": 3_050, "Machine-op-inspct": 6_150,
    "Transport-moving": 4_900, "Other-service": 10_120, "Craft-repair": 12_590, "Armed-Forces": 30, "Sales": 11_210,
    "Adm-clerical": 11_580, "Protective-serv": 1_990, "Tech-support": 2_850, "Exec-managerial": 12_490,
    "Prof-specialty": 12_710,
}  # fmt: skip
RACE = {
    "White": 85_420, "Black": 9_600, "Asian-Pac-Islander": 3_190, "Amer-Indian-Eskimo": 960, "Other": 830,
}  # fmt: skip
COUNTRY = {"United-States": 89_590, "Mexico": 1_970} | {f"Country-{i:02}": 600 // (i + 1) + 20 for i in range(39)}
SINGLE = ["Never-married", "Divorced", "Separated", "Widowed", "Married-spouse-absent"]
WED = ["Married-civ-spouse", "Married-AF-spouse"]


def _draw(random: np.random.Generator, counts: Mapping[str, int], n: int) -> np.ndarray:
    """Values in the shares that are given, None for what is left."""
    left = max(100_000 - sum(counts.values()), 0)
    shares = np.array([*counts.values(), left], dtype=float)
    return np.array([*counts, None], dtype=object)[random.choice(len(shares), n, p=shares / shares.sum())]


def _ranked(counts: Mapping[str, int], scores: np.ndarray) -> np.ndarray:
    """Positions of values in the shares that are given, the first to the lowest scores."""
    ends = np.cumsum(list(counts.values())) / sum(counts.values())
    ranks = scores.argsort().argsort() / len(scores)
    return np.searchsorted(ends, ranks, side="right").clip(max=len(ends) - 1)


def adult(n: int = 32_561) -> pd.DataFrame:
    """Return a table with Adult's 15 columns: mixed types, nulls in three, and columns that depend on one another."""
    random = np.random.default_rng(0)
    age = random.gamma(2.5, 8.6, n).astype(np.int64).clip(0, 73) + 17
    is_male = random.random(n) < 0.67
    schooling = random.normal(size=n)
    education = _ranked(EDUCATION, schooling)
    occupation = np.array(list(OCCUPATION), dtype=object)[_ranked(OCCUPATION, schooling + random.normal(size=n))]
    occupation[random.random(n) < 0.057] = None
    is_wed = random.random(n) < np.where(is_male, 0.62, 0.15) * np.where(age < 26, 0.3, 1.1)
    single = random.choice(SINGLE, n, p=[0.6, 0.26, 0.06, 0.057, 0.023])
    marital = np.where(is_wed, random.choice(WED, n, p=[0.998, 0.002]), single)
    alone = random.choice(["Not-in-family", "Own-child", "Unmarried", "Other-relative"], n, p=[0.47, 0.28, 0.19, 0.06])
    relationship = np.where(is_wed, np.where(is_male, "Husband", "Wife"), alone)
    hours = np.where(random.random(n) < 0.47, 40, random.normal(41 + 4 * is_male, 13, n)).astype(np.int64)
    odds = 0.9 * schooling + 2.2 * is_wed + 0.03 * (age - 38) + 0.02 * (hours - 40) - 2.6
    is_rich = random.random(n) < 1 / (1 + np.exp(-odds))
    gain = np.where(random.random(n) < 0.06 + 0.1 * is_rich, random.lognormal(8.4, 0.9, n), 0)
    loss = np.where(random.random(n) < 0.047, random.normal(1_870, 370, n), 0)
    return pd.DataFrame(
        {
            "age": age,
            "workclass": _draw(random, WORKCLASS, n),
            "fnlwgt": random.lognormal(12.0, 0.55, n).astype(np.int64).clip(12_000, 1_484_705),
            "education": np.array(list(EDUCATION), dtype=object)[education],
            "education_num": education + 1,
            "marital_status": marital,
            "occupation": occupation,
            "relationship": relationship,
            "race": _draw(random, RACE, n),
            "sex": np.where(is_male, "Male", "Female"),
            "capital_gain": gain.astype(np.int64).clip(0, 99_999),
            "capital_loss": loss.astype(np.int64).clip(0, 4_356),
            "hours_per_week": hours.clip(1, 99),
            "native_country": _draw(random, COUNTRY, n),
            "income": np.where(is_rich, ">50K", "<=50K"),
        }
    )


def baskets(n: int = 9_835, items: int = 169) -> list[list[str]]:
    """Return baskets of as many items as those of Groceries: a few items often, most of them seldom."""
    random = np.random.default_rng(0)
    names = np.array([f"item {i:03}" for i in range(items)])
    # The largest of log-weights plus Gumbel noise are drawn without replacement.
    order = np.argsort(np.log(np.arange(items) + 4.0) - random.gumbel(size=(n, items)), axis=1)
    sizes = random.geometric(0.23, n).clip(1, 32)
    return [list(names[row[:size]]) for row, size in zip(order, sizes, strict=True)]
