"""Values in files: one registry of roles and one codec, and graphs, road networks and meshes once each as tensors.

A value of a class is JSON with its role, the name of its class and all its arguments, so that later defaults do not
change a saved model. An argument with the metadata "since" of its field is left out if it is None. Numbers, texts,
booleans and None are stored directly, tuples and lists as lists, and everything else with a mark. Unknown names are
errors, and nothing is imported.

A kernel or an approximation is in the registry once `rfgp.kernels` or `rfgp.approximations` exports it. A likelihood, a
spectrum, a coupling or a graph kernel has a line in the registry of its package. Another kind of value gets a line in
`_ROLES`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from graphs.builders.lines import Lines, RoadEdges
from graphs.builders.points import GridLabels
from graphs.checks import Registry
from graphs.kernels import GraphKernel
from graphs.walks import HopRule
from rfgp import approximations, couplings, kernels, likelihoods, priors, spectra
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.saving.container import Json, Tensors, check, part

Arrays = Mapping[str, NDArray[Any]]

# --- The registry of roles -------------------------------------------------------------------------------------------


def _exported(module: Any, role: type, *others: type) -> Registry[Any]:
    """Return the classes of a role that a module exports, except the role itself and others."""
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, role)}
    word = role.__name__.lower()
    return Registry(word, {name: kind for name, kind in kinds.items() if kind not in (role, *others)})


def _of_torch(*names: str) -> dict[str, type]:
    return {name: getattr(torch.distributions, name) for name in names}


KERNELS = _exported(kernels, kernels.Kernel, kernels.Sum)
APPROXIMATIONS = _exported(approximations, approximations.Approximation)
BASES = {name: kind for name, kind in KERNELS.classes.items() if kind.kind is ColumnKind.NUMBER}
"""The classes that a file may name as the base of `Additive`. Those of meshes would read a file."""
PRIORS = Registry[Any](
    "prior",
    _of_torch("Beta", "Cauchy", "Exponential", "Gamma", "HalfCauchy", "HalfNormal", "InverseGamma", "LogNormal")
    | _of_torch("Normal", "Pareto", "StudentT", "Uniform", "Weibull")
    | priors.OWN,
)
HOP_RULES = Registry("hop rule", {"HopRule": HopRule})
DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}


class _Role(NamedTuple):
    """A role whose values are written by class name.

    Attributes:
        kind: The class of the role, or several.
        name_of: A function that returns the class name of a value.
        make: A function that returns the value with a name and arguments.
        arguments: A function that returns the arguments of a value by name.
    """

    kind: type | tuple[type, ...]
    name_of: Callable[[Any], str]
    make: Callable[..., Any]
    arguments: Callable[[Any], Mapping[str, Any]]


def _fields(value: Any) -> dict[str, Any]:
    """Return the arguments of a value, without later ones than the first files of the format that are None."""
    pairs = ((entry, getattr(value, entry.name)) for entry in fields(value) if entry.init)
    return {entry.name: own for entry, own in pairs if own is not None or "since" not in entry.metadata}


def _prior_arguments(prior: Any) -> dict[str, Any]:
    """Return the arguments of a prior: numbers, and pairs of a tensor and its dtype for distributions of torch."""
    if is_dataclass(prior):
        return _fields(prior)
    tensors = {name: torch.as_tensor(getattr(prior, name)) for name in prior.arg_constraints}
    return {name: (tensor, tensor.dtype) for name, tensor in tensors.items()}


def _make_prior(name: str, **arguments: Any) -> Any:
    pairs = {key: value for key, value in arguments.items() if isinstance(value, tuple)}
    tensors = {key: torch.as_tensor(numbers, dtype=dtype) for key, (numbers, dtype) in pairs.items()}
    return PRIORS.make(name, **arguments | tensors)


_ROLES = {
    "kernel": _Role(kernels.Kernel, KERNELS.name_of, KERNELS.make, _fields),
    "approximation": _Role(approximations.Approximation, APPROXIMATIONS.name_of, APPROXIMATIONS.make, _fields),
    "spectrum": _Role(spectra.Spectrum, spectra.name_of, spectra.by_name, vars),
    "coupling": _Role(couplings.Coupling, couplings.name_of, couplings.by_name, couplings.options_of),
    "likelihood": _Role(likelihoods.Likelihood, likelihoods.REGISTRY.name_of, likelihoods.REGISTRY.make, _fields),
    "graph kernel": _Role(GraphKernel, graphs.kernels.name_of, graphs.kernels.by_name, _fields),
    "hop rule": _Role(HopRule, HOP_RULES.name_of, HOP_RULES.make, _fields),
    "prior": _Role(
        (torch.distributions.Distribution, *priors.OWN.values()), PRIORS.name_of, _make_prior, _prior_arguments
    ),
}
MOST = 10**6
"""The largest integer argument of a value, except seeds, so that values do not require too much memory."""
_KINDS: dict[str, Any] = {
    "graph": graphs.Graph,
    "network": graphs.RoadNetwork,
    "mesh": graphs.MeshField,
    "base": (kernels.Kernel, type, partial),
}
"""The required classes of arguments of kernels that could otherwise be read from files, such as a mesh from a path."""
_PLAIN = frozenset((bool, int, float, str))
"""The types that are JSON themselves."""
_ODD = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Numbers that JSON does not support."""


