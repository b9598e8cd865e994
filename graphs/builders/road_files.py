"""Readers of roads with sensors: R data files and GeoJSON."""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphs.builders.files import check_file
from graphs.builders.geojson import read_geojson
from graphs.builders.nearest import check_limit
from graphs.builders.roads import Roads
from graphs.checks import one_line
from graphs.errors import FileFormatError, GraphError, GraphWarning, requires_extra


def read_roads(
    path: str | Path,
    target: str | None = "value",
    metric: str | None = None,
    *,
    within: float | None = None,
    skip: bool = False,
) -> Roads:
    """Return the roads and sensors of an R data file (.rda) or GeoJSON (.geojson, .json).

    The R file holds one list with `edges` (line strings) and `data`, as MetricGraph stores it. The columns of `data`
    are `y`, `.edge_number` from 1 and `.distance_on_edge` as a fraction. The GeoJSON file is a FeatureCollection of
    LineStrings and MultiLineStrings, whose parts are separate roads, and of Points, the sensors. Coordinates are
    longitude and latitude in degrees, unless the `crs` of the file says otherwise.

    The properties of a sensor are the target (null if nothing was measured) and optionally the number `edge` of its
    LineString (from 0) and the `fraction` of its length. A sensor without them is moved to the nearest road. Features
    with a null geometry or without points are skipped with a warning. Third coordinates are heights in the unit of
    lengths: points of different heights do not meet, and lengths stay horizontal. If only some points of the roads have
    one, all heights are ignored, with a warning if this joins roads. Roads have no direction, and `Roads.num_one_way`
    counts those with one in the file. Properties, ids, `name` and `crs` are kept, and
    `rfgp.fields.write_roads` writes them.

    Args:
        path: The file.
        target: For GeoJSON, the property with the values of sensors. If None, sensors are ignored.
        metric: "haversine" for degrees, or "euclidean" for coordinates in a plane. If None, it follows from the `crs`
            of the file, or is "haversine" without one.
        within: For GeoJSON, the largest distance of a sensor from the nearest road, in meters or the units of the
            plane. If None, 500 m on the globe, and a tenth of the diagonal of the bounding box of the roads in a plane.
        skip: For GeoJSON, whether to skip features that are neither roads nor sensors, and sensors too far away.
            Sensors whose value is not a number are then not observed, and numbers written as text are read.

    Raises:
        FileFormatError: If the file is missing, empty or has other content, or its `crs` is unknown or contradicts the
            metric.
        InvalidGraphError: If coordinates are not degrees.
        InvalidArgumentError: If `within` is not a positive number.

    Warns:
        SkippedFeaturesWarning: If features were skipped or not observed, heights were ignored, or roads of different
            layers (`layer`, `bridge`, `tunnel`) meet at a point inside both.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import graphs
        >>> line = {"type": "LineString", "coordinates": [[0, 0], [2, 0]]}
        >>> point = {"type": "Point", "coordinates": [1, 0.1]}
        >>> features = [
        ...     {"type": "Feature", "geometry": line, "properties": {}},
        ...     {"type": "Feature", "geometry": point, "properties": {"value": 3.5}},
        ... ]
        >>> path = Path(tempfile.mkdtemp()) / "roads.geojson"
        >>> _ = path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        >>> roads = graphs.read_roads(path, metric="euclidean")
        >>> roads.sensor_fractions.tolist(), roads.values.tolist()
        ([0.5], [3.5])
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
            f"{file} must be a road network that can be read, got {type(error).__name__}: {one_line(error)}"
        ) from error


def _read_rda(file: Path, metric: str) -> Roads:
    with requires_extra("datasets"):
        import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata names every R class that it has no constructor for
        content = next(iter(rdata.read_rda(file).values()))
    data = content["data"]
    lines = [np.asarray(line, dtype=np.float64) for line in content["edges"]["geometry"]]
    columns = (np.asarray(data[name], dtype=np.float64) for name in (".edge_number", ".distance_on_edge", "y"))
    edge, fraction, value = columns
    return Roads(lines, _integers(edge, file) - 1, fraction, value, metric=metric, unit="m" * (metric == "haversine"))


def _integers(numbers: NDArray[np.float64], file: Path) -> NDArray[np.int64]:
    wrong = ~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise FileFormatError(
            f"{file}: the road of sensor {int(wrong.argmax())} must be a whole number, got {numbers[wrong][0]}."
        )
    return numbers.astype(np.int64)
