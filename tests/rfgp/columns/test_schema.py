"""Schemas: matrices of numbers of any table, levels, nodes, gradients and types."""

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from frames import CONTAINERS

import graphs
from rfgp import DataError, InvalidArgumentError
from rfgp.columns import ColumnKind, ColumnRequest, ColumnSchema, Schema, Table

NUMBER, COORDINATE, LEVEL, NODE = ColumnKind
COLUMNS = {
    "t": [0.5, 1.5, 2.5, 3.5],
    "store": ["south", "north", "east", "north"],
    "open": [True, False, True, True],
    "code": [30, 7, 30, 12],
}


def requests(*pairs):
    return [ColumnRequest(key, kind, f"{kind}({key})") for key, kind in pairs]


def line():
    return graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_read_as_the_same_matrix(container):
    wanted = requests(("t", NUMBER), ("store", LEVEL), ("open", LEVEL), ("code", LEVEL), ("code", NUMBER))
    table = Table.of(container(COLUMNS))
    schema = Schema.fit(wanted, table)
    assert [column.levels for column in schema.columns[1:4]] == [("east", "north", "south"), (False, True), (7, 12, 30)]
    assert [type(column.levels[0]) for column in schema.columns[1:4]] == [str, bool, int]
    expected = [[0.5, 2, 1, 2, 30], [1.5, 1, 0, 0, 7], [2.5, 0, 1, 2, 30], [3.5, 1, 1, 1, 12]]
    found = schema.read(table)
    assert found.dtype == torch.float64
    assert found.tolist() == expected


@pytest.mark.parametrize(("fitted", "new"), [*product(CONTAINERS.values(), repeat=2)])
@pytest.mark.thinned(9)
def test_schemas_read_every_other_container(fitted, new):
    schema = Schema.fit(requests(("t", NUMBER), ("store", LEVEL)), Table.of(fitted(COLUMNS)))
    found = schema.read(Table.of(new({"t": [1.0, 2.0, 3.0], "store": ["west", "north", "west"], "more": [1, 2, 3]})))
    assert found.tolist() == [[1.0, 3.0], [2.0, 1.0], [3.0, 3.0]]


def test_new_levels_are_numbered_by_appearance():
    schema = Schema.fit(requests(("store", LEVEL)), Table.of(COLUMNS))
    assert schema.columns[0].num_levels == 3
    codes = schema.read(Table.of({"store": ["z", "x", "north", "z", "y", "x"]}))[:, 0]
    assert codes.tolist() == [3.0, 4.0, 1.0, 3.0, 5.0, 4.0]
    assert schema.labels(0, codes.tolist()) == [None, None, "north", None, None, None]
    category = pd.Categorical(["z", "x", "north", "z"], categories=["x", "y", "north", "z"])
    assert schema.read(Table.of({"store": category}))[:, 0].tolist() == [3.0, 4.0, 1.0, 3.0]


def test_categories_that_occur_keep_their_order():
    values = pd.Series(["low", "high", "low"]).astype(pd.CategoricalDtype(["low", "mid", "high"]))
    schema = Schema.fit(requests(("a", LEVEL)), Table.of(pd.DataFrame({"a": values})))
    assert schema.columns[0].levels == ("low", "high")
    assert schema.read(Table.of({"a": ["high", "mid", "low"]}))[:, 0].tolist() == [1.0, 2.0, 0.0]


def test_categories_of_numbers_read_as_numbers():
    table = Table.of({"a": pd.Categorical([2.5, 1.5, 2.5]), "b": pd.Categorical([3.0, 1.0, 3.0], [3.0, 1.0])})
    schema = Schema.fit(requests(("a", NUMBER), ("b", LEVEL)), table)
    assert schema.read(table).tolist() == [[2.5, 0.0], [1.5, 1.0], [2.5, 0.0]]
    assert schema.columns[1].levels == (3, 1)


