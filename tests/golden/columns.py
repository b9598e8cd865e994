"""What columns of each container, file and block become, or how they are refused.

A case is a column of odd cells. Its results are texts: what each door of the package makes of the column, by the
names of the containers that lead to the same result. An error is its class and the beginning of its message.
"""

import datetime as dt
import json
import re
import tempfile
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

import rfgp
from rfgp import datasets, tables
from rfgp import kernels as k
from rfgp.sklearn import GPRegressor

DAY, NOON = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)
SUMMER, WINTER = (dt.timezone(dt.timedelta(hours=hours)) for hours in (2, 1))
BERLIN = pd.date_range("2024-03-30 20:00", periods=6, freq="5h", tz="Europe/Berlin")
IDS = [f"n{number:03d}" for number in range(130)]
CELLS = {
    "numbers": [0.5, 1.5, -2.5, 1.5],
    "numbers with a gap": [0.5, None, -2.5, 1.5],
    "integers": [30, 7, 30, 12],
    "integers with a gap": [30, 7, None, 12],
    "large integers": [2**60, 2**60 + 1, 2**60 + 3, 2**60],
    "larger integers": [2**63 + 5, 2**63 + 6, 2**63 + 5, 2**63 + 5],
    "huge integers": [1, 10**400, 2, 3],
    "booleans": [True, False, True, True],
    "booleans with a gap": [True, None, True, False],
    "booleans and integers": [True, 2, 3, 2],
    "infinite": [1.0, float("inf"), 2.0, float("-inf")],
    "complex": [1j, 2.0, 1j, 1j],
    "decimals": [Decimal("1.25"), Decimal("2.50"), Decimal("1.25"), Decimal("-3.00")],
    "whole floats": [3.0, 1.0, 3.0, 2.0],
    "text": ["south", "north", "south", "north"],
    "text with a gap": ["south", "north", None, "north"],
    "blank text": ["south", " ", "", "south"],
    "leading zeros": ["01", "1", "01", "001"],
    "exponents": ["1e5", "1E+5", "100000", "2"],
    "numbers as text": ["1.5", "2", "1.5", " 3 "],
    "a word among numbers": ["1", "2", "high", "4"],
    "a number among words": ["red", "blue", "3", "red"],
    "decimal commas": ["1,5", "2,25", "1,5", "3,0"],
    "groups of thousands": ["1,200", "950", "12,000", "1,200"],
    "both marks": ["1.234,50", "0,5", "1.234,50", "7,0"],
    "currency": ["7,00 EUR", "1.234,50 EUR", "7,00 EUR", "8,00 EUR"],
    "percents": ["5 %", "7.5 %", "5 %", "5 %"],
    "true and false": ["True", "false", "True", "TRUE"],
    "text and integers": ["x", 7, "x", 7],
    "dates": [DAY, DAY + dt.timedelta(1), DAY, DAY - dt.timedelta(59)],
    "dates with a gap": [DAY, None, DAY, DAY - dt.timedelta(59)],
    "times": [NOON, NOON + dt.timedelta(hours=6), NOON, NOON - dt.timedelta(seconds=1)],
    "dates and times": [DAY, NOON, DAY, NOON],
    "dates and numbers": [DAY, 1.5, DAY, 2.5],
    "a zone": list(BERLIN[:4]),
    "offsets": [NOON.replace(tzinfo=zone) for zone in (SUMMER, WINTER, SUMMER, WINTER)],
    "a zone and none": [BERLIN[0], NOON, BERLIN[0], NOON],
    "early dates": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1, 1, 1), dt.date(1969, 12, 31)],
    "dates as text": ["2024-02-29", "2024-03-01T06:00", "2024-02-29", "1969-12-31 12:00:00"],
    "zones as text": ["2024-02-29T06:00Z", "2024-03-01T06:00+01:00", "2024-02-29T06:00Z", "2024-02-29T06:00Z"],
    "some zones as text": ["2024-02-29T06:00Z", "2024-03-01T06:00", "2024-02-29", "2024-02-29"],
    "no such date": ["2024-02-30", "2024-03-01", "2024-03-01", "2024-03-01"],
    "other dates": ["29/02/2024", "01/03/2024", "29/02/2024", "01/03/2024"],
    "durations": [dt.timedelta(hours=hours) for hours in (36, 0, -6, 24)],
    "nothing": [None, None, None, None],
    "objects": [{}, {}, {}, {}],
    "identifiers": IDS[:4],
    "many identifiers": IDS,
    "sixty words": [*IDS[:60], *IDS[:60]],
    "words that rarely repeat": [*IDS[:110], *IDS[:20]],
    "many words": IDS * 4,
    "very many words": [f"{word}{number}" for number in range(3) for word in IDS] * 3,
}
"""The cells of a column."""
CONTAINERS = {
    "lists": dict,
    "arrays": lambda columns: {key: np.asarray(column) for key, column in columns.items()},
    "objects": lambda columns: {key: np.fromiter(column, dtype=object) for key, column in columns.items()},
    "tensors": lambda columns: {key: torch.as_tensor(column) for key, column in columns.items()},
    "pandas": pd.DataFrame,
    "pandas objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas NA": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas Arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda columns: pd.DataFrame(columns).astype({"c": "category"}),
    "polars": lambda columns: pl.DataFrame(columns, strict=True),
    "Arrow": pa.table,
    "Arrow dictionary": lambda columns: pa.table({key: _coded(column, key) for key, column in columns.items()}),
}
FRAMES = ("pandas", "pandas objects", "pandas NA", "pandas categories", "polars", "Arrow", "Arrow dictionary")
OPTIONS = {
    "plain": {},
    "one-hot": {"categories": "one-hot", "dates": "days", "missing": "mean"},
    "levels": {"categories": "levels", "dates": "days", "missing": "drop"},
    "dropped": {"categories": "drop", "dates": "drop", "missing": "drop"},
    "forced": {"as_categories": "c", "missing": "drop"},
    "forced levels": {"as_categories": "c", "categories": "levels", "missing": "mean"},
    "kernel levels": {"levels": "c", "columns": ("c", "x")},
    "commas": {"decimal": ",", "thousands": ".", "categories": "levels"},
    "example": {"numbers": {"c": "1.234,50 EUR"}},
}
STRANGERS = {"text": "zzz", "number": 12.5, "zone": BERLIN[5]}


