"""Dates are days on the clock of their zone, counted from the first, and durations are days."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from frames import CONTAINERS

import rfgp
from rfgp import kernels as k
from rfgp.columns import ColumnKind, ColumnRequest, Schema, Table

NOON = datetime.datetime(2024, 2, 29, 12)
DAYS = 19782.5
EAST = datetime.timezone(datetime.timedelta(hours=6))


def read(column, kind=ColumnKind.NUMBER):
    table = Table.of({"d": column})
    schema = Schema.fit([ColumnRequest("d", kind, "rbf(d)")], table)
    origin = schema.columns[0].origin / (86_400 * 10**18)
    return schema.columns[0].is_date, (schema.read(table)[:, 0] + origin).tolist()


DATES = {
    "dates": ([datetime.date(2024, 2, 29)], DAYS - 0.5),
    "datetimes": ([NOON], DAYS),
    "datetimes with a zone": ([NOON.replace(tzinfo=EAST)], DAYS),
    "dates and datetimes": ([NOON, datetime.date(2024, 2, 29)], DAYS),
    "numpy objects": ([np.datetime64("2024-02-29T12:00")], DAYS),
    "Timestamps": ([pd.Timestamp(NOON)], DAYS),
    "Timestamps with a zone": ([pd.Timestamp(NOON, tz="Asia/Kolkata")], DAYS),
    "pandas": (pd.Series([NOON]), DAYS),
    "pandas with a zone": (pd.Series([NOON]).dt.tz_localize("Asia/Kolkata"), DAYS),
    "pandas in seconds": (pd.Series([NOON]).dt.tz_localize("Asia/Kolkata").dt.as_unit("s"), DAYS),
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
    assert schema.read(table).tolist() == [[0.0, 0.0, 0.25]] * 2
    assert [column.origin / (86_400 * 10**18) for column in schema.columns] == [DAYS - 0.5, DAYS, 0.0]


ZONE = "Europe/Berlin"
HOURS = pd.date_range("2024-03-30", periods=72, freq="h", tz=ZONE)
"""Hours around the change of clocks in spring: an hour of the clock is skipped."""
AWARE = {
    "pandas": HOURS.to_series(),
    "an index": HOURS,
    "Timestamps": list(HOURS),
    "datetimes": [time.to_pydatetime() for time in HOURS],
    "objects": np.array(list(HOURS), dtype=object),
    "polars": pl.Series(HOURS.tz_convert("UTC").tz_localize(None))
    .dt.replace_time_zone("UTC")
    .dt.convert_time_zone(ZONE),
    "Arrow": pa.array(HOURS),
    "pandas with Arrow": pd.Series(pa.array(HOURS), dtype=pd.ArrowDtype(pa.timestamp("us", ZONE))),
    "categories": HOURS.to_series().astype("category"),
    "offsets": [time.to_pydatetime().astimezone(datetime.timezone(time.utcoffset())) for time in HOURS],
}


@pytest.mark.parametrize("column", AWARE.values(), ids=AWARE)
def test_zones_are_read_on_the_local_clock(column):
    found = np.array(read(column)[1])
    np.testing.assert_allclose(found, HOURS.tz_localize(None).to_numpy().astype("M8[h]").astype(int) / 24, atol=1e-9)


def test_other_zones_are_converted_to_that_of_training():
    train = Table.of({"d": HOURS})
    schema = Schema.from_dict(Schema.fit([ColumnRequest("d", ColumnKind.NUMBER, "rbf(d)")], train).to_dict())
    for times in (HOURS.tz_convert("Asia/Tokyo"), HOURS.tz_convert("UTC"), AWARE["offsets"]):
        assert schema.read(Table.of({"d": times})).equal(schema.read(train))


@pytest.mark.parametrize(
    ("train", "new", "words"),
    [
        (HOURS, HOURS.tz_localize(None), "must have a time zone"),
        (HOURS.tz_localize(None), HOURS, "must have no time zone"),
        (AWARE["offsets"], HOURS.tz_convert("UTC"), "'d' must have the UTC offsets"),
        ([HOURS[0], HOURS.tz_convert("Asia/Tokyo")[0]], HOURS, "several time zones"),
        ([HOURS[0], NOON], HOURS, "with and without a time zone"),
    ],
)
def test_times_of_another_kind_of_clock_are_refused(train, new, words):
    gp = rfgp.GP(k.RBF("d"), seed=0)
    with pytest.raises(rfgp.DataError, match=words):
        gp.condition({"d": train}, range(len(train))).predict({"d": new})


@pytest.mark.parametrize(("unit", "step"), [("s", 1), ("ms", 1), ("us", 20), ("us", 1), ("ns", 100), ("ps", 1)])
def test_fast_ticks_are_exact(unit, step):
    start = np.datetime64("1970-01-05T23:59:59.999999" if unit == "ps" else "2024-05-01T23:59:59.999999")
    times = start.astype(f"M8[{unit}]") + step * np.arange(-40, 40).astype(f"m8[{unit}]")
    schema = Schema.fit([ColumnRequest("d", ColumnKind.NUMBER, "rbf(d)")], Table.of({"d": times}))
    days = schema.read(Table.of({"d": times}))[:, 0].numpy()
    per_day = 86_400 * 1000 ** ["s", "ms", "us", "ns", "ps"].index(unit)
    np.testing.assert_allclose(np.diff(days) * per_day / step, 1, rtol=1e-12)


@pytest.mark.parametrize("first", [2**60, -(2**60), 2**63 + 5, 2**53 + 1])
def test_large_integers_keep_their_differences(first):
    numbers = [first + i for i in range(5)]
    arrays = {"objects": numbers, "array": np.array(numbers)}
    arrays |= {"tensor": torch.tensor(numbers)} if abs(first) < 2**63 else {}
    for column in arrays.values():
        schema = Schema.fit([ColumnRequest("d", ColumnKind.NUMBER, "rbf(d)")], Table.of({"d": column}))
        assert schema.read(Table.of({"d": column}))[:, 0].tolist() == [0, 1, 2, 3, 4]
        assert schema.read(Table.of({"d": [first + 2**20]}))[0, 0] == 2**20
    assert schema.read(Table.of({"d": [float(first)]}))[0, 0] == int(float(first)) - first


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
