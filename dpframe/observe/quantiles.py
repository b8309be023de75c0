"""Quantiles of the normal law and of Student's t."""

NORMAL_QUANTILE = 1.96
"""Half of a 95 % interval in standard errors (theory: 97.5 % quantile of the normal law)."""

ONE_SIDED_QUANTILE = 1.64
"""Standard errors that 95 % of the errors lie below (theory: 95 % quantile of the normal law)."""

STUDENT_QUANTILE = 3.182
"""Half of a 95 % interval in scales (theory: 97.5 % quantile of Student's t, three degrees of freedom)."""