OURS = (rfgp.IndexColumnWarning, rfgp.NewLevelWarning, rfgp.IdentifierWarning, rfgp.BooleanTargetWarning)
"""The warnings that are part of a result."""


def _coded(column, key):
    return pa.array(column).dictionary_encode() if key == "c" else pa.array(column)


class Numbers(k.Kernel):
    """A kernel whose matrix has the numbers that a kernel of numbers is given, in its rows."""

    def covariance(self, a, b, values):
        return b[:, 0].expand(len(a), len(b))


class Codes(k.Group):
    """The same for a kernel of levels."""

    covariance = Numbers.covariance


def shown(value):
    """Return what a door gives as one short line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {shown(part)}" for key, part in value.items())
    if isinstance(value, np.ndarray | torch.Tensor):
        value = value.tolist()
    if isinstance(value, list) and len(value) > 8:
        numbers = np.asarray(value, dtype=float)
        value = [*numbers.shape, float(numbers.sum()), float((numbers.T**2 @ np.arange(len(value))[::-1]).sum())]
    return value if isinstance(value, str) else json.dumps(_rounded(value), ensure_ascii=False, default=str)


def _rounded(value):
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def outcome(call):
    """Return the result of a call, or the class and message of its error, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = shown(call())
        except Exception as error:
            found = described(error)
    return " | ".join([found, *(described(one.message) for one in caught if issubclass(one.category, OURS))])


def described(message):
    """Return the class of an error or warning, and the beginning of its message, which names the column and cell."""
    words = re.sub(r"\S+[/\\](?=(t|more|pandas|polars)\.)|(?<=: )The dataframe(?=: )", "", str(message))
    words = re.sub(r"^(t.csv|pandas.parquet|polars.parquet|The dataframe|X|A batch): ", "", words)
    return f"{type(message).__name__}: {' '.join(words.split())[:80]}"


def made(container, columns):
    """Return a table, or None if the container cannot hold the cells."""
    try:
        table = CONTAINERS[container](columns)
    except Exception:
        return None
    return None if container == "polars" and table["c"].dtype == pl.Object else table  # polars loses such cells


