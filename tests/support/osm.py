"""A small town as OpenStreetMap exports it: shared interior points, bridges, odd properties."""

import json
from pathlib import Path

import numpy as np

BLOCK = 120.0
"""Metres between parallel streets."""
LONGITUDE, LATITUDE = 8.54, 47.37


def ways():
    """Return (points in metres (n, 2), properties) of each way: the ways of a town of 8 x 6 streets.

    Every street is one way through all its crossings, with a bend between them. A motorway crosses five streets on a
    bridge: without a shared point. A roundabout is a closed way that two streets join. One street is drawn in both
    directions, and one is two parts of a MultiLineString.
    """
    found = []
    for j in range(6):
        points = [(x * BLOCK / 2, j * BLOCK + (6.0 if x % 2 else 0.0)) for x in range(15)]
        tags = {"highway": "residential", "name": f"{j}th Street", "oneway": "yes" if j == 2 else "no"}
        found.append(("LineString", [points], {**tags, "lanes": ["1", "2"] if j == 3 else "2"}))
    for i in range(8):
        points = [(i * BLOCK, y * BLOCK) for y in range(6)]
        tags = {"highway": "residential", "name": None, "oneway": "-1" if i == 1 else None}
        parts = [points[:3], points[2:]] if i == 4 else [points]
        found.append(("MultiLineString" if i == 4 else "LineString", parts, tags))
    there = [(7 * BLOCK, 0.0), (7.5 * BLOCK, -40.0), (8 * BLOCK, 0.0)]
    found += [("LineString", [there], {"name": "Both ways"}), ("LineString", [there[::-1]], {"name": "Both ways"})]
    found.append(("LineString", [[(-60.0, -60.0), (-60.0, 700.0)]], {"highway": "motorway", "bridge": "yes"}))
    found.append(("LineString", [[(-60.0, -60.0), (0.0, 0.0)]], {"highway": "motorway_link"}))
    found.append(("LineString", [[(-100.0, 2 * BLOCK), (0.0, 2 * BLOCK)]], {"highway": "track"}))  # under the motorway
    center, angles = np.array([9 * BLOCK, BLOCK]), np.linspace(0, 2 * np.pi, 13)[:-1]
    ring = [tuple(center + 20 * np.array([np.cos(a), np.sin(a)])) for a in angles]
    found.append(("LineString", [[*ring, ring[0]]], {"junction": "roundabout", "oneway": "yes"}))
    found.append(("LineString", [[(7 * BLOCK, BLOCK), ring[6]]], {"name": "West Road"}))
    found.append(("LineString", [[ring[3], (9 * BLOCK, 3 * BLOCK), (7 * BLOCK, 3 * BLOCK)]], {"name": "North Road"}))
    return found


def speed(points):
    """Return a smooth field (n,) at points (n, 2) in metres."""
    x, y = np.asarray(points).T
    return 45 + 12 * np.sin(x / 260) + 8 * np.cos(y / 210)


def sensors(count=90, seed=0):
    """Return places (count, 2) in metres of sensors on the ways, and their speeds with errors of 0.5."""
    rng = np.random.default_rng(seed)
    lines = [np.array(part) for _, parts, _ in ways() for part in parts]
    lengths = np.array([np.linalg.norm(np.diff(line, axis=0), axis=1).sum() for line in lines])
    places = []
    for line in rng.choice(len(lines), count, p=lengths / lengths.sum()):
        steps = np.linalg.norm(np.diff(lines[line], axis=0), axis=1)
        reached = np.concatenate([[0], np.cumsum(steps)])
        at = rng.uniform(0, reached[-1])
        places.append([np.interp(at, reached, lines[line][:, axis]) for axis in range(2)])
    return np.array(places), speed(places) + 0.5 * rng.standard_normal(count)


def degrees(points):
    """Return points (n, 2) in metres as longitudes and latitudes."""
    x, y = np.asarray(points).T
    scale = np.degrees(1 / 6_371_008.8)
    return np.stack([LONGITUDE + x * scale / np.cos(np.radians(LATITUDE)), LATITUDE + y * scale], axis=1)


def export(path):
    """Write the town as GeoJSON, and return the path."""

    features = [{"type": "Feature", "id": "node/0", "properties": {"note": "no place"}, "geometry": None}]
    for number, (kind, parts, tags) in enumerate(ways()):
        lines = [degrees(part).tolist() for part in parts]
        geometry = {"type": kind, "coordinates": lines[0] if kind == "LineString" else [*lines, []]}
        features.append({"type": "Feature", "id": f"way/{number}", "properties": tags, "geometry": geometry})
    places, values = sensors()
    for number, (place, value) in enumerate(zip(places, values, strict=True)):
        tags = {"speed": round(float(value), 3) if number % 9 else None, "tags": ["a", None], "who": None}
        geometry = {"type": "Point", "coordinates": degrees([place])[0].tolist()}
        features.append({"type": "Feature", "id": number, "properties": tags, "geometry": geometry})
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
    content = {"type": "FeatureCollection", "name": "town", "crs": crs, "features": features}
    Path(path).write_text(json.dumps(content))
    return Path(path)
