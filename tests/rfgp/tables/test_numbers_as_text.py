"""Text that is numbers is refused by every reader, and read as numbers by an example of its format."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from commands import fail, succeed

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPRegressor

N = 240
EXAMPLE = "1.234,50 EUR"


def drawn():
    """Return prices (n,), and a table of them as text."""
    rng = np.random.default_rng(0)
    prices = np.round(rng.uniform(1, 9000, N), 2)
    texts = [f"{price:,.2f} EUR".translate(str.maketrans(",.", ".,")) for price in prices]
    frame = pd.DataFrame({"a": rng.normal(size=N), "price": texts, "y": np.log(prices)})
    frame.loc[1, "price"] = frame.loc[0, "price"]  # no identifier: a text occurs twice
    return prices, frame


PRICES, FRAME = drawn()
TEXTS = FRAME.price.tolist()
INPUTS = FRAME.drop(columns="y")


def saved(folder):
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_parquet(folder / "t.parquet")
    return folder


def auto():
    return rfgp.GP(seed=0)


READERS = {
    "pandas": lambda folder: auto().fit(FRAME, "y"),
    "polars": lambda folder: auto().fit(pl.DataFrame(FRAME), "y"),
    "Arrow": lambda folder: auto().fit(pa.Table.from_pandas(FRAME), "y"),
    "dict of lists": lambda folder: auto().fit({"price": TEXTS}, FRAME.y),
    "dict of strings": lambda folder: auto().fit({"price": np.array(TEXTS)}, FRAME.y),
    "array of objects": lambda folder: auto().fit(INPUTS.to_numpy(), FRAME.y),
    "targets": lambda folder: auto().fit(INPUTS[["a"]], np.array(TEXTS)),
    "a kernel of all columns": lambda folder: rfgp.GP(k.RBF(), seed=0).fit(FRAME, "y"),
    "a kernel of the column": lambda folder: rfgp.GP(k.RBF("price"), seed=0).fit(FRAME, "y"),
    "batches": lambda folder: auto().fit(rfgp.tables.Batches([FRAME[:100], FRAME[100:]], "y")),
    "CSV": lambda folder: auto().fit(rfgp.tables.CSV(folder / "t.csv", "y")),
    "Parquet": lambda folder: auto().fit(rfgp.tables.Parquet(folder / "t.parquet", "y")),
    "levels of a file": lambda folder: rfgp.tables.read_table(folder / "t.csv", categories="levels"),
    "one-hot": lambda folder: rfgp.tables.read_table(FRAME, "y", categories="one-hot"),
    "a target of a file": lambda folder: rfgp.tables.read_table(FRAME, "price"),
    "scikit-learn": lambda folder: GPRegressor().fit(INPUTS, FRAME.y),
    "scikit-learn's classes": lambda folder: GPClassifier().fit(INPUTS[["a"]], FRAME.price),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_numbers_as_text_are_refused_with_the_option(reader, tmp_path):
    with pytest.raises(rfgp.DataError, match="numbers"):
        reader(saved(tmp_path))


@pytest.mark.parametrize(
    ("texts", "example", "numbers"),
    [
        (["1.234,50 EUR", "7,00 EUR", None], EXAMPLE, [1234.5, 7, np.nan]),
        (["12 %", "12.5 %", "-3\u00a0%"], "12 %", [12, 12.5, -3]),
        (["$3.50", "-$1,200", "$-.5"], "$1,234.50", [3.5, -1200, -0.5]),
        (["1\u202f234,5 \u20ac", "3 \u20ac"], "1\u202f234,50 \u20ac", [1234.5, 3]),
        (["Fr. 1'200.50"], "Fr. 1'234.50", [1200.5]),
        (["12 kg", "1e3 kg"], "3.5 kg", [12, 1000]),
    ],
)
def test_numbers_are_read_by_an_example(texts, example, numbers):
    containers = (texts, np.array(texts, dtype=object), pd.Series(texts), pl.Series(texts), pa.array(texts))
    for column in containers:
        np.testing.assert_array_equal(rfgp.tables.read_numbers(column, example), numbers)


@pytest.mark.parametrize("cell", ["12.5", "12,5 USD", "1.23,4 EUR", "--3 EUR", "EUR", "1.234.5 EUR"])
def test_cells_in_another_format_are_named(cell):
    with pytest.raises(rfgp.DataError, match="in row 1"):
        rfgp.tables.read_numbers([EXAMPLE, cell], EXAMPLE)


@pytest.mark.parametrize("example", ["1.234 EUR", "EUR", "1,2.3,4", "1'2_3.4", 7])
def test_unclear_examples_are_refused(example):
    with pytest.raises(rfgp.InvalidArgumentError, match="example"):
        rfgp.tables.read_numbers(["1"], example)


def test_columns_of_files_have_formats_of_their_own(tmp_path):
    folder, numbers = saved(tmp_path), {"price": EXAMPLE}
    right = pd.Series(PRICES).where(FRAME.index != 1, PRICES[0])
    for path in (folder / "t.csv", folder / "t.parquet", FRAME):
        table = rfgp.tables.read_table(path, "y", numbers=numbers)
        np.testing.assert_array_equal(table.frame()["price"], right)
        schema = rfgp.tables.Schema.from_dict(table.schema.to_dict())
        np.testing.assert_array_equal(rfgp.tables.read_inputs(path, schema).X, table.X)
    for source in (rfgp.tables.CSV, rfgp.tables.Parquet):
        path = folder / f"t.{source.__name__.lower()}"
        (chunk,) = source(path, "y", numbers=numbers).tables()
        np.testing.assert_array_equal(chunk.X["price"], right)
        (chunk,) = source(path, "price", numbers=numbers).chunks()
        np.testing.assert_array_equal(chunk.y, right)
    with pytest.raises(rfgp.DataError, match="USD"):
        rfgp.tables.read_inputs(INPUTS.replace("EUR", "USD", regex=True), schema)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # the logarithm is steep at low prices
def test_command_line_reads_numbers_by_an_example(monkeypatch, capsys, tmp_path):
    table, small = saved(tmp_path) / "t.csv", ["--kernel", "RBF(price)", "--no-compare"]
    err = fail(monkeypatch, capsys, "fit", table)
    assert "--numbers 'price=" in err
    succeed(monkeypatch, capsys, "fit", table, "--numbers", f"price={EXAMPLE}", "--out", tmp_path / "o", *small)
    out = tmp_path / "p.csv"
    succeed(monkeypatch, capsys, "predict", tmp_path / "o" / "model.safetensors", table, "--out", out)
    assert np.corrcoef(pd.read_csv(out)["mean"], FRAME.y)[0, 1] > 0.99


NAMES = [f"n{i // 2}" if i < 40 else f"n{i}" for i in range(N)]
"""Texts of which 220 of 240 are different."""


def test_identifiers_are_refused_unless_they_are_named(tmp_path):
    frame = FRAME[["a", "y"]].assign(name=NAMES)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(rfgp.DataError, match="Drop it"):
        auto().fit(frame, "y")
    with pytest.raises(rfgp.DataError, match="drop="):
        rfgp.tables.read_table(tmp_path / "t.csv", "y", categories="levels")
    named = rfgp.GP(k.RBF("a") + k.Group("name"), seed=0).condition(frame, "y")
    declared = rfgp.tables.read_table(tmp_path / "t.csv", "y", categories="levels", as_categories="name").frame()
    for data in (frame.astype({"name": "category"}), declared.assign(y=frame.y)):
        gp = auto().condition(data, "y")
        assert "name" in [column.key for column in gp.spec.schema.columns]
    assert named.predict(frame[:3]).mean.shape == (3,)