def columns_of(cells):
    """Return a table of a column of cells, one of numbers, and targets."""
    numbers = [number % 7 - 2 for number in range(len(cells))]
    return {"x": numbers, "c": cells, "y": [1 + number % 3 for number in range(len(cells))]}


def as_text(cells):
    """Return cells as they are in a text file."""
    return ["" if cell is None else f'"{cell}"' if "," in str(cell) else str(cell) for cell in cells]


def linear(X):
    """Return the columns that a model of all columns reads, and the matrix of their products."""
    kernel = k.Linear(variance=1.0, origin=0.0)
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), standardize=False, start={"noise": 1.0, "mean": 0.0}, seed=0)
    gp.condition(X, np.arange(len(X["x"])) * 1.0)
    return gp, {"kernel": name_of(gp), "products": gp.prior_covariance(X).detach()[0]}


def name_of(gp):
    """Return the kernel of a model, without what is the same in all."""
    return str(gp.kernel)[:120].replace(".named('linear')", "").replace("origin=0, ", "")


def in_memory(cells):
    """Yield the doors of a column in memory: the door, the container, and a function of no arguments."""
    columns = columns_of(cells)
    X = {key: columns[key] for key in ("x", "c")}
    for name in CONTAINERS:
        table = made(name, X)
        if table is None:
            continue
        for door, kernel in (("number", Numbers("c")), ("level", Codes("c"))):
            yield door, name, lambda kernel=kernel, table=table: kernel.matrix(table)[0]
        yield "all", name, lambda table=table: linear(table)[1]
    if len(cells) > 8:
        return
    for stranger, cell in STRANGERS.items():
        new = {"c": [*cells[:2], cell]}
        for door, kernel in (("number", Numbers("c")), ("level", Codes("c"))):
            yield f"new {stranger} as {door}", "lists", lambda kernel=kernel, new=new: kernel.matrix(X, new)[0]
    new = {"x": [1.0, 2.0, 3.0], "c": [cells[0], cells[1], "zzz"]}
    yield "new text of all", "lists", lambda: linear(X)[0].prior_covariance(new).detach()[0]


def read(path, more, **options):
    """Return what a table becomes, and what new rows become by its schema."""
    table = tables.read_table(path, "y", **options)
    roles = [
        f"{rule.name} {rule.role} {','.join(rule.levels[:4])} {rule.zone}{rule.example}"
        for rule in table.schema.inputs[1:]
    ]
    found = {"roles": "; ".join(roles), "X": table.X[:, 1:]}
    found |= {"rows": table.rows} if len(table.rows) < table.num_rows else {}
    found |= {"times": {name: str(times[:2]) for name, times in table.times.items()}} if table.times else {}
    assert tables.Schema.from_dict(json.loads(json.dumps(table.schema.to_dict()))) == table.schema
    return found | {"new": outcome(lambda: tables.read_inputs(more, table.schema).X[:, 1:])}