# --- Writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Name the owner of a value in errors about values that cannot be saved.

    Args:
        owner: The owner, such as "The term 'rbf'".

    Raises:
        InvalidArgumentError: If a value cannot be saved.
    """
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{owner} cannot be saved: {error}") from error


class Encoder:
    """Encodes values as JSON, and collects graphs, road networks and meshes once each.

    Examples:
        >>> from rfgp import couplings
        >>> Encoder().encode((couplings.by_name("simplex-plus"), float("inf")))
        [{'role': 'coupling', 'name': 'simplex-plus', 'arguments': {'num_sweeps': 20}}, {'number': 'inf'}]
    """

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def encode(self, value: Any) -> Any:
        """Return a value as JSON.

        Args:
            value: The value.

        Raises:
            InvalidArgumentError: If the class of the value is not registered, or it cannot be written.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"number": str(float(value))}
        if isinstance(value, list | tuple | range):
            return [self.encode(entry) for entry in value]
        if isinstance(value, Tensor | np.ndarray):
            return {"array": self.encode(value.tolist())}
        if isinstance(value, Mapping):
            return {"mapping": [[self.encode(key), self.encode(entry)] for key, entry in value.items()]}
        if isinstance(value, torch.dtype) and str(value) in DTYPES:
            return {"dtype": str(value)}
        if isinstance(value, type) and value in BASES.values():
            return {"class": value.__name__}
        if isinstance(value, partial) and value.func in BASES.values() and not value.args:
            return {"partial": [self.encode(value.func), self.encode(value.keywords)]}
        if isinstance(value, kernels.Sum):
            return self._sum(value)
        for name, role in _ROLES.items():
            if isinstance(value, role.kind):
                arguments = {key: self.encode(entry) for key, entry in role.arguments(value).items()}
                return {"role": name, "name": role.name_of(value), "arguments": arguments}
        if isinstance(value, graphs.Graph | graphs.RoadNetwork | graphs.MeshField):
            return {"object": self.place(value)}
        raise InvalidArgumentError(
            f"A saved value must have a known class, got {value!r} ({type(value).__name__}). Use numbers, texts, "
            "arrays, classes of rfgp and graphs, and functools.partial of kernels with arguments by name."
        )

    def _sum(self, kernel: kernels.Sum) -> Json:
        """Return a sum as JSON: each leaf once, and terms as indices of their factors."""
        leaves: dict[int, tuple[int, Any]] = {}
        terms = []
        for term, named in zip(kernel.summands, kernel.terms(), strict=True):
            for factor in term.factors:
                if id(factor) not in leaves:
                    with naming(f"The term {str(named.name)!r}"):
                        leaves[id(factor)] = (len(leaves), self.encode(factor))
            factors = [leaves[id(factor)][0] for factor in term.factors]
            variance = None if term.variance is None else float(term.variance)
            terms.append({"factors": factors, "name": term.name, "variance": variance, "given": list(term.given)})
        return {"leaves": [leaf for _, leaf in leaves.values()], "terms": terms}

    def place(self, thing: Any) -> int:
        """Return the index of an object among the shared ones, and add it first if new.

        Args:
            thing: The graph, road network or mesh.
        """
        for number, other in enumerate(self._objects):
            if other is thing:
                return number
        self._objects.append(thing)
        return len(self._objects) - 1

    def objects(self) -> tuple[list[Json], dict[str, Tensor]]:
        """Return shared graphs, road networks and meshes as JSON, and their tensors (...).

        Raises:
            InvalidArgumentError: If a label of a node cannot be written.
        """
        described, tensors = [], dict[str, Tensor]()
        for number, thing in enumerate(self._objects):
            kind = next(name for name, shared in _SHARED.items() if isinstance(thing, shared.kind))
            content, arrays = _SHARED[kind].encode(thing, self)
            described.append({"kind": kind, **content})
            tensors |= {f"{OBJECT}{number}.{name}": torch.as_tensor(np.array(array)) for name, array in arrays.items()}
        return described, tensors


