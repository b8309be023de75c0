"""The spaces of the census that conversions of Parquet are timed on, sets among them."""

import dpframe as dpf
from dpframe import datasets

SPACES = {
    "age": (18, 95),
    "sex": list(datasets.SEXES),
    "education": dpf.Ordinal(datasets.EDUCATION),
    "region": list(datasets.REGIONS),
    "income": dpf.Nullable(dpf.Real(0, datasets.INCOME_MAX)),
    "hobbies": dpf.Subset(datasets.HOBBIES, max_size=6),
}