def in_files(cells, folder):
    """Yield the doors of a column in a file or dataframe."""
    columns = columns_of(cells)
    places = {}
    lines = zip(columns["x"], as_text(cells), columns["y"], strict=True)
    places["text"] = folder / "t.csv"
    places["text"].write_text("x,c,y\n" + "".join(f"{x},{c},{y}\n" for x, c, y in lines))
    for name in FRAMES:
        places[name] = made(name, columns)
    for name in ("pandas", "polars"):
        try:
            path = folder / f"{name}.parquet"
            places[name].to_parquet(path) if name == "pandas" else places[name].write_parquet(path)
            places[f"Parquet of {name}"] = path
        except Exception:
            continue
    more = folder / "more.csv"
    cell = as_text([cells[0]])[0]
    more.write_text(f"c,x\n{cell},1\nzzz,2\n" if cell.isalpha() else f"c,x\n{cell},1\n")
    for name, place in places.items():
        for door, options in OPTIONS.items():
            if place is not None and (name == "text" or door != "commas"):
                yield f"table {door}", name, lambda place=place, options=options: read(place, more, **options)
    sources = {
        "CSV": lambda: tables.CSV(places["text"], "y"),
        "Parquet": lambda: tables.Parquet(places["Parquet of pandas"], "y"),
        "Batches": lambda: tables.Batches([places["pandas"]], "y"),
    }
    for name, make in sources.items():
        if name not in ("Parquet", "Batches") or "Parquet of pandas" in places:
            yield "chunks", name, lambda make=make: np.concatenate([chunk.X for chunk in make().chunks()])[:, 1]
            for door, kernel in (("number", k.Linear("c", origin=0.0)), ("level", k.Group("c"))):
                yield f"source as {door}", name, lambda make=make, kernel=kernel: by_source(make(), kernel)
            yield "source of all", name, lambda make=make: by_source(make(), k.Linear(origin=0.0))
    commas = tables.CSV(places["text"], "y", decimal=",", thousands=".")
    yield "commas", "CSV", lambda: by_source(commas, k.Linear("c", origin=0.0))
    yield "kinds", "text", lambda: tables.read_kinds(places["text"])["c"]
    yield "groups", "text", lambda: tables.read_groups(places["text"], "c")
    yield "number column", "text", lambda: tables.reading.read_number_column(places["text"], "c")
    yield "target", "text", lambda: vars_of(tables.read_table(places["text"], "c"))
    yield "target", "pandas", lambda: vars_of(tables.read_table(places["pandas"], "c"))


def vars_of(table):
    return {"y": table.y, "classes": str(table.classes and table.classes[:4])}


def by_source(source, kernel):
    """Return products of rows that a model reads in blocks."""
    gp = rfgp.GP(kernel, standardize=False, start={"noise": 1.0}, seed=0).condition(source)
    return {"kernel": name_of(gp), "likelihood": f"{gp.log_marginal_likelihood().item():.5g}"}


def column(name):
    """Return what all doors make of a column of cells."""
    cells, found = CELLS[name], {}
    with tempfile.TemporaryDirectory() as folder:
        for door, container, call in (*in_memory(cells), *in_files(cells, Path(folder))):
            found.setdefault(door, {}).setdefault(outcome(call), []).append(container)
    return {
        f"{door} ({', '.join(names)})" if len(results) > 1 else door: result
        for door, results in found.items()
        for result, names in results.items()
    }


# --- tables ----------------------------------------------------------------------------------------

FIVE = {"x": [0.5, 1.5, 2.5, 3.5, 4.5], "z": [1.0, 0.0, 2.0, 1.0, 3.0]}
NUMBERED = pd.DataFrame(FIVE, index=pd.Index([3, 1, 2, 5, 4], name="when"))
PAIRS = {
    "integer names": pd.DataFrame({0: FIVE["x"], "x": FIVE["z"]}),
    "duplicates": pd.DataFrame(np.arange(10.0).reshape(5, 2), columns=["x", "x"]),
    "names with blanks": pd.DataFrame({" x": FIVE["x"], "x": FIVE["z"]}),
    "a tuple as a name": pd.DataFrame({("a", "b"): FIVE["x"], ("a", "c"): FIVE["z"]}),
    "a named index": NUMBERED,
    "a range": pd.DataFrame({"Unnamed: 0": range(5), **FIVE}),
    "a range from one": pd.DataFrame({"": range(1, 6), **FIVE}),
    "a range of Parquet": pd.DataFrame({"__index_level_0__": range(5), **FIVE}),
    "another range": pd.DataFrame({"Unnamed: 0": range(0, 10, 2), **FIVE}),
    "only a range": pd.DataFrame({"Unnamed: 0": range(5)}),
    "a range of text": pd.DataFrame({"Unnamed: 0": list("01234"), **FIVE}),
    "a range of floats": pl.DataFrame({"Unnamed: 0.1": [0.0, 1.0, 2.0, 3.0, 4.0], **FIVE}),
    "a range of Arrow": pa.table({"Unnamed: 0": list(range(5)), **FIVE}),
    "indicator names": pd.DataFrame({"c": list("aabba"), "c=a": FIVE["x"]}),
    "array": np.arange(10.0).reshape(5, 2),
    "single": np.arange(10, dtype=np.float32).reshape(5, 2),
    "integers": np.arange(10).reshape(5, 2),
    "objects": np.array([["a", 1], ["b", 2], ["a", 3], ["b", 4], ["c", 5]], dtype=object),
    "structured": np.array([(1.0, "a"), (2.0, "b"), (3.0, "a")], dtype=[("x", float), ("c", "U1")]),
    "masked": np.ma.array(np.arange(10.0).reshape(5, 2), mask=[[0, 1]] + [[0, 0]] * 4),
    "rows": [[1.0, "a"], [2.0, "b"], [3.0, "a"]],
    "tuples": [(1.0, 2.0), (2.0, 1.0), (3.0, 5.0)],
    "labels": ["b", "a", "b"],
    "series": pd.Series([1.0, 2.0, 3.0]),
    "dates": pd.date_range("2024-01-01", periods=3),
}


