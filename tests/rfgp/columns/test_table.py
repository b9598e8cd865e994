"""Tables of every container, their keys, and containers that are no tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from frames import CONTAINERS

from rfgp import DataError
from rfgp.columns import Table

COLUMNS = {"t": [0.5, 1.5, 2.5], "store": ["b", "a", "b"], "count": [3, 1, 2]}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_have_the_same_columns(container):
    table = Table.of(container(COLUMNS))
    assert table.keys == ("t", "store", "count")
    assert table.num_rows == 3
    for key, column in COLUMNS.items():
        cells = table.cells(key).expanded()
        assert list(cells.values) == column
        assert not cells.missing.any()
    assert table.output_format.is_numpy
    assert table.output_format.like.dtype == torch.float64


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_the_target_is_left_out(container):
    table = Table.of(container(COLUMNS), target="count")
    assert table.keys == ("t", "store")
    with pytest.raises(DataError, match="no column 'count'"):
        table.column("count")
    with pytest.raises(DataError, match=r"no column 'stores'.*Did you mean 'store'\?"):
        Table.of(container(COLUMNS)).without("stores")


def test_a_table_is_its_own_table():
    table = Table.of(COLUMNS)
    assert Table.of(table) is table
    assert repr(table) == "Table(3 rows, 3 columns: t, store, count)"


ARRAYS = {
    "numpy": np.arange(6.0).reshape(3, 2),
    "torch": torch.arange(6.0).reshape(3, 2).double(),
    "list of lists": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
    "list of tuples": [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)],
    "list of arrays": list(np.arange(6.0).reshape(3, 2)),
    "matrix": np.arange(6.0).reshape(3, 2).view(np.matrix),
}


@pytest.mark.parametrize("given", ARRAYS.values(), ids=ARRAYS)
def test_columns_of_arrays_are_numbered(given):
    table = Table.of(given)
    assert table.keys == (0, 1)
    assert list(table.cells(1).values) == [1.0, 3.0, 5.0]
    with pytest.raises(DataError, match=r"'t'.*numbered 0 to 1.*Pass a dataframe"):
        table.column("t")
    with pytest.raises(DataError, match="no column 2"):
        table.column(2)
    with pytest.raises(DataError, match="no column True"):
        table.column(True)


def test_lists_of_rows_keep_the_type_of_each_column():
    table = Table.of([["a", 1.5], ["b", 2]])
    assert [table.cells(key).cell_type.value for key in (0, 1)] == ["text", "numbers"]


def test_numbers_are_no_keys_of_names():
    with pytest.raises(DataError, match=r"no column 1, .*Use 'store' for the column at position 1"):
        Table.of(pd.DataFrame(COLUMNS)).column(1, "rbf(1)")


def test_frames_may_have_numbers_as_names():
    table = Table.of(pd.DataFrame(np.zeros((2, 3))))
    assert table.keys == (0, 1, 2)
    assert len(table.column(2)) == 2


def test_structured_arrays_are_tables():
    rows = np.array([(0.5, "a"), (1.5, "b")], dtype=[("t", "f8"), ("store", "U1")])
    assert Table.of(rows).keys == ("t", "store")


LABELS = {
    "list": ["a", "b"],
    "array": np.array(["a", "b"]),
    "objects": np.array(["a", "b"], dtype=object),
    "series": pd.Series(["a", "b"]),
    "index": pd.Index(["a", "b"]),
    "category": pd.Series(["a", "b"], dtype="category"),
}


@pytest.mark.parametrize("given", LABELS.values(), ids=LABELS)
def test_a_sequence_of_labels_is_one_column(given):
    table = Table.of(given)
    assert table.keys == ("node",)
    for key in ("node", 0):
        assert list(table.cells(key).expanded().values) == ["a", "b"]
    with pytest.raises(DataError, match='only column is "node"'):
        table.column("t")


def test_tuples_are_labels_as_well_as_rows():
    table = Table.of([(0, 1), (2, 3)])
    assert table.keys == (0, 1)
    assert table.column("node").tolist() == [(0, 1), (2, 3)]
    assert Table.of([(0, 1), (2,)]).keys == ("node",)


ORIGINS = {
    "float32 array": (np.zeros((2, 2), np.float32), True, torch.float32),
    "float32 tensor": (torch.zeros(2, 2), False, torch.float32),
    "integers": (np.zeros((2, 2), int), True, torch.float64),
    "bfloat16": (torch.zeros(2, 2, dtype=torch.bfloat16), False, torch.bfloat16),
    "float32 frame": (pd.DataFrame({"a": np.zeros(2, np.float32)}), True, torch.float32),
    "mixed frame": (pd.DataFrame({"a": np.zeros(2, np.float32), "b": [1.0, 2.0]}), True, torch.float64),
    "dict of tensors": ({"a": torch.zeros(2), "b": torch.ones(2)}, False, torch.float32),
    "tensor and text": ({"a": torch.zeros(2), "b": ["x", "y"]}, False, torch.float64),
}


@pytest.mark.parametrize(("given", "is_numpy", "dtype"), ORIGINS.values(), ids=ORIGINS)
def test_origin_says_where_results_go_back_to(given, is_numpy, dtype):
    output_format = Table.of(given).output_format
    assert (output_format.is_numpy, output_format.like.dtype, output_format.like.shape) == (is_numpy, dtype, (0,))


def test_a_table_of_the_target_alone_has_an_origin():
    table = Table.of({"y": [1.0, 2.0]}, target="y")
    assert (table.num_rows, table.output_format.like.dtype) == (2, torch.float64)
    assert repr(table) == "Table(2 rows, 0 columns: )"


class Raising:
    """An object that fails in every way in which a caller's own class can."""

    def __array__(self, *args, **options):
        raise RuntimeError("broken on purpose")

    def __len__(self):
        return 2

    def __repr__(self):
        raise RuntimeError("broken on purpose")


