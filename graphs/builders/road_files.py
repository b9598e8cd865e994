"""Readers of roads with sensors: R data files and GeoJSON."""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphs.builders.files import brief, check_file
from graphs.builders.geojson import read_geojson
from graphs.builders.nearest import check_limit
from graphs.builders.roads import Roads
from graphs.errors import FileFormatError, GraphError, GraphWarning


def read_roads(
    path: str | Path,
    target: str | None = "value",
    metric: str | None = None,
    *,
    within: float | None = None,
    skip: bool = False,
) -> Roads:
    """Read roads and sensors from an R data file (.rda) or GeoJSON (.geojson, .json).

    The R file holds one list with `edges` (line strings) and `data` (columns `y`, `.edge_number`
    counted from 1, `.distance_on_edge` as a fraction), as MetricGraph stores it. The GeoJSON is a
    FeatureCollection of LineStrings (each part of a MultiLineString is one of its own) and of Points, the sensors.
    Coordinates are longitude and latitude in degrees, unless the file's `crs` says otherwise. A sensor's properties
    are the target (null: nothing measured) and, if known, the number `edge` of its LineString (from 0) and the
    `fraction` of its length; a sensor without them is put on the nearest road, at most `within` away. Sensors at one
    place share
    it. Features with a null geometry or without points are left out with a warning. Properties, ids, `name` and `crs`
    are kept, and are written back by `rfgp.fields.write_roads`.

    Args:
        path: The file.
        target: GeoJSON: the property that holds the sensors' values. If None, sensors are passed over.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane. If None, it follows from the
            file's `crs`; without one, "haversine".
        within: GeoJSON: how far from a road a sensor may lie that names none, in metres or the units of the plane. If
            None, 500 m on the globe, and a tenth of the diagonal of the roads' box in a plane.
        skip: GeoJSON: whether to leave out features that are neither roads nor sensors, and sensors too far away, and
            to take sensors whose value is no number as not observed; numbers that are written as text count.

    Raises:
        FileFormatError: the file is missing, empty, or has another content; its `crs` is unknown, or contradicts the
            metric.
        InvalidGraphError: coordinates that should be degrees are not.
        InvalidArgumentError: `within` is not a positive number.

    Warns:
        SkippedFeaturesWarning: the numbers of features that were left out or not observed.
    """
    if within is not None:
        check_limit(within)
    file = check_file(path, "a road network", packed=Path(path).suffix.lower() == ".rda")
    try:
        if file.suffix.lower() == ".rda":
            return _read_rda(file, metric or "haversine")
        return read_geojson(file, target, metric, within, skip)
    except (GraphError, GraphWarning):
        raise
    except Exception as error:  # the parsers raise whatever their bytes lead them to
        raise FileFormatError(
            f"{file} is not a road network that can be read: {type(error).__name__}, {brief(error)}"
        ) from error


def _read_rda(file: Path, metric: str) -> Roads:
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata names every R class that it has no constructor for
        content = next(iter(rdata.read_rda(file).values()))
    data = content["data"]
    lines = [np.asarray(line, dtype=np.float64) for line in content["edges"]["geometry"]]
    columns = (np.asarray(data[name], dtype=np.float64) for name in (".edge_number", ".distance_on_edge", "y"))
    edge, fraction, value = columns
    return Roads(lines, _whole(edge, file) - 1, fraction, value, metric=metric, unit="m" * (metric == "haversine"))


def _whole(numbers: NDArray[np.float64], file: Path) -> NDArray[np.int64]:
    wrong = ~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise FileFormatError(f"{file}: sensor {int(wrong.argmax())} names road {numbers[wrong][0]}, no whole number.")
    return numbers.astype(np.int64)