# --- Reading ---------------------------------------------------------------------------------------------------------


class Decoder:
    """Decodes values from JSON.

    Args:
        described: The JSON of graphs, road networks and meshes.
        tensors: The tensors (...) of a file.

    Raises:
        InvalidArgumentError: If a graph, a network or a mesh is invalid.
    """

    def __init__(self, described: Sequence[Mapping[str, Any]], tensors: Tensors) -> None:
        self._objects: list[Any] = []
        for number, content in enumerate(described):
            arrays = {name: tensor.numpy() for name, tensor in part(tensors, f"{OBJECT}{number}.").items()}
            self._objects.append(_SHARED[content["kind"]].decode(content, arrays, self))

    def decode(self, content: Any) -> Any:
        """Return the value that `Encoder.encode` wrote.

        Args:
            content: The JSON.

        Raises:
            InvalidArgumentError: If the class is unknown, or arguments are invalid.
            LookupError: If a mark, or a name of a plain kind, is unknown.
        """
        if content is None or type(content) in _PLAIN:
            return content
        if isinstance(content, list):
            return tuple(self.decode(entry) for entry in content)
        if "role" in content:
            return self._of_role(content)
        if "leaves" in content:
            return self._sum(content)
        ((mark, inner),) = content.items()
        marks: dict[str, Callable[[], Any]] = {
            "number": lambda: _ODD[inner],
            "array": lambda: np.array(self.decode(inner)),
            "mapping": lambda: {self.decode(key): self.decode(entry) for key, entry in inner},
            "dtype": lambda: DTYPES[inner],
            "class": lambda: BASES[inner],
            "partial": lambda: self._partial(*inner),
            "object": lambda: self._object(inner),
        }
        return marks[mark]()

    def typed(self, content: Any, kind: type) -> Any:
        """Return a value that must have a class.

        Args:
            content: The JSON.
            kind: The class.

        Raises:
            InvalidArgumentError: If the value has another class.
        """
        value = self.decode(content)
        if not isinstance(value, kind):
            raise InvalidArgumentError(f"A file must have a value of {kind.__name__}, got {str(content)[:100]}.")
        return value

    def graph(self, number: Any) -> graphs.Graph:
        """Return a graph among the shared objects.

        Args:
            number: The index of the graph.

        Raises:
            InvalidArgumentError: If the object does not exist or is no graph.
        """
        graph = self._object(number)
        if not isinstance(graph, graphs.Graph):
            raise InvalidArgumentError(f"A file must have a graph with the number {number}, got another object.")
        return graph

    def _object(self, number: Any) -> Any:
        check(type(number) is int and number >= 0, f"the number of an object must be an integer, got {number!r}")
        return self._objects[number]

    def _of_role(self, content: Mapping[str, Any]) -> Any:
        arguments = {name: self.decode(argument) for name, argument in content["arguments"].items()}
        for name, value in arguments.items():
            if name in _KINDS and content["role"] == "kernel" and not isinstance(value, _KINDS[name]):
                raise InvalidArgumentError(f"{name} must have a known class, got {type(value).__name__}.")
        return _ROLES[content["role"]].make(str(content["name"]), **_checked(arguments))

    def _partial(self, kind: Any, arguments: Any) -> Any:
        base = partial(self.decode(kind), **_checked(self.decode(arguments)))
        base("x")  # checks the arguments
        return base

    def _sum(self, content: Mapping[str, Any]) -> kernels.Sum:
        leaves = [self.typed(leaf, kernels.Kernel) for leaf in content["leaves"]]
        kernel = kernels.Sum(tuple(_term(term, leaves) for term in content["terms"]))
        check(kernel.summands, "a sum must have terms")
        kernel.terms()  # checks unique names
        return kernel