def test_arrow_dictionaries_may_repeat_words():
    pa = pytest.importorskip("pyarrow")
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["a", "b", "a"]))
    table = Table.of(pa.table({"a": words}))
    schema = Schema.fit(requests(("a", LEVEL)), table)
    assert schema.columns[0].levels == ("a", "b")
    assert schema.read(table)[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_ordered_categories_of_polars_keep_their_order():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": pl.Series(["low", "high"], dtype=pl.Enum(["low", "mid", "high"]))})
    assert Schema.fit(requests(("a", LEVEL)), Table.of(frame)).columns[0].levels == ("low", "high")


@pytest.mark.parametrize("given", [[3, 1, 3], [3.0, 1.0, 3.0], np.array([3, 1, 3], np.uint8), torch.tensor([3, 1, 3])])
def test_whole_numbers_are_integer_levels(given):
    table = Table.of({"a": given})
    schema = Schema.fit(requests(("a", LEVEL)), table)
    assert schema.columns[0].levels == (1, 3)
    assert all(type(level) is int for level in schema.columns[0].levels)
    assert schema.read(Table.of({"a": [3.0, 9.0]}))[:, 0].tolist() == [1.0, 2.0]


def test_levels_match_a_loop():
    rng = np.random.default_rng(0)
    train, new = rng.integers(0, 30, 200), rng.integers(0, 60, 300)
    schema = Schema.fit(requests(("a", LEVEL)), Table.of({"a": train}))
    levels, codes = sorted(set(train.tolist())), []
    for label in new.tolist():
        if label not in levels:
            levels.append(label)
        codes.append(levels.index(label))
    assert schema.read(Table.of({"a": new}))[:, 0].tolist() == codes
    assert schema.read(Table.of({"a": new.astype(object)}))[:, 0].tolist() == codes
    assert schema.read(Table.of({"a": pd.Categorical(new)}))[:, 0].tolist() == codes


def test_terms_share_columns():
    wanted = [
        ColumnRequest("t", NUMBER, "rbf(t)"),
        ColumnRequest("t", NUMBER, "linear(t)"),
        ColumnRequest("t", COORDINATE, "mesh"),
        ColumnRequest("t", NUMBER, "rbf(t)"),
    ]
    schema = Schema.fit(wanted, Table.of(COLUMNS))
    assert [column.terms for column in schema.columns] == [("rbf(t)", "linear(t)"), ("mesh",)]
    assert schema.kinds == (NUMBER, COORDINATE)
    assert schema.is_standardizable == (True, False)
    assert [schema.column_of("t", kind) for kind in ("number", COORDINATE)] == [0, 1]
    with pytest.raises(InvalidArgumentError, match=r"one column 't'.*column 't', a number; column 't', a coord"):
        schema.column_of("t", LEVEL)


def test_descriptions_are_short():
    wanted = [
        *requests(("t", NUMBER), ("t", COORDINATE), ("store", LEVEL)),
        ColumnRequest("node", NODE, "nodes", line()),
    ]
    schema = Schema.fit(wanted, Table.of(COLUMNS | {"node": ["a", "b", "c", "d"]}))
    assert [schema.describe(place) for place in range(4)] == [
        "column 't', a number",
        "column 't', a coordinate",
        "column 'store', 3 levels",
        "column 'node', a node of a graph",
    ]
    with pytest.raises(InvalidArgumentError, match="must be that of a column of levels"):
        schema.labels(0, [1.0])


def test_no_requests_make_a_matrix_without_columns():
    table = Table.of(COLUMNS)
    assert Schema.fit([], table).read(table).shape == (4, 0)
    assert Schema.fit([], Table.of(np.zeros(3))).read(Table.of(np.zeros(3))).shape == (3, 0)


NODES = {
    "list": ["d", "a", "b"],
    "array": np.array(["d", "a", "b"]),
    "series": pd.Series(["d", "a", "b"]),
    "category": pd.Series(["d", "a", "b"], dtype="category"),
    "dict": {"node": ["d", "a", "b"]},
    "frame": pd.DataFrame({"node": ["d", "a", "b"]}),
}


@pytest.mark.parametrize("given", NODES.values(), ids=NODES)
def test_nodes_are_positions(given):
    table = Table.of(given)
    schema = Schema.fit([ColumnRequest("node", NODE, "nodes", line())], table)
    assert schema.read(table).tolist() == [[3.0], [0.0], [1.0]]


@pytest.mark.parametrize("given", [[3, 0, 1], np.array([3, 0, 1]), torch.tensor([3, 0, 1]), range(3)])
def test_numbers_may_be_nodes(given):
    numbered = graphs.Graph.from_edges([(0, 1), (1, 2), (2, 3)])
    table = Table.of(given)
    wanted = [ColumnRequest("node", NODE, "nodes", numbered), ColumnRequest(0, NUMBER, "rbf(0)")]
    found = Schema.fit(wanted, table).read(table)
    assert found[:, 0].tolist() == found[:, 1].tolist() == list(map(float, given))


@pytest.mark.parametrize(
    "given", [[(0, 1), (2, 2)], {"node": [(0, 1), (2, 2)]}, pd.DataFrame({"node": [(0, 1), (2, 2)]})]
)
def test_tuples_may_be_nodes(given):
    table = Table.of(given)
    schema = Schema.fit([ColumnRequest("node", NODE, "nodes", graphs.Graph.from_grid((3, 3)))], table)
    assert schema.read(table).tolist() == [[1.0], [8.0]]


def test_two_graphs_read_one_column_apart():
    one, two = line(), graphs.Graph.from_edges([("b", "a"), ("a", "d"), ("d", "c")])
    table = Table.of({"node": ["a", "b", "c"]})
    schema = Schema.fit([ColumnRequest("node", NODE, "one", one), ColumnRequest("node", NODE, "two", two)], table)
    assert schema.read(table).tolist() == [[float(one.index([x])[0]), float(two.index([x])[0])] for x in "abc"]
    assert [schema.column_of("node", NODE, graph) for graph in (one, two)] == [0, 1]
    with pytest.raises(InvalidArgumentError, match="one column"):
        schema.column_of("node", NODE)


def test_tensors_keep_their_gradient():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((5, 3)), requires_grad=True)
    wanted = requests((2, NUMBER), (0, COORDINATE))
    schema = Schema.fit(wanted, Table.of(x.detach()))
    assert torch.autograd.gradcheck(lambda x: schema.read(Table.of(x)), (x,))
    (gradient,) = torch.autograd.grad(schema.read(Table.of(x)).sum(), x)
    assert gradient.tolist() == [[1.0, 0.0, 1.0]] * 5


