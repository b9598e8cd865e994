"""Frozen values in files: kernels, approximations, spectra, couplings and their arguments, from a closed registry.

A value of a class is JSON with its role, the name of its class, and the arguments that differ from the defaults.
Numbers, texts, booleans and None are stored directly, tuples and lists as lists, and arrays with a mark. Graphs, road
networks and meshes are written once each, as tensors with numbers. Unknown names are errors, and nothing is imported.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from graphs.checks import Registry
from graphs.kernels import GraphKernel
from graphs.walks import HopRule
from rfgp import approximations, couplings, kernels, spectra
from rfgp.approximations import Approximation
from rfgp.columns import ColumnKind
from rfgp.couplings import Coupling
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel
from rfgp.messages import changed_arguments
from rfgp.saving import objects
from rfgp.saving.container import Json, Tensors, part
from rfgp.spectra import Spectrum

MOST = 10**6
"""The largest integer argument of a value, except seeds."""

KERNELS: Registry[Kernel] = Registry(
    "kernel",
    {
        kind.__name__: kind
        for kind in (
            kernels.RBF,
            kernels.Matern,
            kernels.RationalQuadratic,
            kernels.Stationary,
            kernels.Periodic,
            kernels.Harmonics,
            kernels.Linear,
            kernels.Polynomial,
            kernels.Constant,
            kernels.Group,
            kernels.Categorical,
            kernels.Coregionalization,
            kernels.Additive,
            kernels.Centered,
            kernels.Nodes,
            kernels.Roads,
            kernels.Mesh,
        )
    },
)
BASES: Registry[Kernel] = Registry(
    "kernel of one column of numbers",
    {name: kind for name, kind in KERNELS.classes.items() if kind.kind is ColumnKind.NUMBER},
)
"""The classes that a file may name as the base of `Additive`. Those of meshes would read a file."""
APPROXIMATIONS: Registry[Approximation] = Registry(
    "approximation",
    {
        kind.__name__: kind
        for kind in (
            approximations.Exact,
            approximations.RandomFeatures,
            approximations.EquispacedFourier,
            approximations.InducingPoints,
            approximations.Vecchia,
            approximations.SparsePrecision,
            approximations.RationalPrecision,
            approximations.RandomWalks,
            approximations.TruncatedSpectrum,
            approximations.Chebyshev,
            approximations.Taylor,
        )
    },
)


class _Role(NamedTuple):
    """A role whose values are written by class name.

    Attributes:
        kind: The class of the role.
        name_of: A function that returns the class name of a value.
        arguments: A function that returns the arguments of a value by name, as a mapping or pairs.
        make: A function that returns the value with a name and arguments.
    """

    kind: type
    name_of: Callable[[Any], str]
    arguments: Callable[[Any], Mapping[str, Any] | Iterable[tuple[str, Any]]]
    make: Callable[[str, Mapping[str, Any]], Any]


def _fields(value: Any) -> dict[str, Any]:
    return {entry.name: getattr(value, entry.name) for entry in fields(value)}


def _of_registry(registry: Registry[Any], name: str, arguments: Mapping[str, Any]) -> Any:
    return registry.find(name)(**arguments)


def _by_name(make: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> Any:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"A class must have a name, got {name!r}.")
    return make(name, **arguments)


def _rule(name: str, arguments: Mapping[str, Any]) -> HopRule:
    return HopRule(np.array(arguments["limits"]))


_ROLES = {
    "kernel": _Role(Kernel, KERNELS.name_of, changed_arguments, partial(_of_registry, KERNELS)),
    "approximation": _Role(
        Approximation, APPROXIMATIONS.name_of, changed_arguments, partial(_of_registry, APPROXIMATIONS)
    ),
    "spectrum": _Role(Spectrum, spectra.name_of, vars, partial(_by_name, spectra.by_name)),
    "coupling": _Role(Coupling, couplings.name_of, couplings.options_of, partial(_by_name, couplings.by_name)),
    "graph kernel": _Role(GraphKernel, graphs.kernels.name_of, _fields, partial(_by_name, graphs.kernels.by_name)),
    "hop rule": _Role(HopRule, lambda _: "HopRule", _fields, _rule),
}


class _Shared(NamedTuple):
    """A class of objects that several values may share.

    Attributes:
        kind: The class.
        encode: A function that returns JSON and arrays (...).
        decode: A function that returns the object, given JSON and arrays (...).
    """

    kind: type
    encode: Callable[[Any], tuple[Json, dict[str, NDArray[Any]]]]
    decode: Callable[[Mapping[str, Any], objects.Arrays], Any]


_SHARED = {
    "graph": _Shared(graphs.Graph, objects.encode_graph, objects.decode_graph),
    "roads": _Shared(graphs.RoadNetwork, objects.encode_roads, objects.decode_roads),
    "mesh": _Shared(graphs.MeshField, objects.encode_mesh, objects.decode_mesh),
}
_KINDS: dict[str, type | tuple[type, ...]] = {
    "graph": graphs.Graph,
    "network": graphs.RoadNetwork,
    "mesh": graphs.MeshField,
    "base": (Kernel, type, partial),
}
"""The required classes of arguments that constructors could otherwise read from files, such as a mesh from a path."""
_ODD = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Numbers that JSON does not support."""
OBJECT = "object."
"""The prefix of the tensors of shared objects."""


