"""Bad files and calls, each with what its message must say."""

import gzip
import io
import os
import re
import tarfile
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rfgp
from rfgp.tables import content, read_csv, read_inputs, read_table


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


def parquet(**columns):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def doubled():
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]), out)
    return out.getvalue()


GOOD = parquet(a=[1.0, 2.0], b=[3.0, 4.0])
WORDS = "".join(f"w{i},{i}\n" for i in range(300))
MANY = "".join(f"w{i % 260:03d},{i}\n" for i in range(600))

# name, content, options, fragments of the message
BAD = [
    ("empty.csv", b"", {}, ["empty.csv is empty"]),
    ("empty.csv.gz", gzip.compress(b""), {}, ["is empty"]),
    ("blank.csv", b"\n  \n\r\n", {}, ["only blank lines"]),
    ("comments.csv", b"# a\n# b\n", {"comment": "#"}, ["only blank lines or comments"]),
    ("header.csv", b"a,b\n", {}, ["a header and no rows"]),
    ("header2.csv", b"a,b\n\n \n", {}, ["a header and no rows"]),
    ("one.csv", b"a\n1\n2\n", {}, ["one column"]),
    ("text.csv", b"a,b\nred,2\n3,4\nred,5\n", {}, ["holds text ('red' in row 0, 2 such cells)", "one-hot", "drop='a'"]),
    ("place.csv", b"1,2\nred,3\nx,3\n", {}, ["column '0' holds text", "drop=0"]),
    ("mixed.csv", b"a,b\n1,2\n3,4\nx,5\n", {"categories": "one-hot"}, ["('x' in row 2", "among 2 numbers"]),
    ("mixed2.csv", b"a,b\n1,2\n3,4\nx,5\n", {"categories": "drop"}, ["'a' holds text", "missing_marks"]),
    ("target.csv", b"a,b\n1,2\n3,x\n5,6\n", {}, ["'b' holds text ('x' in row 1, 1 such cell)", "another target."]),
    ("ids.csv", b"id,b\n" + WORDS.encode(), {"categories": "one-hot"}, ["300 different texts", "drop='id'"]),
    ("many.csv", b"id,b\n" + MANY.encode(), {"categories": "one-hot"}, ["260 different texts in 600 cells"]),
    ("classes.csv", b"b,id\n1,x\n2,y\n", {}, ["column 'id' has 2 different texts", "is the target. Choose"]),
    ("gap.csv", b"a,b\n1,2\n,4\nNA,5\n", {}, ["column 'a' has 2 missing", "row 1 (missing)", 'missing="drop"', "mean"]),
    ("gap2.csv", b"a,b\n1,2\n,4\n", {"missing": "mean", "levels": ("a",)}, ["1 missing", 'Use missing="drop".']),
    ("text2.csv", b"a,b\nx,2\ny,4\n", {"columns": ("a",)}, ["The kernel reads numbers there", "Group('a')"]),
    ("gap3.csv", b"a,b\n1,2\n2,\n", {}, ["'b' (the target) has 1 missing", 'Use missing="drop". Rows']),
    ("gone.csv", b"a,b\n1,\n2,\n", {}, ["'b' has no values, all 2 are missing. This column is the target"]),
    ("allgone.csv", b"a,b\n,2\n,4\n", {"missing": "mean"}, ["column 'a' has no values, all 2", "drop='a'"]),
    ("nowhere.csv", b"a,b,c\n,2,3\n4,,5\n", {"missing": "drop"}, ["at least one row must have all values"]),
    ("inf.csv", b"a,b\n1,2\n-inf,4\n", {"missing": "mean"}, ["column 'a' has 1 missing or infinite", "row 1 (-inf)"]),
    ("huge.csv", b"a,b\n1,2\n1e999,4\n", {"missing": "drop"}, ["'a' has 1 missing or infinite", "row 1 (inf)"]),
    ("comma.csv", b"a;b\n1,5;2,3\n2,5;3,3\n", {}, ["holds text ('1,5' in row 0", 'decimal=","']),
    ("comma2.csv", b"1,5;2,3\n2,5;3,3\n", {}, ["'1,5'", 'decimal=","']),
    ("groups.csv", b"a;b\n1,200;2\n950;3\n", {}, ["('1,200' in row 0", 'Use thousands="," if a comma separates']),
    ("groups2.csv", b"1,200;2\n950;3\n", {}, ["got numbers and text ('1,200')", 'Use thousands=","']),
    ("groups3.csv", b"1,200;2,300\n950;3\n", {}, ["cells like '1,200'", 'Use thousands="," if']),
    ("groups4.csv", b"a;b\n1.200,5;3\n0,5;9\n", {}, ['Use decimal="," and thousands="."']),
    ("groups5.csv", b"a;b\n1.200,5;3\n0,5;9\n", {"decimal": ","}, ['Use thousands="." if a point']),
    ("groups6.csv", b"a;b\n12,00;3\n1,200;9\n", {"thousands": ","}, ["holds text ('12,00' in row 0, 1 such"]),
    ("points.csv", b"a;b\n1.234;2,3\n1.2;3\n", {"decimal": ","}, ["holds text ('1.234' in row 0, 2 such"]),
    ("hash.csv", b"# made in May\na,b\n1,2\n", {}, ['starts with "#"', 'comment="#"']),
    ("long.csv", b"a,b\n1,2\n3,4,5,6\n", {}, ["line 3 has 4 cells, more cells than the first line (2)"]),
    ("short.csv", b"a,b\n\n1,2\n3\n", {}, ["line 4 has 1 cell, fewer cells than the first line (2)"]),
    ("short.txt", b"1 2 3\n4 5\n", {}, ["line 2 has 2 cells, fewer"]),
    ("ragged.csv", b"# x\na,b\n1,2\n# y\n3\n", {"comment": "#"}, ["line 5 has 1 cell"]),
    ("quote.csv", b'"a,b\n1,2\n', {}, ["line 1 never closes"]),
    ("quote2.csv", b'a,b\n1,2\n3,"4\n', {}, ["line 3 never closes"]),
    ("twice.csv", b"a,b,a\n1,2,3\n", {}, ["two columns named 'a', at positions 0 and 2"]),
    ("twice2.csv", b"a, a \n1,2\n", {}, ["two columns named 'a'"]),
    ("first.csv", b"1,x\n3,4\n", {}, ["got numbers and text ('x')", "use names="]),
    ("latin.csv", "a,b\n1,é\n".encode("latin-1"), {}, ["byte 6 is not utf-8", 'encoding="latin-1"']),
    ("wide.csv", "a,b\n1,2\n".encode("utf-16"), {}, ["UTF-16", 'encoding="utf-16"']),
    ("wide2.csv", "a,b\n1,2\n".encode("utf-16-le"), {}, ["byte 1 is NUL"]),
    ("ascii.csv", "a,b\n1,é\n".encode(), {"encoding": "ascii"}, ["byte 6 is not ascii"]),
    ("nul.csv", b"a,b\n1,\0\n", {}, ["byte 6 is NUL"]),
    ("picture.csv", b"\x89PNG\r\n\x1a\n....", {}, ["PNG picture"]),
    ("book.csv", packed(b"a"), {}, ["zip archive", ".xlsx", "export a CSV"]),
    ("p.csv", GOOD, {}, ["Parquet file", ".parquet"]),
    ("z.csv", gzip.compress(b"a,b\n1,2\n"), {}, ["gzip data", ".gz"]),
    ("page.csv", b"<!DOCTYPE html><html>404</html>", {}, ["web page"]),
    ("lfs.csv", b"version https://git-lfs.github.com/spec/v1\n", {}, ["Git LFS pointer"]),
    ("plain.csv.gz", b"a,b\n1,2\n", {}, ["cannot be unpacked", "Not a gzipped file"]),
    ("cut.csv.gz", gzip.compress(os.urandom(900).hex().encode())[:300], {}, ["unpacked", "ended before", "fetch it"]),
    ("two.csv.gz", gzip.compress(gzip.compress(b"a,b\n1,2\n")), {}, ["gzip data", "only once"]),
    ("x.tar.gz", gzip.compress(tarred(b"a,b\n1,2\n")), {}, ["tar archive"]),
    ("zip.gz", gzip.compress(packed(b"a")), {}, ["zip archive"]),
    ("dates.csv", b"t,b\n2024-01-01,2\n2024-01-02,3\n", {}, ["holds dates ('2024-01-01' in row 0)", 'dates="days"']),
    ("dates2.csv", b"b,t\n2,2024-01-01\n", {"dates": "drop"}, ["The target must be a number", 'dates="days"']),
    ("dates3.csv", b"t,b\n2024-02-30,2\n", {"dates": "days"}, ["a date that does not exist ('2024-02-30' in row 0)"]),
    ("dates4.csv", b"t,b\n2024-02-20T25:00,2\n", {"dates": "days"}, ["does not exist"]),
    ("dates5.csv", b"t,b\n03/04/2025,2\n04/04/2025,3\n", {"dates": "days"}, ["holds text", "ISO (YYYY-MM-DD)"]),
    ("time.csv", b"t,b\n12:30,2\n12:31,3\n", {"dates": "days"}, ["holds text ('12:30'"]),
    ("nothing.csv", b"t,b\nx,2\ny,3\n", {"categories": "drop"}, ["no input columns left"]),
    ("steer.csv", b"a,b\n\x1b[31mred\x07,2\nx,3\n", {}, [r"'\x1b[31mred\x07' in row 0"]),
    ("steer2.csv", b"\x1b[2J,b\nx,2\ny,3\n", {}, [r"column '\x1b[2J' holds text"]),
    ("bidi.csv", "a,b\nx\u202ey,2\nz,3\n".encode(), {}, [r"'x\u202ey'"]),
    ("wordy.csv", b"a,b\n" + b"x" * 5000 + b",2\ny,3\n", {}, ["xxx...'"]),
    ("not.parquet", b"a,b\n1,2\n", {}, ["does not begin as such a file"]),
    ("cut.parquet", GOOD[:-20], {}, ["end too early"]),
    ("list.parquet", parquet(a=[[1.0], [2.0]], b=[1.0, 2.0]), {}, ["'a' holds values of type list<", "drop='a'"]),
    ("struct.parquet", parquet(a=[{"x": 1}], b=[1.0]), {}, ["column 'a' holds values of type struct<"]),
    ("bytes.parquet", parquet(a=[b"x"], b=[1.0]), {}, ["column 'a' holds values of type binary"]),
    ("clock.parquet", parquet(a=pa.array([1], pa.time64("us")), b=[1.0]), {}, ["of type time64"]),
    ("same.parquet", doubled(), {}, ["two columns named 'a'"]),
    ("norows.parquet", parquet(a=pa.array([], pa.float64())), {}, ["columns and no rows"]),
    ("nocolumns.parquet", parquet(), {}, ["has no columns"]),
    ("gap.parquet", parquet(a=[1.0, None], b=[1.0, 2.0]), {}, ["column 'a' has 1 missing", "row 1 (missing)"]),
    ("void.parquet", parquet(a=pa.nulls(2), b=[1.0, 2.0]), {}, ["column 'a' has no values"]),
    ("inf.parquet", parquet(a=[1.0, float("inf")], b=[1.0, 2.0]), {}, ["infinite value, the first in row 1 (inf)"]),
]  # fmt: skip