class RaisingFrame(Raising):
    @property
    def columns(self):
        raise RuntimeError("broken on purpose")


class Lazy:
    columns = ("a", "b")

    def collect(self):
        raise AssertionError


BAD = {
    "nothing": (None, "got None"),
    "a number": (3, "got 3"),
    "text": ("abc", "got 'abc'"),
    "a set": ({1, 2}, "must be a dataframe"),
    "a generator": ((i for i in range(3)), "must be a dataframe"),
    "a scalar": (np.float64(3), r"got \(\)"),
    "three axes": (np.zeros((2, 2, 2)), r"\(2, 2, 2\). Use X.reshape\(len\(X\), -1\)"),
    "three axes of lists": ([[[1.0]]], "d >= 1"),
    "no columns": (np.zeros((3, 0)), r"\(3, 0\)"),
    "no rows": (np.zeros((0, 3)), "an array without rows"),
    "an empty list": ([], "without rows"),
    "empty rows": ([[], []], "d >= 1"),
    "ragged rows": ([[1, 2], [1]], "rows of 1 to 2 values"),
    "an empty dict": ({}, "without columns"),
    "an empty frame": (pd.DataFrame(), "without columns"),
    "a frame without rows": (pd.DataFrame({"a": []}), "without rows"),
    "a ragged dict": ({"a": [1, 2], "b": [1]}, "'a' has 2 rows and 'b' has 1"),
    "a dict of numbers": ({"a": 3}, "must be an array or a list, got 3"),
    "a dict of texts": ({"a": "xyz"}, "must be an array or a list, got 'xyz'"),
    "a dict of matrices": ({"a": np.zeros((2, 1))}, r"'a'.*got \(2, 1\).*reshape"),
    "a dict of frames": ({"a": pd.DataFrame({"b": [1]})}, r"'a'.*got \(1, 1\)"),
    "a tuple as a key": ({("a", "b"): [1]}, "must be names or integers"),
    "a boolean as a key": ({True: [1]}, "must be names or integers"),
    "the same name twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "unique names, got 'a'"),
    "names of several parts": (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "Rename them"),
    "a sparse tensor": (torch.zeros(2, 2).to_sparse(), "to_dense"),
    "a tensor without values": (torch.zeros(2, 2, device="meta"), "meta device"),
    "a dict of sparse tensors": ({"a": torch.zeros(2).to_sparse()}, "to_dense"),
    "a lazy frame": (Lazy(), "collect"),
    "a raising array": (Raising(), "broken on purpose"),
    "a raising frame": (RaisingFrame(), "broken on purpose"),
    "a raising column": ({"a": Raising()}, "broken on purpose"),
}


@pytest.mark.parametrize(("given", "words"), BAD.values(), ids=BAD)
def test_other_objects_than_tables_are_refused(given, words):
    with pytest.raises(DataError, match=words):
        Table.of(given)


def test_memory_errors_stay_memory_errors():
    class Large(Raising):
        def __array__(self, *args, **options):
            raise MemoryError

    with pytest.raises(MemoryError):
        Table.of(Large())


def test_columns_on_several_devices_are_refused():
    class Elsewhere(torch.Tensor):
        device = torch.device("cuda")

    with pytest.raises(DataError, match="on one device, got cpu, cuda"):
        Table.of({"a": torch.zeros(2), "b": torch.zeros(2).as_subclass(Elsewhere)})
