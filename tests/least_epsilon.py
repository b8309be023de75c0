"""The accountant's bound on δ, solved for ε."""

import math

from scipy import optimize

from dpframe.accounting import shuffled_delta
from dpframe.accounting.dominating import total_epsilon


def shuffled_epsilon(parts, n, delta):
    """Return the ε, to a relative 1e-7 or so, at which rows in a secret order lose δ."""

    def excess(epsilon):
        return math.log(max(shuffled_delta(parts, n, epsilon).value, 1e-300) / delta)

    return optimize.brentq(excess, 0.0, total_epsilon(parts), rtol=1e-7)