def table_of(X):
    """Return what models of all columns, of a file and of scikit-learn read in a table."""
    n = len(X)
    y = np.arange(n) * 1.0
    names = None if not hasattr(X, "columns") else X.columns if hasattr(X, "iloc") else None

    def gram():
        gp = rfgp.GP(k.Linear(variance=1.0, origin=0.0), approximation=rfgp.Exact(), standardize=False, seed=0)
        gp.condition(X, y)
        return {
            "kernel": str(gp.kernel),
            "products": gp.prior_covariance(X).detach(),
            "type": str(gp.predict(X).mean.dtype),
        }

    def estimator():
        found = GPRegressor(kernel=k.Linear(), max_iter=20, random_state=0).fit(X, y)
        kept = getattr(found, "used_columns_", None)
        return {
            "columns": list(found.gp_.kernel.terms()[0].factors[0].columns),
            "kept": kept,
            "names": list(getattr(found, "feature_names_in_", [])),
        }

    doors = {"all": gram, "scikit-learn": estimator}
    if hasattr(X, "columns"):
        doors["table"] = lambda: vars_of_columns(tables.read_table(X, categories="one-hot"))
        doors["blocks"] = lambda: by_source(tables.Batches([X[:3], X[3:]]), k.Linear())
    if names is not None:
        doors["blocks"] = lambda: by_source(
            tables.Batches([X.assign(y=y)[:3], X.assign(y=y)[3:]], "y"), k.Linear(origin=0.0)
        )
    return {door: outcome(call) for door, call in doors.items()}


def vars_of_columns(table):
    return {"columns": list(table.columns), "X": table.X, "target": table.target}


def on_workers():
    """Return what a model reads in partitions of a cluster, for each type of column."""
    import dask.dataframe as dd
    from distributed import Client

    found = {}
    with Client(processes=False, dashboard_address=None):
        for name in ("numbers", "integers", "booleans", "text", "times", "a zone", "sixty words", "numbers with a gap"):
            frame = pd.DataFrame(columns_of(CELLS[name]))
            rows = rfgp.dask.Partitions(dd.from_pandas(frame, npartitions=2), "y")
            found[f"{name}, all"] = outcome(lambda rows=rows: by_source(rows, k.Linear(origin=0.0)))
            found[f"{name}, level"] = outcome(lambda rows=rows: by_source(rows, k.Group("c")))
            spectrum = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0)
            found[f"{name}, matrix"] = outcome(
                lambda rows=rows, gp=spectrum: f"{gp.condition(rows).log_marginal_likelihood().item():.5g}"
            )
        for name in ("a range", "another range", "duplicates"):
            frame = PAIRS[name].assign(y=1.0)
            found[name] = outcome(lambda f=frame: rfgp.dask.Partitions(dd.from_pandas(f, npartitions=2), "y").lengths)
    return found


def public(names, folder=None):
    """Return what the tables of the package become."""
    found = {}
    for name in names:
        table = datasets.load(name, folder, download=False)
        squares = np.square(table.X) @ np.arange(1.0, table.X.shape[1] + 1)
        found[name] = shown({"columns": list(table.columns), "X": squares, "y": table.y, "classes": str(table.classes)})
    return found


CASES = {
    **{name: lambda name=name: column(name) for name in CELLS},
    **{f"table of {name}": lambda X=X: table_of(X) for name, X in PAIRS.items()},
    "partitions": on_workers,
    "data sets": lambda: public(("machine",)),
}