def test_tensors_in_a_dict_keep_their_gradient():
    t = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    table = Table.of({"t": t, "store": ["a", "b"]})
    found = Schema.fit(requests(("t", NUMBER), ("store", LEVEL)), table).read(table)
    (gradient,) = torch.autograd.grad(found.square().sum(), t)
    assert gradient.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    "given", [np.ones((2, 2), np.float32), torch.ones(2, 2), pd.DataFrame(np.ones((2, 2), np.float32))]
)
def test_float32_stays_if_all_columns_are_numbers(given):
    table = Table.of(given)
    numbers = Schema.fit(requests((0, NUMBER), (1, COORDINATE)), table)
    mixed = Schema.fit(requests((0, NUMBER), (1, LEVEL)), table)
    assert numbers.read(table).dtype == torch.float32
    assert mixed.read(table).dtype == torch.float64


@pytest.mark.parametrize("kind", [NUMBER, LEVEL])
def test_the_matrix_shares_no_memory(kind):
    values = np.array([[1.0], [2.0]])
    table = Table.of(values)
    found = Schema.fit(requests((0, kind)), table).read(table)
    before = found.clone()
    values[:] = 7
    assert torch.equal(found, before)
    tensor = torch.tensor([[1.0], [2.0]])
    found = Schema.fit(requests((0, kind)), Table.of(tensor)).read(Table.of(tensor))
    tensor[:] = 7
    assert torch.equal(found, before.to(found))


@pytest.mark.parametrize(
    "given", [np.array([[1.0, 2.0]], ">f8"), np.array([[2.0, 1.0]])[:, ::-1], np.ones((1, 2), np.float16)]
)
def test_unusual_arrays_are_read(given):
    table = Table.of(given)
    assert Schema.fit(requests((0, NUMBER), (1, NUMBER)), table).read(table).tolist() == given.astype(float).tolist()


def test_booleans_are_numbers():
    table = Table.of({"a": [True, False], "b": np.array([True, False]), "c": [True, 2]})
    found = Schema.fit(requests(*((key, NUMBER) for key in "abc")), table).read(table)
    assert found.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 2.0]]


def test_schemas_are_values():
    table = Table.of(COLUMNS | {"node": ["a", "b", "c", "d"]})
    wanted = [*requests(("t", NUMBER), ("store", LEVEL)), ColumnRequest("node", NODE, "nodes", line())]
    schema = Schema.fit(wanted, table)
    again = pickle.loads(pickle.dumps(schema))
    assert torch.equal(again.read(table), schema.read(table))
    assert schema == Schema.fit(wanted, table)
    with pytest.raises(AttributeError):
        schema.columns = ()


WRONG = {
    "a key": ((("t",), NUMBER, "rbf"), "must be a name"),
    "a negative key": ((-1, NUMBER, "rbf"), "a number from 0"),
    "a boolean key": ((True, NUMBER, "rbf"), "must be a name"),
    "a kind": (("t", "numbers", "rbf"), "kind must be one of number, coordinate, level, node"),
    "a term": (("t", NUMBER, 3), "term must be"),
    "no graph": (("t", NODE, "nodes"), "nodes must be a graph"),
    "a list of nodes": (("t", NODE, "nodes", ["a"]), "nodes must be a graph"),
    "a graph of another kind": (("t", NUMBER, "rbf", line()), "nodes must be None"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_wrong_requests_are_refused(arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        ColumnRequest(*arguments)


def test_requests_are_plain_values():
    assert ColumnRequest(np.int64(2), "number", "rbf") == ColumnRequest(2, NUMBER, "rbf")
    with pytest.raises(InvalidArgumentError, match="ColumnRequest objects, got 't'"):
        Schema.fit(["t"], Table.of(COLUMNS))


def test_messages_name_at_most_three_terms():
    assert ColumnSchema("t", NUMBER).readers == "the kernel"
    assert ColumnSchema("t", NUMBER, ("a",)).readers == "a"
    assert ColumnSchema("t", NUMBER, ("a", "b")).readers == "a and b"
    assert ColumnSchema("t", NUMBER, ("a", "b", "c", "d")).readers == "a, b, c and others"


def test_a_missing_column_names_its_term():
    schema = Schema.fit(requests(("store", LEVEL)), Table.of(COLUMNS))
    with pytest.raises(DataError, match=r"no column 'store', which level\(store\) reads.*Did you mean 'Store'"):
        schema.read(Table.of({"Store": ["north"]}))
