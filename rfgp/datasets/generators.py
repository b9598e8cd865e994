"""Seeded generators of small inputs: a table, a bumpy mesh, a road network with sensors.

`data/` holds what `write_all` wrote; a test compares the two.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs import Roads
from rfgp import random
from rfgp.errors import requires_extra
from rfgp.files import write_atomically
from rfgp.tables import Table

_TABLE_ROWS = 600
_GRID = 11
_SENSORS = 120
_CELLS = 52


def make_table(seed: int = 0) -> Table:
    """Return a table (600, 4) with a smooth target of three of its columns and noise.

    The columns have different units, so standardization matters. The column "idle" has no effect.

    Args:
        seed: The seed of the columns and the noise.

    Examples:
        >>> make_table().X.shape
        (600, 4)
    """
    generator = random.numpy_generator(seed, random.Role.DATA, 0)
    unit = generator.uniform(-1, 1, size=(_TABLE_ROWS, 4))
    clean = np.sin(2 * unit[:, 0]) + unit[:, 1] + 0.5 * unit[:, 1] * unit[:, 2]
    y = 20 + 5 * (clean + 0.25 * generator.standard_normal(_TABLE_ROWS))
    X = unit * np.array([1.0, 50.0, 0.01, 3.0]) + np.array([0.0, 300.0, 1.0, -7.0])
    return Table(np.round(X, 6), np.round(y, 6), ("angle", "temperature", "thickness", "idle"), "yield")


def make_mesh(seed: int = 0, subdivisions: int = 3) -> Any:
    """Return a bumpy, slightly rough sphere as a `trimesh.Trimesh`.

    Args:
        seed: The seed of the bumps.
        subdivisions: The number s of subdivisions, for 20 4^s triangles. The roughness of the faces does not depend on
            it.

    Examples:
        >>> make_mesh(subdivisions=1).faces.shape
        (80, 3)
    """
    with requires_extra("mesh"):
        import trimesh

    generator = random.numpy_generator(seed, random.Role.DATA, 1)
    sphere = trimesh.creation.icosphere(subdivisions=subdivisions)
    directions = np.asarray(sphere.vertices)
    bumps = np.zeros(len(directions))
    for _ in range(6):
        axis = generator.standard_normal(3)
        axis /= np.linalg.norm(axis)
        bumps += generator.uniform(0.05, 0.15) * np.cos(generator.integers(2, 6) * directions @ axis * np.pi / 2)
    bumps += 0.03 * 2.0 ** (3 - subdivisions) * generator.standard_normal(len(directions))
    return trimesh.Trimesh(np.round(directions * (1 + bumps)[:, None], 6), sphere.faces, process=False)


def make_terrain(seed: int = 0) -> Any:
    """Return a hilly square of 5,408 triangles as a `trimesh.Trimesh`.

    Heights are white noise that is smoothed 24 times over neighboring vertices. Normals vary over about five faces.

    Args:
        seed: The seed of the noise.

    Examples:
        >>> make_terrain().faces.shape
        (5408, 3)
    """
    with requires_extra("mesh"):
        import trimesh

    generator = random.numpy_generator(seed, random.Role.DATA, 3)
    heights = generator.standard_normal((_CELLS + 1, _CELLS + 1))
    for _ in range(24):
        near = np.pad(heights, 1, mode="reflect")
        heights = (4 * heights + near[:-2, 1:-1] + near[2:, 1:-1] + near[1:-1, :-2] + near[1:-1, 2:]) / 8
    places = np.stack(np.meshgrid(np.arange(_CELLS + 1), np.arange(_CELLS + 1), indexing="ij"), axis=-1)
    vertices = np.concatenate([places, 2 * heights[:, :, None] / heights.std()], axis=2).reshape(-1, 3)
    corner = (np.arange(_CELLS)[:, None] * (_CELLS + 1) + np.arange(_CELLS)).reshape(-1, 1)
    next_row, opposite = corner + _CELLS + 1, corner + _CELLS + 2
    faces = np.concatenate([np.hstack([corner, next_row, opposite]), np.hstack([corner, opposite, corner + 1])])
    return trimesh.Trimesh(np.round(vertices, 6), faces, process=False)


def make_roads(seed: int = 0) -> Roads:
    """Return the road grid of a town with 120 speed sensors, values in mph.

    Speed varies over a few blocks and drops along one diagonal. The noise has a standard deviation of 1.5 mph.

    Args:
        seed: The seed of the roads and of the sensors.

    Examples:
        >>> make_roads().metric
        'haversine'
    """
    generator = random.numpy_generator(seed, random.Role.DATA, 2)
    places = np.stack(np.meshgrid(np.arange(_GRID), np.arange(_GRID), indexing="ij"), axis=-1).reshape(-1, 2)
    points = np.array([8.60, 49.40]) + 0.004 * (places + generator.uniform(-0.3, 0.3, places.shape))
    number = {tuple(place): i for i, place in enumerate(places.tolist())}
    pairs = [
        (i, number[there])
        for place, i in number.items()
        for there in ((place[0] + 1, place[1]), (place[0], place[1] + 1))
        if there in number
    ]
    joined = [pairs[i] for i in range(len(pairs)) if generator.uniform() > 0.12]
    lines = [np.round(np.stack([points[a], points[b]]), 6) for a, b in joined]
    edges = np.sort(generator.choice(len(lines), _SENSORS, replace=False))
    fractions = np.round(generator.uniform(0.1, 0.9, _SENSORS), 6)
    where = np.array([(1 - t) * lines[e][0] + t * lines[e][1] for e, t in zip(edges, fractions, strict=True)])
    u, v = ((where - np.array([8.62, 49.42])) / 0.02).T
    speed = 34 + 8 * np.cos(3 * u) * np.cos(4 * v) - 6 * np.exp(-8 * (u - v) ** 2)
    speed = speed + 1.5 * generator.standard_normal(_SENSORS)
    return Roads(lines, edges.astype(np.int64), fractions, np.round(speed, 3))


def write_all(folder: str | Path) -> list[Path]:
    """Write table.csv, mesh.ply and roads.geojson with seed 0.

    Each file is written whole or not at all.

    Args:
        folder: The folder. It is created if it is missing.

    Returns:
        The paths of the files.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.name for path in write_all(folder)]
        ['table.csv', 'mesh.ply', 'roads.geojson']
    """
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    contents = {
        "table.csv": _csv(make_table()),
        "mesh.ply": _ply(make_mesh()),
        "roads.geojson": _geojson(make_roads()),
    }
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]


def write_terrain(folder: str | Path) -> Path:
    """Write terrain.ply, of 5,408 triangles, with seed 0.

    The file is written whole or not at all.

    Args:
        folder: An existing folder.

    Returns:
        The path of the file.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_terrain(folder).name
        'terrain.ply'
    """
    path = Path(folder) / "terrain.ply"
    write_atomically(path, _ply(make_terrain()))
    return path


def _csv(table: Table) -> bytes:
    out, header = io.BytesIO(), ",".join((*table.columns, table.target))
    np.savetxt(out, np.column_stack([table.X, table.y]), "%.6f", ",", header=header, comments="")
    return out.getvalue()


def _ply(mesh: Any) -> bytes:
    vertices: NDArray[np.float64] = np.asarray(mesh.vertices)
    lines = ["ply", "format ascii 1.0", f"element vertex {len(vertices)}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header"]
    lines += [" ".join(f"{value:.6f}" for value in vertex) for vertex in vertices.tolist()]
    lines += [" ".join(map(str, (3, *face))) for face in mesh.faces.tolist()]
    return ("\n".join(lines) + "\n").encode()


def _geojson(roads: Roads) -> bytes:
    features: list[dict[str, Any]] = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": {"type": "LineString", "coordinates": np.round(line, 6).tolist()},
        }
        for line in roads.lines
    ]
    for edge, fraction, value in zip(roads.sensor_edges, roads.sensor_fractions, roads.values, strict=True):
        line = roads.lines[int(edge)]
        place = np.round((1 - fraction) * line[0] + fraction * line[-1], 6).tolist()
        features.append(
            {
                "type": "Feature",
                "properties": {"edge": int(edge), "fraction": float(fraction), "value": float(value)},
                "geometry": {"type": "Point", "coordinates": place},
            }
        )
    rows = ",\n".join(json.dumps(feature) for feature in features)
    return f'{{"type": "FeatureCollection", "features": [\n{rows}\n]}}\n'.encode()