def message_of(path, data, **options):
    """Return what is said of a file with this content, after a check that it can be shown."""
    path.write_bytes(data)
    with pytest.raises(rfgp.DataError) as caught:
        read_table(path, **options)
    message = str(caught.value)
    assert path.name in message
    assert message.replace("\n", " ").isprintable()
    assert len(message) < len(str(path)) + 450
    assert message.endswith(".")
    return message


@pytest.mark.parametrize(("name", "data", "options", "fragments"), BAD, ids=[case[0] for case in BAD])
def test_bad_files_are_named(tmp_path, name, data, options, fragments):
    message = message_of(tmp_path / name, data, **options)
    assert all(fragment in message for fragment in fragments), message


HOSTILE = {
    "broken.csv.gz": lambda: gzip.compress(b"a,b\n1,2\n" * 50)[:-8] + b"12345678",
    "tiny.parquet": lambda: b"PAR1",
    "hole.parquet": lambda: GOOD[:-30] + b"\xff" * 22 + GOOD[-8:],
    "far.parquet": lambda: b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
    "endless.csv": lambda: b"x" * (4 << 20),
    "wide.csv": lambda: (b",".join([b"1"] * 1_000_000) + b"\n") * 2,
    "blanks.csv": lambda: (b" ".join([b"1"] * 1_000_000) + b"\n") * 2,
    "quoted.csv": lambda: b'a,b\n"' + b"x" * (1 << 20),
    "marks.csv": lambda: b'",' * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_nobody_has_are_named_soon(tmp_path, name):
    data, begin = HOSTILE[name](), time.perf_counter()
    message_of(tmp_path / name, data)
    assert time.perf_counter() - begin < 5


CALLS = [
    ({"target": "cost"}, "no column 'cost'. The columns are a, b"),
    ({"target": 2}, "no column '2'"),
    ({"target": -3}, "no column '-3'"),
    ({"drop": "c"}, "no column 'c'"),
    ({"drop": ("b",), "target": "b"}, "target 'b' is among the columns to drop"),
    ({"names": ["x"]}, "names holds 1 name, and its first line has 2 cells"),
    ({"names": "xy"}, "names must be a list of texts"),
    ({"categories": "onehot"}, "categories must be one of 'error', 'one-hot', 'levels', 'drop'"),
    ({"dates": "iso"}, "dates must be one of"),
    ({"missing": "median"}, "missing must be one of"),
    ({"decimal": ";"}, "decimal must be one of"),
    ({"thousands": ";"}, "thousands must be one of ','"),
    ({"thousands": ",", "decimal": ","}, "thousands must be one of '.'"),
    ({"comment": ""}, "comment must be"),
    ({"encoding": "klingon"}, "text encoding, got 'klingon'"),
    ({"encoding": "../x"}, "text encoding, got"),
]


@pytest.mark.parametrize(("options", "message"), CALLS)
def test_bad_calls_are_named(tmp_path, options, message):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(rfgp.InvalidArgumentError, match=re.escape(message)):
        read_table(path, **options)


DECIDED = 'Use decimal="," only if it is a decimal mark in all columns'
MARKS = [
    ("0,5;1,200\n950;950\n", ["In '0,5' the comma is a decimal mark, in '1,200' it may separate", DECIDED]),
    ("1,200;0,5\n950;950\n", ["In '0,5' the comma is a decimal mark, in '1,200' it may separate", DECIDED]),
    ("0,5;1.5\n950;950\n", ["Some numbers have a decimal comma and some a decimal point. Write them alike."]),
    ("1.200,5;1.5\n0,5;950\n", ["Some numbers have a decimal comma and some a decimal point"]),
]


@pytest.mark.parametrize(("rows", "messages"), MARKS)
def test_no_suggested_mark_changes_the_scale_of_another_column(tmp_path, rows, messages):
    (tmp_path / "t.csv").write_text("a;b\n" + rows)
    with pytest.raises(rfgp.DataError) as error:
        read_table(tmp_path / "t.csv")
    assert all(message in str(error.value) for message in messages)
    assert not re.search(r'Use (decimal|thousands)="."( and thousands="."|) where', str(error.value))


def test_unknown_endings_and_options(tmp_path):
    for name in ("t.xlsx", "t.zip", "t"):
        with pytest.raises(rfgp.InvalidArgumentError, match="ending of path"):
            read_table(tmp_path / name)
    with pytest.raises(TypeError):
        read_csv(tmp_path / "t.csv", sep=",")
    path = tmp_path / "t.parquet"
    path.write_bytes(GOOD)
    with pytest.raises(rfgp.InvalidArgumentError, match="names its columns"):
        read_table(path, names=["x", "y"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_places_without_a_file(tmp_path, suffix, monkeypatch):
    with pytest.raises(rfgp.DataError, match="There is no file"):
        read_table(tmp_path / f"none{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(rfgp.DataError, match="is a folder"):
        read_table(tmp_path / f"folder{suffix}")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(rfgp.DataError, match="not a regular file"):
        read_table(tmp_path / f"pipe{suffix}")
    path = tmp_path / f"locked{suffix}"
    path.write_bytes(b"1,2\n")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(rfgp.DataError, match="permission denied"):
        read_table(path)


def test_too_many_bytes_are_noticed_while_unpacking(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "MAX_BYTES", 3 << 20)
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"1,2\n" * (20 << 20), compresslevel=1))
    begin = time.perf_counter()
    with pytest.raises(rfgp.DataError, match="holds more than 3,145,728 bytes"):
        read_table(bomb)
    assert time.perf_counter() - begin < 1
    claim = tmp_path / "claim.parquet"
    pq.write_table(pa.table({"a": pa.array([0] * 300_000, pa.int8()), "b": pa.array([0] * 300_000, pa.int8())}), claim)
    with pytest.raises(rfgp.DataError, match="footer claims 300,000 rows and 2 columns"):
        read_table(claim)
    texts = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"a": ["x" * 10_000] * 1000, "b": [1.0] * 1000}), texts)
    with pytest.raises(rfgp.DataError, match="column 'a' holds 10,000,000 bytes of text"):
        read_table(texts)
    wide = tmp_path / "wide.csv"
    wide.write_text("a,b\n" + "".join(f"w{i % 200:03d},{i}\n" for i in range(4000)))
    with pytest.raises(rfgp.DataError, match="4,000 rows and 200 encoded columns are more than"):
        read_table(wide, categories="one-hot")


