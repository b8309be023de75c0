"""Models fitted to a release: scikit-learn estimators that take the noise into account.

A model fitted to noisy features as if they were true is biased however many rows there are: noise in a
predictor draws its coefficient to 0. Here moments and tables are estimated through the channels first, and
the fitted model is one of the *true* columns: predict on true, un-noised rows.
"""

from dpframe.learning.naive_bayes import DebiasedNaiveBayes
from dpframe.learning.ridge import DebiasedRidge

__all__ = ["DebiasedNaiveBayes", "DebiasedRidge"]
