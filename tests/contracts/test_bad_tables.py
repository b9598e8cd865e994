"""Bad files and calls of readers: the class of the error, and what its message must say."""

import gzip
import io
import os
import tarfile
import time
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rfgp
from rfgp.tables import CSV, read_csv, read_groups, read_inputs, read_kinds, read_names, read_numbers, read_table
from tests.support.refusals import refused


def tarred(data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("t.csv")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def parquet(*doubled, **columns):
    out, names = io.BytesIO(), [*columns, *doubled]
    table = pa.Table.from_arrays([pa.array(columns[name]) for name in names], names=names)
    pq.write_table(table, out)
    return out.getvalue()


GOOD = parquet(a=[1.0, 2.0], b=[3.0, 4.0])
WORDS = "".join(f"w{i},{i}\n" for i in range(300))
DECIDED = 'Use decimal="," only if it is a decimal mark in all columns'


def case(name, data, word, **options):
    """Return the name of a file, its content, options of its reader, and a word of the message."""
    return pytest.param(name, data, options, word, id=name)


BAD = [
    case("empty.csv", b"", "is empty"),
    case("blank.csv", b"\n  \n\r\n", "blank lines"),
    case("header.csv", b"a,b\n\n \n", "a header and no rows"),
    case("one.csv", b"a\n1\n2\n", "one column"),
    case("text.csv", b"a,b\nred,2\n3,4\nred,5\n", "('red' in row 0, 2 such cells)"),
    case("mixed.csv", b"a,b\n1,2\n3,4\nx,5\n", "('x' in row 2", categories="one-hot"),
    case("target.csv", b"a,b\n1,2\n3,x\n5,6\n", "'b' holds text ('x' in row 1"),
    case("ids.csv", b"id,b\n" + WORDS.encode(), "300 different texts", categories="one-hot"),
    case("number.csv", b"id,y\n1,2\n3,4\n", "2 different texts in 2 cells", as_categories="id"),
    case("gap.csv", b"a,b\n1,2\n,4\nNA,5\n", "'a' has 2 missing"),
    case("kernel.csv", b"a,b\nx,2\ny,4\n", "The kernel reads numbers there", columns=("a",)),
    case("gone.csv", b"a,b\n1,\n2,\n", "'b' has no values, all 2"),
    case("nowhere.csv", b"a,b,c\n,2,3\n4,,5\n", "at least one row must have all values", missing="drop"),
    case("inf.csv", b"a,b\n1,2\n-inf,4\n", "1 missing or infinite", missing="mean"),
    case("comma.csv", b"a;b\n1,5;2,3\n2,5;3,3\n", 'decimal=","'),
    case("groups.csv", b"a;b\n1,200;2\n950;3\n", 'Use thousands=","'),
    case("groups4.csv", b"a;b\n1.200,5;3\n0,5;9\n", 'Use decimal="," and thousands="."'),
    case("points.csv", b"a;b\n1.234;2,3\n1.2;3\n", "('1.234' in row 0, 2 such", decimal=","),
    case("marks.csv", b"a;b\n0,5;1,200\n950;950\n", DECIDED),
    case("marks2.csv", b"a;b\n0,5;1.5\n950;950\n", "some a decimal point. Write them alike."),
    case("hash.csv", b"# made in May\na,b\n1,2\n", 'comment="#"'),
    case("long.csv", b"a,b\n1,2\n3,4,5,6\n", "line 3 has 4 cells, more"),
    case("short.csv", b"a,b\n\n1,2\n3\n", "line 4 has 1 cell, fewer"),
    case("returns.csv", b'a,b\r"1"x,2\r"3",4\r"5"', "line 4 has 1 cell, fewer"),
    case("ragged.csv", b"# x\na,b\n1,2\n# y\n3\n", "line 5 has 1 cell", comment="#"),
    case("twice.csv", b"a,b, a \n1,2,3\n", "two columns named 'a', at positions 0 and 2"),
    case("first.csv", b"1,x\n3,4\n", "got numbers and text ('x')"),
    case("latin.csv", "a,b\n1,é\n".encode("latin-1"), 'encoding="latin-1"'),
    case("wide.csv", "a,b\n1,2\n".encode("utf-16"), 'encoding="utf-16"'),
    case("nul.csv", b"a,b\n1,\0\n", "byte 6 is NUL"),
    case("picture.csv", b"\x89PNG\r\n\x1a\n....", "PNG picture"),
    case("p.csv", GOOD, "Parquet file"),
    case("page.csv", b"<!DOCTYPE html><html>404</html>", "web page"),
    case("lfs.csv", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    case("plain.csv.gz", b"a,b\n1,2\n", "cannot be unpacked"),
    case("cut.csv.gz", gzip.compress(os.urandom(900).hex().encode())[:300], "unpacked"),
    case("x.tar.gz", gzip.compress(tarred(b"a,b\n1,2\n")), "tar archive"),
    case("dates.csv", b"t,b\n2024-01-01,2\n2024-01-02,3\n", "holds dates ('2024-01-01' in row 0)"),
    case("dates2.csv", b"b,t\n2,2024-01-01\n", "The target must be a number", dates="drop"),
    case("dates3.csv", b"t,b\n2024-02-30,2\n", "does not exist ('2024-02-30' in row 0)", dates="days"),
    case("dates5.csv", b"t,b\n03/04/2025,2\n04/04/2025,3\n", "ISO (YYYY-MM-DD)", dates="days"),
    case("zones.csv", b"t,b\n1970-01-02,1\n1970-01-01T06:00Z,1\n", "with and without", dates="days"),
    case("nothing.csv", b"t,b\nx,2\ny,3\n", "no input columns left", categories="drop"),
    case("wordy.csv", b"a,b\n" + b"x" * 5000 + b",2\ny,3\n", "xxx...'"),
    case("endless.csv", b"x" * (4 << 20), "t"),
    case("columns.csv", (b",".join([b"1"] * 300_000) + b"\n") * 2, "columns"),
    case("quoted.csv", b'a,b\n"' + b"x" * (1 << 20), "never closes"),
    case("not.parquet", b"a,b\n1,2\n", "begin"),
    case("cut.parquet", GOOD[:-20], "end too early"),
    case("hole.parquet", GOOD[:-30] + b"\xff" * 22 + GOOD[-8:], "parquet"),
    case("list.parquet", parquet(a=[[1.0], [2.0]], b=[1.0, 2.0]), "'a' holds values of type list<"),
    case("same.parquet", parquet("a", a=[1.0]), "two columns named 'a'"),
    case("norows.parquet", parquet(a=pa.array([], pa.float64())), "columns and no rows"),
    case("nocolumns.parquet", parquet(), "has no columns"),
    case("void.parquet", parquet(a=pa.nulls(2), b=[1.0, 2.0]), "'a' has no values"),
]


@pytest.mark.parametrize(("name", "data", "options", "word"), BAD)
def test_bad_files_are_named_soon(tmp_path, name, data, options, word):
    path, begin = tmp_path / name, time.process_time()
    path.write_bytes(data)
    message = refused(lambda: read_table(path, **options), rfgp.DataError, word)
    assert name in message
    assert message.replace("\n", " ").isprintable()
    assert len(message) < len(str(path)) + 900
    assert time.process_time() - begin < 5


OPTIONS = [
    ({"target": "cost"}, "no column 'cost'. The columns are a, b"),
    ({"drop": "c"}, "no column 'c'"),
    ({"target": "b", "drop": "b"}, "among the columns to drop"),
    ({"target": "b", "columns": ("a", "b")}, "must not be an input"),
    ({"names": ["x"]}, "1 name, and its first line has 2 cells"),
    ({"categories": "onehot"}, "must be one of 'error', 'one-hot'"),
    ({"dates": "iso"}, "dates must be one of"),
    ({"missing": "median"}, "missing must be one of"),
    ({"decimal": ";"}, "decimal must be one of"),
    ({"thousands": ",", "decimal": ","}, "must be one of '.'"),
    ({"comment": ""}, "comment must be"),
    ({"encoding": "../x"}, "text encoding, got"),
]
CALLS = [
    (lambda path: read_table(path.with_suffix(".xlsx")), "ending of path"),
    (lambda path: read_table([[1, 2]]), "path of a file"),
    (lambda path: read_table(path.with_suffix(".parquet"), names=["x", "y"]), "names its columns"),
    (lambda path: read_inputs(path, read_table(path).schema, ("whom",)), "no column 'whom'"),
    (lambda path: read_numbers(["1"], "EUR"), "example"),
    (lambda path: read_numbers(["1"], "1.234 EUR"), "example"),
    *((partial(read_table, **options), word) for options, word in OPTIONS),
]


@pytest.mark.parametrize(("call", "word"), CALLS)
def test_bad_calls_are_named(tmp_path, call, word):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    path.with_suffix(".parquet").write_bytes(GOOD)
    refused(lambda: call(path), rfgp.InvalidArgumentError, word)


@pytest.mark.parametrize("cell", ["12.5", "12,5 USD", "1.23,4 EUR", "--3 EUR", "EUR"])
def test_cells_in_another_format_are_named(cell):
    refused(lambda: read_numbers(["1,50 EUR", cell], "1.234,50 EUR"), rfgp.DataError, "in row 1")


@pytest.mark.parametrize(
    ("cell", "words"), [("12.34,5", "'a' must hold numbers"), ("x", "'x'"), ("", "'a' has a miss")]
)
def test_cells_of_blocks_are_named(tmp_path, cell, words):
    (tmp_path / "t.csv").write_text(f"a;y\n1,5;2\n{cell};3\n")
    source = CSV(tmp_path / "t.csv", "y", decimal=",", thousands=".")
    refused(lambda: list(source.chunks()), rfgp.DataError, words)


TRAIN = "a,color,when,y\n1,red,2024-01-01,1\n2,blue,2024-01-02,2\n3,red,2024-01-03,3\n"
NEW = [
    ("a,when\n1,2024-01-01\n", "lacks 1 column: color. Its columns are a, when."),
    ("1,2\n3,4\n", "lacks 3 columns: a, color, when"),
    ("a,color,when\nx,red,2024-01-01\n", "'a' holds text ('x' in row 0"),
    ("a,color,when\n2024-01-01,red,2024-01-01\n", "'a' holds dates ('2024-01-01' in row 0)"),
    ("a,color,when\n1,red,5\n", "'when' holds numbers ('5' in row 0)"),
    ("a,color,when\n1,red,2024-13-01\n", "a date that does not exist"),
    ("a,color,when\n,red,2024-01-01\n2,red,2024-01-01\n", "'a' has 1 missing"),
    ("a,color,when,a\n1,red,2024-01-01,2\n", "two columns named 'a'"),
    ("a,color,when\ninf,red,2024-01-01\n", "row 0 (inf)"),
    ("a,color,when,y\n1,red,2024-01-01,x\n", "'y' holds text"),
    ("a,color,when\n", "a header and no rows"),
]


OTHER_TRAIN = [
    ("a,y\n1,u\n2,v\n3,u\n", "a,y\n1,w\n2,v\n", "the model knows 2 levels: u, v"),
    ("1,2,3\n4,5,6\n", "1,2,3,4\n", "has 4 columns"),
]


@pytest.mark.parametrize(("train", "text", "words"), [*((TRAIN, *case) for case in NEW), *OTHER_TRAIN])
def test_bad_files_to_predict_at_are_named(tmp_path, train, text, words):
    path = tmp_path / "t.csv"
    path.write_text(train)
    schema = read_table(path, categories="one-hot", dates="days").schema
    path.write_text(text)
    refused(lambda: read_inputs(path, schema), rfgp.DataError, words)


def test_all_problems_of_a_table_are_named_at_once(tmp_path):
    n = 12
    table = pd.DataFrame(
        {"size": np.arange(12.0), "color": ["red", "blue"] * 6, "when": pd.date_range("1958", periods=n)}
    )
    table = table.assign(name=[f"n{i}" for i in range(n)], y=range(n))
    table.loc[4, "size"], table.loc[[2, 3], "color"] = None, None
    table.to_csv(tmp_path / "t.csv", index=False)
    for given in (table, tmp_path / "t.csv"):
        lines = refused(lambda given=given: read_table(given), rfgp.DataError, "'size' has 1 missing").splitlines()
        for line, words in zip(
            lines[1:], ("10 such", "'color' has 2", "'when' holds dates", "identifier"), strict=True
        ):
            assert words in line, line
    counted = {f"t{i}": ["x", "x", "y"] for i in range(30)} | {f"g{i}": [1, None, 2] for i in range(20)}
    wide = pd.DataFrame(counted).assign(y=[1.0, 2.0, 3.0])
    refused(lambda: read_table(wide), rfgp.DataError, "And 42 more columns: 22 with text, 20 with missing cells")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_places_without_a_readable_file(tmp_path, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"loop{suffix}").symlink_to(f"loop{suffix}")
    for name, words in (("none", "no file"), ("folder", "folder"), ("pipe", "regular"), ("loop", "loop")):
        refused(lambda name=name: read_table(tmp_path / f"{name}{suffix}"), rfgp.DataError, words)
    with pytest.raises(TypeError):
        read_csv(tmp_path / "t.csv", sep=",")


def test_too_many_bytes_are_noticed_while_unpacking(tmp_path, limits):
    limits(max_file_bytes=3 << 20)
    files = {name: tmp_path / name for name in ("bomb.csv.gz", "claim.parquet", "texts.parquet", "wide.csv")}
    files["bomb.csv.gz"].write_bytes(gzip.compress(b"1,2\n" * (20 << 20), compresslevel=1))
    zeros = pa.array([0] * 300_000, pa.int8())
    pq.write_table(pa.table({"a": zeros, "b": zeros}), files["claim.parquet"])
    pq.write_table(pa.table({"a": ["x" * 10_000] * 1000, "b": [1.0] * 1000}), files["texts.parquet"])
    files["wide.csv"].write_text("a,b\n" + "".join(f"w{i % 200:03d},{i}\n" for i in range(4000)))
    words = ("3,145,728 bytes", "claims 300,000 rows", "10,000,000 bytes of text", "200 encoded columns")
    for path, word in zip(files.values(), words, strict=True):
        begin = time.process_time()
        refused(lambda path=path: read_table(path, categories="one-hot"), rfgp.DataError, word)
        assert time.process_time() - begin < 1


def test_single_columns_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("day,s,price\n2026-01-01,n,2\n2026-01-02,s,4\n2026-01-02,,6\n")
    assert read_names(path) == ("day", "s", "price")
    assert read_kinds(path) == {"day": "date", "s": "text", "price": "number"}
    assert [read_groups(path, name).tolist() for name in ("day", "price")] == [[0, 1, 1], [0, 1, 2]]
    refused(lambda: read_groups(path, "s"), rfgp.DataError, "no value in row 2")
