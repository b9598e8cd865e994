"""Checks that all estimators share, for scikit-learn 1.4 and later."""

from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length

from rfgp import random
from rfgp.columns import Table
from rfgp.columns.table import names_of, without_index
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.messages import counted
from rfgp.rows import merge_repeats

try:
    from sklearn.utils.validation import validate_data as validate_data
except ImportError:  # before scikit-learn 1.6 a method of the estimator

    def validate_data(estimator: Any, *data: Any, **checks: Any) -> Any:
        """Check X (n, d), and y if it is given, and keep or compare the number and names of the columns."""
        if checks.pop("skip_check_array", False):
            checks["cast_to_ndarray"] = False
        return estimator._validate_data(*data, **checks)


FLOATS = (np.float64, np.float32)
"""The types that are kept; others become the first."""


def resolve_seed(random_state: Any) -> int:
    """Return the seed of a `random_state`.

    numpy's global state is neither read nor changed.

    Args:
        random_state: An integer, which is the seed, or a `numpy.random.RandomState`, which draws one. If None, the seed
            is from the system.

    Raises:
        InvalidArgumentError: If the value is not such an integer, or has another type.

    Examples:
        >>> resolve_seed(7)
        7
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
    """Return the positive weights (m,), and the mask (n,) of their rows.

    Without weights, the first result is None.

    Args:
        sample_weight: The weights (n,), or one weight of all rows. If None, there are no weights.
        n: The number of rows.

    Raises:
        DataError: If the weights have another shape, are negative or not finite, or fewer than two are positive.

    Examples:
        >>> read_weights([1.0, 0.0, 2.0], 3)[0].tolist()
        [1.0, 2.0]
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
        raise DataError("At least two weights of sample_weight must be positive. Rows of weight zero are left out.")
    return weight[weight > 0], weight > 0


def common_float(X: Any, y: Any) -> Any:
    """Return the floating dtype that represents X and y without loss: float32 or float64.

    The dtype is that of y if X is a dataframe.

    Args:
        X: Rows (n, d), an array or a dataframe.
        y: Targets (n,) or (n, k).

    Raises:
        DataError: If y is not numeric.

    Examples:
        >>> common_float(np.zeros((2, 1), dtype=np.float32), np.zeros(2)).name
        'float64'
    """
    if y.dtype.kind not in "fiub":
        raise DataError(f"y must be numeric, got {y.dtype}. Encode text and dates as numbers first.")
    common = np.result_type(getattr(X, "dtype", y.dtype), y.dtype)
    return common if common in FLOATS else np.dtype(np.float64)


def read_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    exposure: Any = None,  # () or (n,)
    *,
    read_targets: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Return checked rows (m, d), their targets, weights and exposures.

    Rows of weight zero are left out, and equal rows are merged (`merge_rows`).

    Args:
        estimator: The estimator. The names of the columns are stored in it.
        X: Rows (n, d), an array or a dataframe.
        y: Targets.
        sample_weight: The weights (n,). If None, ones.
        exposure: The exposures. If None, there are none.
        read_targets: The reader of targets that are not numbers. If None, they are numbers.

    Raises:
        DataError: If the weights cannot be used.
        ValueError: If other data cannot be used (raised by scikit-learn).

    Examples:
        >>> from rfgp.sklearn import GPRegressor
        >>> X, y, weight, _ = read_rows(GPRegressor(), [[0.0], [1.0], [0.0]], [2.0, 3.0, 2.0], None)
        >>> X.tolist(), y.tolist(), weight.tolist()
        ([[1.0], [0.0]], [3.0, 2.0], [1.0, 2.0])
    """
    options = {"multi_output": True, "y_numeric": True} if read_targets is None else {}
    estimator.keeps_columns_ = _has_mixed_columns(estimator.kernel, X)
    if estimator.keeps_columns_:
        X, y = _read_frame(estimator, X, y, options)
    else:
        X, y = validate_data(estimator, X, y, dtype=FLOATS, ensure_min_samples=2, **options)
    if read_targets is None:
        y = y.astype(common_float(X, y), copy=False)
        X = X if estimator.keeps_columns_ else X.astype(y.dtype, copy=False)
    else:
        y = read_targets(y)
    X = named_rows(estimator, X)
    each = [] if np.ndim(exposure) == 0 else [np.asarray(exposure)]
    rows, weight = merge_rows(sample_weight, *_columns(X), y, *each)
    X = X if len(rows) == len(y) and weight is None else _taken(X, rows)
    return X, y[rows], weight, each[0][rows] if each else exposure


def _taken(X: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows (m,) of an array or a dataframe of pandas, polars or Arrow."""
    return X[rows] if names_of(X) is None else nw.from_native(X, eager_only=True)[rows].to_native()


