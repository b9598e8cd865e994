import gzip

import numpy as np
import pytest

import rfgp
from rfgp.tables import read_csv


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_headers_targets_and_separators(tmp_path):
    table = read_csv(write(tmp_path, "a,b,price\n1,2,3\n4,5,6\n"))
    assert (table.columns, table.target) == (("a", "b"), "price")
    np.testing.assert_array_equal(table.X, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(table.y, [3, 6])
    assert read_csv(tmp_path / "t.csv", "a").columns == ("b", "price")
    assert read_csv(tmp_path / "t.csv", "1").target == "b"
    assert read_csv(tmp_path / "t.csv", "-3").target == "a"
    for text in ("1;2;3\n4;5;6\n", "1\t2\t3\n4\t5\t6\n", " 1  2 3\n4 5   6\n", "1, 2, 3\n4, 5, 6\n"):
        plain = read_csv(write(tmp_path, text, "plain.txt"))
        assert plain.columns == ("0", "1")
        np.testing.assert_array_equal(plain.X, [[1, 2], [4, 5]])


def test_byte_order_marks_quotes_and_line_ends(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"size, cm",price\r\n1,2\r\n3,4\r\n')
    table = read_csv(path, "price")
    assert table.columns == ("size, cm",)
    np.testing.assert_array_equal(table.X[:, 0], [1, 3])
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    assert read_csv(path).columns == ("0",)


def test_gzip(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    np.testing.assert_array_equal(read_csv(path).y, [2, 4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n", "a header and no rows"),
        (b"a,b\n1,2\n3,x\n", r"column 'b' holds text \('x' in row 1, 1 such cell\)"),
        (b"a,b\n1,\n3,4\n", r"column 'b' \(the target\) has 1 missing or infinite value, the first in row 0"),
        (b"a,b\n1,inf\n3,4\n", r"column 'b' \(the target\) has 1 missing or infinite"),
        (b"a,b\n1,2\n3,4,5,6\n", "not a table"),
        (b"a\n1\n2\n", "one column"),
        (b"a,b,a\n1,2,3\n", "two columns named 'a'"),
        (b"a,b\n1,2,3\n4,5,6\n", "more cells than the first line"),
        (b"?,2\n3,4\n", "got numbers and text"),
        (b"a,b\n?,2\n3,4\n", r"column 'a' holds text \('\?' in row 0"),
        (b"\xff\xfe\x00bad,\x80\n\x81,\x82\n", "not a table|holds text"),
        (b'"a,b\n1,2\n', "not a table|header and no rows|one column"),
    ],
)
def test_bad_tables_are_named(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(rfgp.DataError, match=message):
        read_csv(path)


def test_missing_files_columns_and_bad_gzip(tmp_path):
    with pytest.raises(rfgp.DataError, match="There is no file"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(rfgp.DataError, match="not a table"):
        read_csv(write(tmp_path, "no gzip", "t.csv.gz"))
    with pytest.raises(rfgp.InvalidArgumentError, match=r"no column 'cost'\. The columns are a, b"):
        read_csv(write(tmp_path, "a,b\n1,2\n"), "cost")
    with pytest.raises(rfgp.InvalidArgumentError, match="no column '2'"):
        read_csv(write(tmp_path, "a,b\n1,2\n"), "2")
