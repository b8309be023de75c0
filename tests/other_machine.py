"""What is planned and released for five tables under one key, as JSON: run on its own, it prints that."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd

import dpframe as dpf

KEY = bytes(range(32))

OTHER = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
}
"""Settings under which BLAS, NumPy and the C library calculate as on a processor of 2005, where it is a newer one."""

DECLARED: dict[str, Any] = {
    "age": (18, 95),
    "education": dpf.Ordinal(dpf.datasets.EDUCATION),
    "region": list(dpf.datasets.REGIONS),
    "income": dpf.Nullable(dpf.Real(0, 250_000)),
}


def planned() -> dict[str, Any]:
    """Return the descriptions of releases, which hold their plans: declared, inferred, measured, sets, curves."""
    census = dpf.datasets.make_census(300)
    declared, rng = census[list(DECLARED)], np.random.default_rng(0)
    curves = pd.DataFrame({"day": list(np.cumsum(rng.integers(-10, 11, size=(300, 12)), axis=1) / 50)})
    day = dpf.Curve(range(12), 3.0, {"name": "RBF", "length_scale": 4.0}, 5)
    hobbies = dpf.Subset(dpf.datasets.HOBBIES, 3)
    made = {
        "declared": dpf.sanitize(declared, epsilon=2.0, delta=1e-4, spaces=DECLARED, measure=None, key=KEY),
        "by error": dpf.sanitize(declared, epsilon=2.0, delta=1e-4, spaces=DECLARED, allocation="error", key=KEY),
        "inferred": dpf.sanitize(census[["age", "sex", "income"]], epsilon=2.0, delta=1e-4, key=KEY),
        "sets": dpf.sanitize(census[["hobbies"]], epsilon=1.3, delta=1e-5, spaces={"hobbies": hobbies}, key=KEY),
        "curves": dpf.sanitize(curves, epsilon=2.0, delta=1e-4, spaces={"day": day}, key=KEY),
    }
    return {name: json.loads(release.attrs["dpframe"]) for name, release in made.items()}


if __name__ == "__main__":
    json.dump(planned(), sys.stdout)