def _has_mixed_columns(kernel: Any, X: Any) -> bool:
    """Return whether X is a dataframe whose columns the model reads by itself.

    This is the case if a kernel is given, which names columns, or if a column does not hold numbers.
    """
    if names_of(X) is None:
        return False
    return not isinstance(kernel, str) or any(column.dtype.kind not in "fiub" for column in _columns(X))


def _read_frame(estimator: Any, X: Any, y: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Return a dataframe as it is and checked targets."""
    y = validate_data(estimator, y=y, **options)
    X = validate_data(estimator, X, skip_check_array=True)
    check_consistent_length(X, y)
    if len(y) < 2:
        raise DataError(f"X must have at least two rows, got {counted(len(y), 'sample')}.")
    return X, y


def _columns(X: Any) -> list[Any]:
    """Return the columns (n,) of an array or a dataframe as arrays."""
    return [np.asarray(column) for column in Table.of(X).columns.values()] if names_of(X) else list(X.T)


def named_rows(estimator: Any, X: Any) -> Any:
    """Return checked rows (n, d), as a dataframe if their columns have names.

    A column that is an index of pandas is left out, with a warning. The search for it is before the merge of equal
    rows, since it does not count the remaining rows.

    Args:
        estimator: The estimator, with the names of the columns. The columns in use are stored in it.
        X: Rows (n, d).
    """
    estimator.used_columns_ = None
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return X
    is_frame = estimator.keeps_columns_
    if not is_frame:
        with requires_extra("sklearn"):
            import pandas as pd

        X = pd.DataFrame(X, columns=names)
    kept = tuple(names)
    if not is_frame or _reads_all(estimator.kernel):  # the model warns of unnamed inputs
        kept = without_index(kept, Table.of(X).column, warns_of_inputs=False)
    if is_frame:
        return X if len(kept) == len(names) else nw.from_native(X, eager_only=True).select(list(kept)).to_native()
    estimator.used_columns_ = None if len(kept) == len(names) else [list(names).index(name) for name in kept]
    return X[list(kept)]


def _reads_all(kernel: Any) -> bool:
    """Return whether a kernel has a factor without columns of its own, which reads all."""
    return isinstance(kernel, str) or any(factor.columns is None for term in kernel.terms() for factor in term.factors)


def read_new(estimator: Any, X: Any) -> Any:
    """Return checked new rows of a fitted estimator, without the columns that its fit left out.

    Args:
        estimator: The fitted estimator.
        X: Rows (n, d).

    Raises:
        ValueError: If the rows cannot be used (raised by scikit-learn).
    """
    if estimator.keeps_columns_ and names_of(X) is not None:
        return validate_data(estimator, X, reset=False, skip_check_array=True)
    X = validate_data(estimator, X, dtype=FLOATS, reset=False)
    return X if estimator.used_columns_ is None else X[:, estimator.used_columns_]


def merge_rows(sample_weight: Any, *data: Any) -> tuple[Any, Any]:
    """Return the positions (m,) of distinct rows, and their weights (m,).

    The weights are None if all are 1.

    A fit stops near an optimum, not at it. Data that differ only in the order of their sums could therefore lead to
    different results on different processors. Rows with weights and written-out repetitions give the same numbers in
    the same order (`rfgp.rows.merge_repeats`).

    Args:
        sample_weight: The weights (n,). If None, ones.
        data: All inputs and targets, arrays (n,) or (n, k).

    Raises:
        DataError: If the weights cannot be used.

    Examples:
        >>> rows, weight = merge_rows(None, np.array([3.0, 1.0, 3.0]))
        >>> rows.tolist(), weight.tolist()
        ([0, 1], [2.0, 1.0])
    """
    weight, counts = read_weights(sample_weight, len(data[0]))
    kept = np.flatnonzero(counts)
    columns = [_comparable(column) for part in data for column in part[kept].reshape(len(kept), -1).T]
    rows, weight = merge_repeats(columns, weight)
    return kept[rows], weight


def _comparable(
    column: Any,  # (n,)
) -> Any:
    """Return a column whose cells have an order: objects of several types as text."""
    return column if column.dtype.kind != "O" else np.array([repr(cell) for cell in column])
