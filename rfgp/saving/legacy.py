"""Files of earlier versions in the present form: models of one field or kernel on nodes had classes of their own.

Only names change, and the JSON of options is written anew. The decoder of the present form then checks everything.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from graphs.walks import HopRule
from rfgp import approximations
from rfgp.saving.legacy_tables import TABLES, common_options, path_of, schema_of, upgraded_table
from rfgp.saving.values import Encoder

Json = dict[str, Any]
Tensors = Mapping[str, Tensor]

FIELDS = {"MeshGP": ("Mesh", "mesh", ("within",)), "RoadGP": ("Roads", "network", ("alpha", "boundary"))}
"""By the class of a model of a field its kernel, the argument for the mesh or the roads, and further arguments."""
OBJECTS = {"MeshGP": "mesh", "RoadGP": "roads", "GraphGP": "graph"}
"""By the class of a model the kind of the object in the file."""
ROOMS = ("field.", "graph.")
"""The beginnings of the names of the tensors of that object."""
DRAWN = ("eigenvalues", "eigenvectors")
"""The tensors that belong to random draws."""


class _Leaf(NamedTuple):
    """The parts of a file that depend on the kind of kernel, as JSON.

    Attributes:
        name: The class of the kernel.
        arguments: Its arguments.
        columns: Its argument for the columns, once they are known.
        kind: The kind of its columns.
        parameters: The names of its hyperparameters.
        approximation: Its approximation.
        draw: The form of its draws.
    """

    name: str
    arguments: Json
    columns: Json
    kind: str
    parameters: tuple[str, ...]
    approximation: Any
    draw: Json


def upgraded(header: Json, tensors: Tensors) -> tuple[Json, Tensors]:
    """Return the header and the tensors (...) of a file of any version in the form of the present one."""
    kind, old = header["class"], header["options"]
    if kind not in (*OBJECTS, *TABLES) or "resolved" in old:
        return header, tensors
    if kind in TABLES:
        return upgraded_table(header, tensors)
    changed = dict(tensors)
    if kind == "GraphGP":
        leaf = _nodes(old)
        changed |= {name: t[:, None].double() for name, t in tensors.items() if _is_inputs(name)}
        width, spread = 1, torch.ones(1, dtype=torch.float64)
    else:
        location, spread = (tensors[f"scaling.inputs.{part}"] for part in ("location", "scale"))
        width, leaf = len(spread), _field(old, kind, len(spread))
        own = {name: t * spread + location for name, t in tensors.items() if _is_inputs(name) and "data." not in name}
        changed |= own
    changed |= {"columns.spread": spread, "scaling.inputs.location": torch.zeros_like(spread)}
    changed["scaling.inputs.scale"] = torch.ones_like(spread)
    changed = {_renamed(name, leaf): tensor for name, tensor in changed.items()}
    names = [_renamed(f"hyperparameters.{name}", leaf).partition(".")[2] for name in header["hyperparameters"]]
    return {**header, "hyperparameters": names, "options": _options(old, kind, leaf, width)}, changed


def _is_inputs(name: str) -> bool:
    return name.startswith(("predictor.", "data.")) and name.rpartition(".")[2] == "inputs"


def _renamed(name: str, leaf: _Leaf) -> str:
    """Return the present name of a tensor, those of hyperparameters by their path."""
    room, _, rest = name.partition(".")
    if name.startswith(ROOMS):
        return f"draw.0.{rest}" if rest in DRAWN else f"object.0.{rest}"
    own = *leaf.parameters, "outputscale"
    return f"{room}.{path_of(rest, leaf.name.lower(), own)}" if room == "hyperparameters" else name


def _options(old: Mapping[str, Any], kind: str, leaf: _Leaf, width: int) -> Json:
    """Return the options of a model of one term with so many columns."""
    term, of_object = leaf.name.lower(), {key: value for key, value in old.items() if key in _OF_OBJECTS[kind]}
    factor = {"role": "kernel", "name": leaf.name, "arguments": leaf.arguments}
    starts = {key: old.get(key) for key in ("lengthscale", "outputscale", "noise")}
    used = Encoder().encode(leaf.approximation)
    return {
        **common_options(old),
        "kernel": {"leaves": [factor], "terms": None},
        "resolved": {
            "leaves": [{**factor, "arguments": {**leaf.arguments, **leaf.columns}}],
            "terms": [{"factors": [0], "given": [], "name": term, "variance": None}],
        },
        "objects": [{**of_object, "kind": OBJECTS[kind]}],
        "approximation": used,
        "approximations": [used],
        "draws": [leaf.draw],
        "start": {key: value for key, value in starts.items() if value is not None},
        "priors": old["priors"] or {},
        "schema": schema_of(range(width), leaf.kind, [term]),
        "nodes": [0] if leaf.kind == "node" else [],
    }


_OF_OBJECTS = {
    "MeshGP": ("alpha",),
    "RoadGP": ("metric",),
    "GraphGP": ("labels", "has_labels", "numbers", "grid", "num_self_loops_dropped", "laplacian"),
}
"""The options that belong to the mesh, the roads or the graph."""


# --- fields ----------------------------------------------------------------------------------------


def _field(old: Mapping[str, Any], kind: str, width: int) -> _Leaf:
    """Return the parts of a field on a mesh or on roads with so many columns."""
    name, place, others = FIELDS[kind]
    arguments = {place: {"object": 0}, **{key: _number(old[key]) for key in others if key in old}}
    columns, draw = {"columns": list(range(width))}, {"form": "precision"}
    return _Leaf(name, arguments, columns, "coordinate", ("lengthscale",), approximations.SparsePrecision(), draw)


def _number(value: Any) -> Any:
    """Return an argument in the present form, in which infinity is not a text."""
    return {"number": value} if value == "inf" else value


# --- nodes -----------------------------------------------------------------------------------------


def _nodes(old: Mapping[str, Any]) -> _Leaf:
    """Return the parts of a kernel on nodes."""
    kernel, features = _graph_kernel(old["kernel"]), old["features"]
    encoder, series = Encoder(), {"degree": None, "rank": None, **old.get("series", {})}
    arguments = {"graph": {"object": 0}, "kernel": encoder.encode(kernel)}
    degree, walks = series["degree"], dict(old["walks"])
    size = {} if degree is None or features == "walks" else {"degree": degree}
    known = {name: old[name] for name in ("generator", "permutation", "tuples", "hop_limits")}
    draw = {"form": "nodes", "kind": features, "size": size, "halt": encoder.encode(walks["halt"]), **known}
    makers: dict[str, Callable[[], Any]] = {
        "exact": approximations.Exact,
        "precision": approximations.SparsePrecision,
        "rational": lambda: approximations.RationalPrecision(degree),
        "chebyshev": lambda: approximations.Chebyshev(degree),
        "taylor": lambda: approximations.Taylor(degree),
        "spectrum": lambda: approximations.TruncatedSpectrum(series["rank"]),
        "walks": lambda: _walks(walks, old["hop_limits"], old["seed"]),
    }
    draw = {"form": "precision"} if features == "precision" else draw
    return _Leaf("Nodes", arguments, {"column": 0}, "node", tuple(kernel.parameters), makers[features](), draw)


def _walks(walks: Json, limits: Any, seed: int) -> approximations.RandomWalks:
    """Return the random walks of a model.

    Raises:
        ValueError: a rule for exact hops is missing, or does not belong.
    """
    asked = walks.pop("exact_hops")
    if (limits is not None and asked not in ("auto", "rule")) or (limits is None and asked == "rule"):
        raise ValueError('a rule for exact hops comes with exact_hops="auto" or "rule"')
    hops = HopRule(limits) if asked == "rule" else asked
    return approximations.RandomWalks(**walks, exact_hops=hops, seed=seed)


def _graph_kernel(described: Mapping[str, Any]) -> GraphKernel:
    """Return a graph kernel; its base, if it has one, has none of its own."""
    inner = {name: graphs.kernels.by_name(**value) for name, value in described.items() if isinstance(value, dict)}
    return graphs.kernels.by_name(**{**described, **inner})
