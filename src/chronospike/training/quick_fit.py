"""Helpers for fits of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_ONE_AT_A_TIME = RLock()


@contextmanager
def quick_fit() -> Iterator[None]:
    """For a fit of scikit-learn's.

    A fit that has not converged after so many iterations is good enough to be compared with. Products of matrices as
    narrow as these gain nothing from a second thread, and beside another busy program waiting for it takes far longer.
    Filters of warnings and limits of threads are the whole process': another thread waits.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with _ONE_AT_A_TIME, warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        # With many classes of few nodes each.
        warnings.filterwarnings("ignore", "The number of unique classes is greater", UserWarning)
        yield
