"""Bad files and calls of readers: the class of the error, and what its message must say."""

import gzip
import io
import os
import tarfile
import time
import zipfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rfgp
from rfgp.tables import CSV, read_csv, read_groups, read_inputs, read_kinds, read_names, read_numbers, read_table


def packed(data, name="inner.csv"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


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
MANY = "".join(f"w{i % 260:03d},{i}\n" for i in range(600))
DECIDED = 'Use decimal="," only if it is a decimal mark in all columns'

# name, content, options, fragments of the message
BAD = [
    ("empty.csv", b"", {}, ["is empty"]),
    ("empty.csv.gz", gzip.compress(b""), {}, ["is empty"]),
    ("blank.csv", b"\n  \n\r\n", {}, ["blank lines"]),
    ("header.csv", b"a,b\n\n \n", {}, ["a header and no rows"]),
    ("one.csv", b"a\n1\n2\n", {}, ["one column"]),
    ("text.csv", b"a,b\nred,2\n3,4\nred,5\n", {}, ["('red' in row 0, 2 such cells)", "one-hot", "drop='a'"]),
    ("mixed.csv", b"a,b\n1,2\n3,4\nx,5\n", {"categories": "one-hot"}, ["('x' in row 2", "among 2 numbers"]),
    ("target.csv", b"a,b\n1,2\n3,x\n5,6\n", {}, ["'b' holds text ('x' in row 1", "another target."]),
    ("ids.csv", b"id,b\n" + WORDS.encode(), {"categories": "one-hot"}, ["300 different texts", "drop='id'"]),
    ("classes.csv", b"b,id\n1,x\n2,y\n", {}, ["'id' has 2 different texts", "is the target"]),
    ("number.csv", b"id,y\n1,2\n3,4\n", {"as_categories": "id"}, ["2 different texts in 2 cells"]),
    ("gap.csv", b"a,b\n1,2\n,4\nNA,5\n", {}, ["'a' has 2 missing", "row 1 (missing)", 'missing="drop"', "mean"]),
    ("kernel.csv", b"a,b\nx,2\ny,4\n", {"columns": ("a",)}, ["The kernel reads numbers there", "Group('a')"]),
    ("gone.csv", b"a,b\n1,\n2,\n", {}, ["'b' has no values, all 2"]),
    ("nowhere.csv", b"a,b,c\n,2,3\n4,,5\n", {"missing": "drop"}, ["at least one row must have all values"]),
    ("inf.csv", b"a,b\n1,2\n-inf,4\n", {"missing": "mean"}, ["1 missing or infinite", "row 1 (-inf)"]),
    ("huge.csv", b"a,b\n1,2\n1e999,4\n", {"missing": "drop"}, ["row 1 (inf)"]),
    ("comma.csv", b"a;b\n1,5;2,3\n2,5;3,3\n", {}, ["('1,5' in row 0", 'decimal=","']),
    ("groups.csv", b"a;b\n1,200;2\n950;3\n", {}, ["('1,200' in row 0", 'Use thousands=","']),
    ("groups4.csv", b"a;b\n1.200,5;3\n0,5;9\n", {}, ['Use decimal="," and thousands="."']),
    ("groups5.csv", b"a;b\n1.200,5;3\n0,5;9\n", {"decimal": ","}, ['Use thousands="."']),
    ("groups6.csv", b"a;b\n12,00;3\n1,200;9\n", {"thousands": ","}, ["('12,00' in row 0, 1 such"]),
    ("points.csv", b"a;b\n1.234;2,3\n1.2;3\n", {"decimal": ","}, ["('1.234' in row 0, 2 such"]),
    ("marks.csv", b"a;b\n0,5;1,200\n950;950\n", {}, ["In '0,5' the comma is a decimal mark", DECIDED]),
    ("marks2.csv", b"a;b\n0,5;1.5\n950;950\n", {}, ["some a decimal point. Write them alike."]),
    ("hash.csv", b"# made in May\na,b\n1,2\n", {}, ['comment="#"']),
    ("long.csv", b"a,b\n1,2\n3,4,5,6\n", {}, ["line 3 has 4 cells, more"]),
    ("short.csv", b"a,b\n\n1,2\n3\n", {}, ["line 4 has 1 cell, fewer"]),
    ("returns.csv", b'a,b\r"1"x,2\r"3",4\r"5"', {}, ["line 4 has 1 cell, fewer"]),
    ("ragged.csv", b"# x\na,b\n1,2\n# y\n3\n", {"comment": "#"}, ["line 5 has 1 cell"]),
    ("twice.csv", b"a,b, a \n1,2,3\n", {}, ["two columns named 'a', at positions 0 and 2"]),
    ("first.csv", b"1,x\n3,4\n", {}, ["got numbers and text ('x')", "use names="]),
    ("latin.csv", "a,b\n1,é\n".encode("latin-1"), {}, ["byte 6 is not utf-8", 'encoding="latin-1"']),
    ("wide.csv", "a,b\n1,2\n".encode("utf-16"), {}, ['encoding="utf-16"']),
    ("nul.csv", b"a,b\n1,\0\n", {}, ["byte 6 is NUL"]),
    ("picture.csv", b"\x89PNG\r\n\x1a\n....", {}, ["PNG picture"]),
    ("book.csv", packed(b"a"), {}, ["zip archive", ".xlsx"]),
    ("p.csv", GOOD, {}, ["Parquet file"]),
    ("z.csv", gzip.compress(b"a,b\n1,2\n"), {}, ["gzip data"]),
    ("page.csv", b"<!DOCTYPE html><html>404</html>", {}, ["web page"]),
    ("lfs.csv", b"version https://git-lfs.github.com/spec/v1\n", {}, ["Git LFS pointer"]),
    ("plain.csv.gz", b"a,b\n1,2\n", {}, ["cannot be unpacked"]),
    ("cut.csv.gz", gzip.compress(os.urandom(900).hex().encode())[:300], {}, ["unpacked", "ended before"]),
    ("two.csv.gz", gzip.compress(gzip.compress(b"a,b\n1,2\n")), {}, ["only once"]),
    ("x.tar.gz", gzip.compress(tarred(b"a,b\n1,2\n")), {}, ["tar archive"]),
    ("dates.csv", b"t,b\n2024-01-01,2\n2024-01-02,3\n", {}, ["holds dates ('2024-01-01' in row 0)", 'dates="days"']),
    ("dates2.csv", b"b,t\n2,2024-01-01\n", {"dates": "drop"}, ["The target must be a number"]),
    ("dates3.csv", b"t,b\n2024-02-30,2\n", {"dates": "days"}, ["does not exist ('2024-02-30' in row 0)"]),
    ("dates5.csv", b"t,b\n03/04/2025,2\n04/04/2025,3\n", {"dates": "days"}, ["ISO (YYYY-MM-DD)"]),
    ("dates6.csv", b"sold,a,y\n01/02/2026,1,1\n02/02/2026,2,2\n", {"categories": "levels"}, ["ISO"]),
    ("zones.csv", b"t,b\n1970-01-02,1\n1970-01-01T06:00Z,1\n", {"dates": "days"}, ["with and without"]),
    ("nothing.csv", b"t,b\nx,2\ny,3\n", {"categories": "drop"}, ["no input columns left"]),
    ("steer.csv", b"a,b\n\x1b[31mred\x07,2\nx,3\n", {}, [r"'\x1b[31mred\x07' in row 0"]),
    ("bidi.csv", "a,b\nx\u202ey,2\nz,3\n".encode(), {}, [r"'x\u202ey'"]),
    ("wordy.csv", b"a,b\n" + b"x" * 5000 + b",2\ny,3\n", {}, ["xxx...'"]),
    ("endless.csv", b"x" * (4 << 20), {}, ["t"]),
    ("columns.csv", (b",".join([b"1"] * 300_000) + b"\n") * 2, {}, ["columns"]),
    ("quoted.csv", b'a,b\n"' + b"x" * (1 << 20), {}, ["never closes"]),
    ("not.parquet", b"a,b\n1,2\n", {}, ["begin"]),
    ("cut.parquet", GOOD[:-20], {}, ["end too early"]),
    ("tiny.parquet", b"PAR1", {}, ["parquet"]),
    ("hole.parquet", GOOD[:-30] + b"\xff" * 22 + GOOD[-8:], {}, ["parquet"]),
    ("far.parquet", b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1", {}, ["parquet"]),
    ("list.parquet", parquet(a=[[1.0], [2.0]], b=[1.0, 2.0]), {}, ["'a' holds values of type list<", "drop='a'"]),
    ("clock.parquet", parquet(a=pa.array([1], pa.time64("us")), b=[1.0]), {}, ["type time64"]),
    ("same.parquet", parquet("a", a=[1.0]), {}, ["two columns named 'a'"]),
    ("norows.parquet", parquet(a=pa.array([], pa.float64())), {}, ["columns and no rows"]),
    ("nocolumns.parquet", parquet(), {}, ["has no columns"]),
    ("void.parquet", parquet(a=pa.nulls(2), b=[1.0, 2.0]), {}, ["'a' has no values"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "options", "fragments"), BAD, ids=[case[0] for case in BAD])
def test_bad_files_are_named_soon(tmp_path, name, data, options, fragments):
    path, begin = tmp_path / name, time.process_time()
    path.write_bytes(data)
    with pytest.raises(rfgp.DataError) as caught:
        read_table(path, **options)
    message = str(caught.value)
    assert all(fragment in message for fragment in [*fragments, name]), message
    assert message.replace("\n", " ").isprintable()
    assert len(message) < len(str(path)) + 900
    assert time.process_time() - begin < 5


AB = "a,b\n1,2\n"
COUNTED = pd.DataFrame({f"t{i}": ["x", "x", "y"] for i in range(30)} | {f"g{i}": [1, None, 2] for i in range(20)})
CALLS = {
    "unknown target": ("t.csv", lambda path: read_table(path, "cost"), "no column 'cost'. The columns are a, b"),
    "unknown drop": ("t.csv", lambda path: read_table(path, drop="c"), "no column 'c'"),
    "dropped target": ("t.csv", lambda path: read_table(path, "b", drop="b"), "among the columns to drop"),
    "target as input": ("t.csv", lambda path: read_table(path, "b", columns=("a", "b")), "must not be an input"),
    "unknown input": ("t.csv", lambda path: read_table(path, columns=("z",)), "no column 'z'"),
    "names": ("t.csv", lambda path: read_table(path, names=["x"]), "1 name, and its first line has 2 cells"),
    "categories": ("t.csv", lambda path: read_table(path, categories="onehot"), "must be one of 'error', 'one-hot'"),
    "dates": ("t.csv", lambda path: read_table(path, dates="iso"), "dates must be one of"),
    "missing": ("t.csv", lambda path: read_table(path, missing="median"), "missing must be one of"),
    "decimal": ("t.csv", lambda path: CSV(path, "b", decimal=";"), "decimal must be one of"),
    "thousands": ("t.csv", lambda path: read_table(path, thousands=",", decimal=","), "must be one of '.'"),
    "comment": ("t.csv", lambda path: read_table(path, comment=""), "comment must be"),
    "encoding": ("t.csv", lambda path: read_table(path, encoding="../x"), "text encoding, got"),
    "ending": ("t.xlsx", read_table, "ending of path"),
    "no path": ("t.csv", lambda path: read_table([[1, 2]]), "path of a file"),
    "names of Parquet": ("t.parquet", lambda path: read_table(path, names=["x", "y"]), "names its columns"),
    "passthrough": ("t.csv", lambda p: read_inputs(p, read_table(p).schema, ("whom",)), "no column 'whom'"),
    "a number": ("t.csv", lambda path: read_numbers(["1"], "EUR"), "example"),
    "two meanings": ("t.csv", lambda path: read_numbers(["1"], "1.234 EUR"), "example"),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_are_named(tmp_path, name):
    file, call, words = CALLS[name]
    (tmp_path / file).write_bytes(GOOD if file.endswith("parquet") else AB.encode())
    with pytest.raises(rfgp.InvalidArgumentError) as caught:
        call(tmp_path / file)
    assert words in str(caught.value)


@pytest.mark.parametrize("cell", ["12.5", "12,5 USD", "1.23,4 EUR", "--3 EUR", "EUR"])
def test_cells_in_another_format_are_named(cell):
    with pytest.raises(rfgp.DataError, match="in row 1"):
        read_numbers(["1,50 EUR", cell], "1.234,50 EUR")


@pytest.mark.parametrize(
    ("cell", "words"), [("12.34,5", "'a' must hold numbers"), ("x", "'x'"), ("", "'a' has a miss")]
)
def test_cells_of_blocks_are_named(tmp_path, cell, words):
    (tmp_path / "t.csv").write_text(f"a;y\n1,5;2\n{cell};3\n")
    with pytest.raises(rfgp.DataError, match=words):
        list(CSV(tmp_path / "t.csv", "y", decimal=",", thousands=".").chunks())


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


@pytest.mark.parametrize(("text", "words"), NEW)
def test_bad_files_to_predict_at_are_named(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_text(TRAIN)
    schema = read_table(path, categories="one-hot", dates="days").schema
    path.write_text(text)
    with pytest.raises(rfgp.DataError) as caught:
        read_inputs(path, schema)
    assert words in str(caught.value)


def test_a_file_to_predict_at_has_the_classes_and_columns_of_training(tmp_path):
    path = tmp_path / "t.csv"
    for train, new, words in (
        ("a,y\n1,u\n2,v\n3,u\n", "a,y\n1,w\n2,v\n", "the model knows 2 levels: u, v"),
        ("1,2,3\n4,5,6\n", "1,2,3,4\n", "has 4 columns"),
    ):
        path.write_text(train)
        schema = read_table(path).schema
        path.write_text(new)
        with pytest.raises(rfgp.DataError, match=words):
            read_inputs(path, schema)


def test_all_problems_of_a_table_are_named_at_once(tmp_path):
    n = 12
    table = pd.DataFrame({"size": [*range(n)], "color": ["red", "blue"] * 6, "when": pd.date_range("1958", periods=n)})
    table = table.assign(name=[f"n{i}" for i in range(n)], y=range(n)).astype({"size": float})
    table.loc[4, "size"], table.loc[[2, 3], "color"] = None, None
    table.to_csv(tmp_path / "t.csv", index=False)
    expected = [
        ("'size' has 1 missing", "row 4", 'missing="drop"'),
        ("'color' holds text ('red' in row 0, 10 such cells)", 'categories="one-hot"'),
        ("'color' has 2 missing", "row 2"),
        ("'when' holds dates", 'dates="days"'),
        ("'name' holds text ('n0' in row 0, 12 such cells)", "identifier", "drop='name'"),
    ]
    for given in (table, tmp_path / "t.csv"):
        with pytest.raises(rfgp.DataError) as found:
            read_table(given)
        for line, words in zip(str(found.value).splitlines(), expected, strict=True):
            assert all(word in line for word in words), line
        remedies = {"categories": "one-hot", "dates": "days", "missing": "drop"}
        assert read_table(given, drop="name", **remedies).X.shape == (9, 4)
    with pytest.raises(rfgp.DataError, match="And 42 more columns: 22 with text, 20 with missing cells"):
        read_table(COUNTED.assign(y=[1.0, 2.0, 3.0]))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_places_without_a_readable_file(tmp_path, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"loop{suffix}").symlink_to(f"loop{suffix}")
    for name, words in (("none", "no file"), ("folder", "folder"), ("pipe", "regular"), ("loop", "loop")):
        with pytest.raises(rfgp.DataError, match=words):
            read_table(tmp_path / f"{name}{suffix}")
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
        with pytest.raises(rfgp.DataError, match=word):
            read_table(path, categories="one-hot")
        assert time.process_time() - begin < 1


def test_single_columns_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("day,s,price\n2026-01-01,n,2\n2026-01-02,s,4\n2026-01-02,,6\n")
    assert read_names(path) == ("day", "s", "price")
    assert read_kinds(path) == {"day": "date", "s": "text", "price": "number"}
    assert [read_groups(path, name).tolist() for name in ("day", "price")] == [[0, 1, 1], [0, 1, 2]]
    with pytest.raises(rfgp.DataError, match="no value in row 2"):
        read_groups(path, "s")
