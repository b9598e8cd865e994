"""The same columns in every container that `rfgp.columns` reads."""

import numpy as np
import pandas as pd
import pytest


def to_pandas(columns):
    return pd.DataFrame(columns)


def to_pandas_objects(columns):
    return pd.DataFrame(columns, dtype=object)


def to_pandas_arrow(columns):
    pytest.importorskip("pyarrow")
    return pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow")


def to_pandas_nullable(columns):
    return pd.DataFrame(columns).convert_dtypes()


def to_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def to_arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


def to_arrow_chunks(columns):
    whole, pa = to_arrow(columns), pytest.importorskip("pyarrow")
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


def to_lists(columns):
    return columns


def to_objects(columns):
    return {key: np.fromiter(column, dtype=object) for key, column in columns.items()}


CONTAINERS = {
    "pandas": to_pandas,
    "pandas objects": to_pandas_objects,
    "pandas with Arrow": to_pandas_arrow,
    "pandas with NA": to_pandas_nullable,
    "polars": to_polars,
    "Arrow": to_arrow,
    "Arrow in chunks": to_arrow_chunks,
    "lists": to_lists,
    "arrays of objects": to_objects,
}