def _checked(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments by name, after a check that integers do not require too much memory."""
    for name, value in arguments.items():
        if isinstance(value, int) and name != "seed" and abs(value) > MOST:
            raise InvalidArgumentError(f"{name} must be at most {MOST}, got {value}.")
    return arguments


def _term(content: Mapping[str, Any], leaves: Sequence[kernels.Kernel]) -> kernels.Term:
    factors, name, variance, given = (content[key] for key in ("factors", "name", "variance", "given"))
    names = all(entry is None or (type(entry) is str and entry.strip()) for entry in (name, *given))
    is_right = names and all(type(factor) is int and factor >= 0 for factor in factors)
    check(is_right and factors and len(given) in (0, len(factors)), "a term must have valid factors and names")
    check(variance is None or (type(variance) is float and 0 < variance < math.inf), "a variance must be positive")
    return kernels.Term(tuple(leaves[factor] for factor in factors), name, variance, tuple(given))


def as_type(kind: Any, content: Any) -> Any:
    """Return a JSON value converted to a type hint: a plain value, None, a tuple, a mapping, or a dataclass.

    Args:
        kind: The hint, such as `FitReport | None`.
        content: The JSON, such as the result of `dataclasses.asdict`.

    Raises:
        ValueError: If the value has another type.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return content
    if origin is UnionType:
        return None if content is None else as_type(parts[0], content)
    if origin is tuple:
        return tuple(as_type(parts[0], entry) for entry in content)
    if origin is Mapping:
        return {name: as_type(parts[1], value) for name, value in content.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: as_type(hints[name], value) for name, value in content.items()})
    check(type(content) is kind, f"a value of a report must have type {kind}, got {content!r}")
    return content


# --- Graphs, road networks and meshes --------------------------------------------------------------------------------

OBJECT = "object."
"""The prefix of the tensors of shared objects."""


class _Shared(NamedTuple):
    """A class of objects that several values may share.

    Attributes:
        kind: The class.
        encode: A function that returns JSON and arrays (...).
        decode: A function that returns the object, given JSON and arrays (...).
    """

    kind: type
    encode: Callable[[Any, Encoder], tuple[Json, Arrays]]
    decode: Callable[[Mapping[str, Any], Arrays, Decoder], Any]


def _encode_graph(graph: graphs.Graph, encoder: Encoder) -> tuple[Json, Arrays]:
    """Return the labels and the adjacency (N, N) in CSR form."""
    matrix, labels = graph.adjacency, graph.labels
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    if graph.coordinates is not None:
        arrays["coordinates"] = graph.coordinates
    content = {"laplacian": graph.laplacian, "num_self_loops_dropped": graph.num_self_loops_dropped}
    if isinstance(labels, GridLabels):
        return {**content, "labels": {"grid": list(labels.shape)}}, arrays
    if isinstance(labels, range):
        return {**content, "labels": {"numbers": len(labels)}}, arrays
    with naming("A label of a node"):
        return {**content, "labels": encoder.encode(labels)}, arrays