class Encoder:
    """Encodes values as JSON, and collects graphs, road networks and meshes once each.

    Examples:
        >>> from rfgp import kernels
        >>> Encoder().encode(kernels.RBF("t"))["arguments"]
        {'columns': ['t']}
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
            array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
            return {"array": self.encode(array.tolist())}
        if isinstance(value, Mapping):
            return {"mapping": [[self.encode(key), self.encode(entry)] for key, entry in value.items()]}
        if isinstance(value, type) and value in BASES.classes.values():
            return {"class": value.__name__}
        if isinstance(value, partial) and value.func in BASES.classes.values() and not value.args:
            return {"partial": [self.encode(value.func), self.encode(value.keywords)]}
        for name, role in _ROLES.items():
            if isinstance(value, role.kind):
                arguments = {key: self.encode(entry) for key, entry in dict(role.arguments(value)).items()}
                return {"role": name, "name": role.name_of(value), "arguments": arguments}
        if any(isinstance(value, shared.kind) for shared in _SHARED.values()):
            return {"object": self.place(value)}
        raise InvalidArgumentError(
            f"A saved value must have a known class, got {value!r} ({type(value).__name__}). Use numbers, texts, "
            "arrays, classes of rfgp and graphs, and functools.partial of kernels with arguments by name."
        )

    def place(self, thing: Any) -> int:
        """Return the index of an object among the shared ones, and add it first if new.

        Args:
            thing: The graph, road network or mesh.
        """
        numbers = [number for number, other in enumerate(self._objects) if other is thing]
        if not numbers:
            self._objects.append(thing)
        return numbers[0] if numbers else len(self._objects) - 1

    def objects(self) -> tuple[list[Json], dict[str, Tensor]]:
        """Return shared graphs, road networks and meshes as JSON, and their tensors (...).

        Raises:
            InvalidArgumentError: If a label of a node cannot be written.
        """
        described, tensors = [], dict[str, Tensor]()
        for number, thing in enumerate(self._objects):
            kind = next(name for name, shared in _SHARED.items() if isinstance(thing, shared.kind))
            content, arrays = _SHARED[kind].encode(thing)
            described.append({"kind": kind, **content})
            tensors |= {f"{OBJECT}{number}.{name}": torch.as_tensor(np.array(array)) for name, array in arrays.items()}
        return described, tensors


class Decoder:
    """Decodes values from JSON.

    Args:
        described: The JSON of graphs, road networks and meshes.
        tensors: The tensors (...) of a file.

    Raises:
        InvalidArgumentError: If a graph, a network or a mesh is invalid.
    """

    def __init__(self, described: Sequence[Mapping[str, Any]], tensors: Tensors) -> None:
        self.objects: list[Any] = []
        for number, content in enumerate(described):
            arrays = {name: tensor.numpy() for name, tensor in part(tensors, f"{OBJECT}{number}.").items()}
            self.objects.append(_SHARED[content["kind"]].decode(content, arrays))

    def decode(self, content: Any) -> Any:
        """Return the value that `Encoder.encode` wrote.

        Args:
            content: The JSON.

        Raises:
            InvalidArgumentError: If the class is unknown, or arguments are invalid.
        """
        if content is None or isinstance(content, bool | int | float | str):
            return content
        if isinstance(content, list):
            return tuple(self.decode(entry) for entry in content)
        if not isinstance(content, dict):
            raise InvalidArgumentError(f"A value must have a known type, got {type(content).__name__}.")
        if "role" in content:
            return self._of_role(content)
        ((mark, inner),) = content.items()
        if mark == "number":
            return _ODD[inner]
        if mark == "array":
            return np.array(self.decode(inner))
        if mark == "mapping":
            return {self.decode(key): self.decode(entry) for key, entry in inner}
        if mark == "class":
            return BASES.find(inner)
        if mark == "partial":
            kind, arguments = map(self.decode, inner)
            base = partial(kind, **_checked(arguments))
            base("x")  # checks the arguments
            return base
        if mark == "object":
            return self.objects[_number(inner)]
        raise InvalidArgumentError(f"A value must have a known mark, got {mark!r}.")

    def object_at(self, number: Any, kind: type) -> Any:
        """Return a shared object.

        Args:
            number: The index of the object.
            kind: The class that it must have.

        Raises:
            InvalidArgumentError: If the object does not exist or has another class.
        """
        thing = self.objects[_number(number)]
        if not isinstance(thing, kind):
            raise InvalidArgumentError(f"A file must have the {kind.__name__} with the number {number}, got none.")
        return thing

    def _of_role(self, content: Mapping[str, Any]) -> Any:
        arguments = {name: self.decode(argument) for name, argument in content["arguments"].items()}
        for name, value in arguments.items():
            if name in _KINDS and content["role"] == "kernel" and not isinstance(value, _KINDS[name]):
                raise InvalidArgumentError(f"{name} must have a known class, got {type(value).__name__}.")
        return _ROLES[content["role"]].make(content["name"], _checked(arguments))


def _checked(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments by name, after a check that integers do not require too much memory.

    Raises:
        InvalidArgumentError: If an integer other than a seed is too large.
    """
    for name, value in arguments.items():
        if isinstance(value, int) and name != "seed" and abs(value) > MOST:
            raise InvalidArgumentError(f"{name} must be at most {MOST}, got {value}.")
    return arguments


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise InvalidArgumentError(f"A number must be an integer from 0, got {value!r}.")
    return value
