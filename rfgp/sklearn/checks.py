"""What the estimators check in common, on scikit-learn 1.4 and later."""

from typing import Any

import numpy as np
import pandas as pd

from rfgp import random
from rfgp.counts import counted
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.rows import merge_repeats
from rfgp.rows.names import without_index

try:
    from sklearn.utils.validation import validate_data as validate_data
except ImportError:  # before scikit-learn 1.6 a method of the estimator

    def validate_data(estimator: Any, *data: Any, **checks: Any) -> Any:
        """Check X (n, d), and y where it is given, and keep or compare the columns' number and names."""
        return estimator._validate_data(*data, **checks)


FLOATS = (np.float64, np.float32)
"""The types that are kept; others become the first."""


def resolve_seed(random_state: Any) -> int:
    """Return the seed that a `random_state` stands for.

    Args:
        random_state: An integer, which is the seed; a `numpy.random.RandomState`, of which one is drawn; or None for
            one from the system. numpy's global state is neither read nor changed.

    Raises:
        InvalidArgumentError: something else.
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        return random.resolve_seed(random_state)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            "random_state must be an integer from 0 to 2**63 - 1, a numpy.random.RandomState, or None, "
            f"got {random_state!r}."
        ) from error


def read_weights(sample_weight: Any, n: int) -> Any:
    """Return the weights of the rows that have a positive one, (m,) or None for ones, and the mask (n,) of these rows.

    Raises:
        DataError: another shape, or weights that are negative or not finite, or fewer than two positive ones.
    """
    if sample_weight is None:
        return None, np.ones(n, dtype=bool)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight is not an array of numbers: {error}.") from error
    weight = np.full(n, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (n,):
        raise DataError(
            f"sample_weight must have one value for each of the {counted(n, 'row')}, got shape {weight.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        raise DataError(f"sample_weight must be finite and not negative, but is {weight[bad[0]]:g} in row {bad[0]}.")
    if np.count_nonzero(weight) < 2:
        raise DataError("At least two observations need a positive sample_weight; rows of weight zero are left out.")
    return weight[weight > 0], weight > 0


def common_float(X: Any, y: Any) -> Any:
    """Return the floating dtype in which X (n, d) and y (n,) or (n, k) lose nothing: float32 or float64.

    Raises:
        DataError: y is not numeric.
    """
    if y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype} values; encode text and dates as numbers first.")
    common = np.result_type(X.dtype, y.dtype)
    return common if common in FLOATS else np.dtype(np.float64)


def read_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    exposure: Any = None,  # () or (n,)
) -> tuple[Any, Any, Any, Any]:
    """Return checked rows (m, d), under their names where they have some, targets, weights and exposures.

    Rows of weight zero are left out, and rows that repeat each other are merged (`merge_rows`).

    Raises:
        DataError: weights that cannot be used.
        ValueError: scikit-learn's, other data that cannot be used.
    """
    X, y = validate_data(estimator, X, y, dtype=FLOATS, multi_output=True, y_numeric=True, ensure_min_samples=2)
    dtype = common_float(X, y)
    y = y.astype(dtype, copy=False)
    each = [] if np.ndim(exposure) == 0 else [np.asarray(exposure)]
    X, rows, weight = merged(estimator, sample_weight, X.astype(dtype, copy=False), y, *each)
    return X, y[rows], weight, each[0][rows] if each else exposure


def merged(estimator: Any, sample_weight: Any, X: Any, *others: Any) -> tuple[Any, Any, Any]:
    """Return the rows that a process is given, without an index of pandas, their positions (m,) and weights.

    The index is looked for in all rows: those that are left once equal ones are merged do not count them.
    """
    named = named_rows(estimator, X)
    rows, weight = merge_rows(sample_weight, np.asarray(named), *others)
    return named.iloc[rows] if isinstance(named, pd.DataFrame) else named[rows], rows, weight


def named_rows(estimator: Any, X: Any) -> Any:
    """Return checked rows (n, d) under their names where they have some, which the process is to know as well.

    A column that is an index of pandas is left out, with a warning.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        estimator.used_columns_ = None
        return X
    frame = pd.DataFrame(X, columns=names)
    kept = without_index(frame, tuple(names), stacklevel=5)
    estimator.used_columns_ = None if len(kept) == len(names) else [list(names).index(name) for name in kept]
    return frame[list(kept)]


def read_new(estimator: Any, X: Any) -> Any:
    """Return checked new rows (n, d) of a fitted estimator, without the columns that its fit left out.

    Raises:
        ValueError: scikit-learn's.
    """
    X = validate_data(estimator, X, dtype=FLOATS, reset=False)
    kept = getattr(estimator, "used_columns_", None)
    return X if kept is None else X[:, kept]


def merge_rows(sample_weight: Any, *data: Any) -> tuple[Any, Any]:
    """Return the positions (m,) of the rows that a process is given, and their weights (m,), None for ones.

    A fit stops close to an optimum, not at it. Data that differ in the order of their sums alone may therefore end
    far apart, on one processor and not on another. Rows with weights, and the same rows written out, become the same
    numbers in the same order (`rfgp.rows.merge_repeats`).

    Args:
        sample_weight: How often each row counts (n,). If None, once.
        data: Everything by which rows differ, arrays (n,) or (n, k).

    Raises:
        DataError: weights that cannot be used.
    """
    weight, counts = read_weights(sample_weight, len(data[0]))
    kept = np.flatnonzero(counts)
    columns = [column for part in data for column in part[kept].reshape(len(kept), -1).T]
    rows, weight = merge_repeats(columns, weight)
    return kept[rows], weight