def test_bad_files_to_predict_at(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,color,when,y\n1,red,2024-01-01,1\n2,blue,2024-01-02,2\n3,red,2024-01-03,3\n")
    schema = read_table(path, categories="one-hot", dates="days").schema
    cases = [
        ("a,when\n1,2024-01-01\n", "lacks 1 column: color. Its columns are a, when."),
        ("color\nred\n", "lacks 2 columns: a, when"),
        ("1,2\n3,4\n", "lacks 3 columns: a, color, when. Its columns are 1, 2."),
        ("a,color,when\nx,red,2024-01-01\n", "column 'a' holds text ('x' in row 0, 1 such cell), but the model"),
        ("a,color,when\n2024-01-01,red,2024-01-01\n", "column 'a' holds dates ('2024-01-01' in row 0), but the"),
        ("a,color,when\n1,red,5\n", "column 'when' holds numbers ('5' in row 0), but the model needs dates"),
        ("a,color,when\n1,red,2024-13-01\n", "a date that does not exist"),
        ("a,color,when\n,red,2024-01-01\n2,red,2024-01-01\n", "column 'a' has 1 missing"),
        ("a,color,when,a\n1,red,2024-01-01,2\n", "two columns named 'a'"),
        (
            "a,color,when\ninf,red,2024-01-01\n",
            "column 'a' has 1 missing or infinite value, the first in row 0 (inf)",
        ),
        ("a,color,when,y\n1,red,2024-01-01,x\n", "column 'y' holds text"),
        ("a,color,when\n", "a header and no rows"),
    ]
    for text, message in cases:
        path.write_text(text)
        with pytest.raises(rfgp.DataError, match=re.escape(message)):
            read_inputs(path, schema)
    path.write_text("1,2,3\n4,5,6\n")
    schema = read_table(path).schema
    path.write_text("1,2,3,4\n")
    with pytest.raises(rfgp.DataError, match="has 4 columns; the model needs 3 columns, or 2 without the target"):
        read_inputs(path, schema)


def test_blank_lines_and_ragged_ones_after_each_line_end(tmp_path):
    path = tmp_path / "t.csv"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(end.join(["a,b", "1,2", "   ", '"3",4', ""]).encode())
        assert read_table(path).y.tolist() == [2, 4]
        path.write_bytes(end.join(["a,b", '"1"x,2', '"3",4', "5"]).encode())
        with pytest.raises(rfgp.DataError, match="line 4 has 1 cell, fewer cells than the first line"):
            read_table(path)


def test_an_identifier_of_numbers_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,y\n1,2\n3,4\n")
    with pytest.raises(rfgp.DataError, match="'id' has 2 different texts in 2 cells; it looks like an identifier"):
        read_table(path, as_categories="id")