def _graph(described: Mapping[str, Any], arrays: Arrays, decoder: Decoder) -> graphs.Graph:
    data, indices, indptr = (arrays[name] for name in ("data", "indices", "indptr"))
    size, coordinates = len(indptr) - 1, arrays.get("coordinates")
    kinds = data.dtype.kind + indices.dtype.kind + indptr.dtype.kind
    is_whole = kinds == "fii" and data.shape == indices.shape and data.ndim == indptr.ndim == 1 and size > 0
    in_order = is_whole and indptr[0] == 0 and indptr[-1] == len(indices) and bool((np.diff(indptr) >= 0).all())
    check(in_order, "the rows of the graph's adjacency must be in order")  # scipy would write out of bounds
    matrix = sp.csr_array((data, indices, indptr), shape=(size, size))
    matrix.check_format(full_check=True)
    fits = coordinates is None or (coordinates.shape in ((size, 2), (size, 3)) and coordinates.dtype.kind == "f")
    check(fits, f"the coordinates must match {size} nodes")
    labels, computed = described["labels"], None
    if isinstance(labels, dict):  # they follow from positions
        computed, labels = _computed_labels(**labels), None
        check(len(computed) == size, f"the labels of the grid or mesh must match {size} nodes")
    graph = graphs.Graph.from_scipy(matrix, decoder.decode(labels), self_loops="keep")
    return replace(
        graph.with_laplacian(described["laplacian"]),
        coordinates=coordinates,
        num_self_loops_dropped=int(described["num_self_loops_dropped"]),
        labels=graph.labels if computed is None else computed,
    )


def _computed_labels(grid: Sequence[int] = (), numbers: int = 0) -> range | GridLabels:
    check(all(type(length) is int and length > 0 for length in grid), "the shape of the grid must be positive integers")
    return GridLabels(tuple(grid)) if grid else range(numbers)


_ROADS = {
    **dict.fromkeys(("coordinates", "points"), "f2"),
    **dict.fromkeys(("lengths", "reached", "start", "end"), "f1"),
    **dict.fromkeys(("first", "road", "source", "target", "representative"), "i1"),
    "is_reversed": "b1",
}
"""The kind and the number of axes of the arrays of roads."""


def _encode_roads(network: graphs.RoadNetwork, encoder: Encoder) -> tuple[Json, Arrays]:
    held = {**vars(network), **network.lines._asdict(), **network.edges._asdict()}
    return {"metric": network.lines.metric}, {name: held[name] for name in _ROADS}


def _roads(described: Mapping[str, Any], arrays: Arrays, decoder: Decoder) -> graphs.RoadNetwork:
    found = {name: f"{arrays[name].dtype.kind}{arrays[name].ndim}" for name in _ROADS}
    check(found == _ROADS, f"the arrays of the roads must be {_ROADS}, got {found}")
    points, first, reached = (arrays[name] for name in ("points", "first", "reached"))
    is_chain = len(first) > 1 and first[0] == 0 and bool((np.diff(first) >= 2).all())
    check(is_chain and first[-1] == len(points) == len(reached), "the lines of the roads must be in order")
    steps = np.diff(reached)
    steps[first[1:-1] - 1] = 0.0  # from one line to the next
    is_sound = bool((reached[first[:-1]] == 0).all() and (steps >= 0).all() and np.isfinite(steps).all())
    check(is_sound, "the lines of the roads must get longer from point to point")
    check(described["metric"] in ("haversine", "euclidean"), "the metric of the roads must be known")
    pairs = points.shape[1] == arrays["coordinates"].shape[1] == 2
    check(pairs, "the coordinates of the roads must be pairs")
    edges = RoadEdges(**{name: arrays[name] for name in RoadEdges._fields})
    edges.check(len(first) - 1, len(arrays["coordinates"]))
    lines = Lines(points, first, reached, described["metric"])
    return graphs.RoadNetwork(arrays["coordinates"], edges, arrays["lengths"], lines)


def _encode_mesh(mesh: graphs.MeshField, encoder: Encoder) -> tuple[Json, Arrays]:
    return {"alpha": mesh.alpha}, {"vertices": mesh.vertices, "faces": mesh.faces}


def _mesh(described: Mapping[str, Any], arrays: Arrays, decoder: Decoder) -> graphs.MeshField:
    return graphs.MeshField((arrays["vertices"], arrays["faces"]), described["alpha"])


_SHARED = {
    "graph": _Shared(graphs.Graph, _encode_graph, _graph),
    "roads": _Shared(graphs.RoadNetwork, _encode_roads, _roads),
    "mesh": _Shared(graphs.MeshField, _encode_mesh, _mesh),
}
