"""Wishart noise under the statistical audit, which knows nothing of its proof, and catches the printed version.

An attacker looks at the sharpest there is: the log-likelihood ratio of the release Y = A + W under both tables.
``DPFRAME_RELEASES=1000000 pytest -n 0 tests/totals/test_wishart_audit.py -s`` is the full run. Every audit holds with
confidence 1 − 1e-6, and keys are fixed.
"""

from __future__ import annotations

import pytest
from audited_wishart import PAIRS, audited

from dpframe.accounting.budget import Budget
from dpframe.totals.answers import Portion
from dpframe.totals.wishart import WishartNoise


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.01), (1.0, 0.001)])
def test_additive_wishart_noise_is_not_refuted(pair: str, epsilon: float, delta: float) -> None:
    noise = WishartNoise.of(len(PAIRS[pair][0]), 1.0, Portion(Budget(epsilon, delta)))
    found = audited(noise, pair, delta)
    print(f"\n{pair}, claim ({epsilon}, {delta}), {noise.degrees} degrees: {found}")
    assert not found.refutes(epsilon), str(found)


@pytest.mark.walk(4)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_version_printed_in_the_appendix_is_caught(pair: str, delta: float) -> None:
    """W_d(d + 1, 3/(2ε)·I) for rows of norm 1, said to be ε-private: the supports of A + W and A' + W differ."""
    epsilon, size = 1.0, len(PAIRS[pair][0])
    found = audited(WishartNoise(size, 3 / (2 * epsilon), size + 1), pair, delta)
    print(f"\n{pair}, claim ({epsilon}, {delta}), as printed: {found}")
    assert found.refutes(3 * epsilon), str(found)


def test_a_quarter_of_the_degrees_is_caught() -> None:
    """Which is what fewer degrees than the proof asks for look like: the audit is not idle."""
    epsilon, delta = 2.0, 0.01
    honest = WishartNoise.of(1, 1.0, Portion(Budget(epsilon, delta)))
    found = audited(WishartNoise(1, 1.0, honest.degrees // 4), "one number", delta)
    assert found.refutes(epsilon), str(found)
