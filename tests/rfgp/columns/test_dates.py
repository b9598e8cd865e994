"""Dates are days since 1970-01-01 UTC, and durations are days."""

import datetime

import numpy as np
import pandas as pd
import pytest
from frames import CONTAINERS

from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table

NOON = datetime.datetime(2024, 2, 29, 12)
DAYS = 19782.5
EAST = datetime.timezone(datetime.timedelta(hours=6))


def read(column, kind=ColumnKind.NUMBER):
    table = Table.of({"d": column})
    schema = Schema.fit([ColumnRequest("d", kind, "rbf(d)")], table)
    return schema.columns[0].is_date, schema.read(table)[:, 0].tolist()


DATES = {
    "dates": ([datetime.date(2024, 2, 29)], DAYS - 0.5),
    "datetimes": ([NOON], DAYS),
    "datetimes with a zone": ([NOON.replace(tzinfo=EAST)], DAYS - 0.25),
    "dates and datetimes": ([NOON, datetime.date(2024, 2, 29)], DAYS),
    "numpy objects": ([np.datetime64("2024-02-29T12:00")], DAYS),
    "Timestamps": ([pd.Timestamp(NOON)], DAYS),
    "Timestamps with a zone": ([pd.Timestamp(NOON, tz="Asia/Kolkata")], DAYS - 5.5 / 24),
    "pandas": (pd.Series([NOON]), DAYS),
    "pandas with a zone": (pd.Series([NOON]).dt.tz_localize("Asia/Kolkata"), DAYS - 5.5 / 24),
    "pandas in seconds": (pd.Series([NOON]).dt.tz_localize("Asia/Kolkata").dt.as_unit("s"), DAYS - 5.5 / 24),
    "an index": (pd.DatetimeIndex([NOON]), DAYS),
    "a category": (pd.Series([NOON]).astype("category"), DAYS),
    **{unit: (np.array([NOON], f"M8[{unit}]"), DAYS) for unit in ("h", "m", "s", "ms", "us", "ns", "3h")},
    "numpy days": (np.array([NOON], "M8[D]"), DAYS - 0.5),
    "numpy months": (np.array(["2024-02"], "M8[M]"), DAYS - 28.5),
    "numpy weeks": (np.array([2826], "M8[W]"), DAYS - 0.5),
    "before 1970": (np.array(["1969-12-31T06:00"], "M8[s]"), -0.75),
    "objects before 1970": ([datetime.datetime(1969, 12, 31, 6)], -0.75),
    "year 1": ([datetime.date(1, 1, 1)], -719162.0),
}


@pytest.mark.parametrize(("column", "days"), DATES.values(), ids=DATES)
@pytest.mark.parametrize("kind", [ColumnKind.NUMBER, ColumnKind.COORDINATE])
def test_dates_are_days(column, days, kind):
    is_date, found = read(column, kind)
    assert is_date
    assert found[0] == pytest.approx(days, abs=1e-9)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_dates_of_all_containers(container):
    columns = {"day": [datetime.date(2024, 2, 29)] * 2, "time": [NOON] * 2, "wait": [datetime.timedelta(hours=6)] * 2}
    table = Table.of(container(columns))
    schema = Schema.fit([ColumnRequest(key, ColumnKind.NUMBER, "rbf") for key in columns], table)
    assert [column.is_date for column in schema.columns] == [True, True, False]
    assert schema.read(table).tolist() == [[DAYS - 0.5, DAYS, 0.25]] * 2


def test_zones_of_polars_are_read_as_utc():
    pl = pytest.importorskip("polars")
    assert read(pl.Series([NOON]).dt.replace_time_zone("Asia/Kolkata"))[1] == [pytest.approx(DAYS - 5.5 / 24, abs=1e-9)]


DURATIONS = {
    "python": [datetime.timedelta(hours=36)],
    "numpy": np.array([36], "m8[h]"),
    "numpy objects": [np.timedelta64(36, "h")],
    "pandas": pd.Series([datetime.timedelta(hours=36)]),
    "Timedeltas": [pd.Timedelta(hours=36)],
}


@pytest.mark.parametrize("column", DURATIONS.values(), ids=DURATIONS)
def test_durations_are_days(column):
    assert read(column) == (False, [1.5])


def test_nanoseconds_are_kept():
    start = np.datetime64("2024-02-29T12:00:00", "ns")
    found = read(start + np.array([0, 1_000_000], "m8[ns]"))[1]
    assert np.diff(found)[0] * 86_400 == pytest.approx(1e-3, rel=1e-3)
