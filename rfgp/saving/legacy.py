"""Conversion of files of earlier versions to the current form.

Models of tables, fields and nodes had separate classes with their options and tensors. Their options are read as
arguments of these classes and written as those of `rfgp.GP`. Tensors are renamed, and some get other units. The decoder
of the current form then checks everything.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from graphs.walks import HopRule
from rfgp import approximations, spectra
from rfgp.approximations import Approximation, Exact, InducingPoints, RandomFeatures, SparsePrecision, Vecchia
from rfgp.columns import ColumnKind, ColumnSchema, Schema
from rfgp.features.inducing import JITTER
from rfgp.kernels import Kernel, Mesh, Nodes, Roads
from rfgp.kernels.kernel import transformed
from rfgp.kernels.stationary import LENGTHSCALE_BOUNDS
from rfgp.regression.spec import ModelOptions
from rfgp.regression.stationary import stationary_model
from rfgp.saving import json_values, objects
from rfgp.saving.container import Json, Tensors, part
from rfgp.saving.kernels import encode_kernel
from rfgp.saving.options import encode_options
from rfgp.saving.values import Encoder, arguments_from_file, decode_coupling

_LOCAL = "local"
"""The name of the second term, and the prefix of the former names of its hyperparameters."""
_MEMBERS = "draw.members."
"""The prefix of the hyperparameters of other models in an average."""
_DRAWN = ("frequencies", "weights", "signs", "lengths", "points", "eigenvalues", "eigenvectors")
"""The tensors of random draws."""


class _Kind(NamedTuple):
    """A kind of models of earlier versions.

    Attributes:
        columns: The kind of the columns.
        read: A function that returns the options of a model without priors, and the JSON of the draws of its terms.
        convert: A function that returns the tensors (...) in current units, under their former names.
    """

    columns: ColumnKind
    read: Callable[[Json, Tensors], tuple[ModelOptions, list[Json]]]
    convert: Callable[[Tensors], dict[str, Tensor]]


def upgraded(header: Json, tensors: Tensors) -> tuple[Json, Tensors]:
    """Return the header and tensors (...) of a file of any version in current form.

    Args:
        header: The header of the file.
        tensors: The tensors (...) of the file by name.
    """
    old, kind = header["options"], _KINDS.get(header["class"])
    if kind is None or "resolved" in old:
        return header, tensors
    encoder, changed, average = Encoder(), kind.convert(tensors), old.get("average")
    named = header["columns"] if kind.columns is ColumnKind.NUMBER else None
    keys = named or list(range(len(changed["columns.spread"])))
    members = [] if average is None else average["members"]
    models = [(one, *kind.read(one, tensors)) for one in (old, *(member["options"] for member in members))]
    options, *others = (_options(*model, keys, encoder) for model in models)
    kernel, *of_others = kernels = [model.kernel for _, model, _ in models]
    if average is not None:
        described = [_member(*each) for each in zip(members, of_others, others, strict=True)]
        options["average"] = {"weight": average["weight"], "members": described}
    names = [str(term.name) for term in kernel.terms()]
    columns = [ColumnSchema(key, kind.columns, tuple(names), nodes=kernel.nodes) for key in keys]
    options["schema"] = Schema(tuple(columns)).to_dict()
    options["nodes"] = [encoder.place(column.nodes) for column in columns if column.nodes is not None]
    options["objects"], arrays = encoder.objects()
    renamed = {new: one for name, one in changed.items() if (new := _renamed(name, kernels)) is not None}
    paths = _paths(header["hyperparameters"], kernel)
    return {**header, "hyperparameters": paths, "options": options}, renamed | arrays


def _member(old: Json, kernel: Kernel, options: Json) -> Json:
    """Return another model of an average as JSON."""
    return {"weight": old["weight"], "hyperparameters": _paths(old["quantities"], kernel), "options": options}


def _options(old: Json, options: ModelOptions, draws: list[Json], keys: Sequence[Any], encoder: Encoder) -> Json:
    """Return the options of a model with these columns as JSON, without those that models of an average share."""
    priors, kernel, used = json_values.decode_priors(old.get("priors") or {}), options.kernel, options.approximations
    options = options.changed(priors={_path(name, kernel): prior for name, prior in priors.items()})
    return {
        **encode_options(options, encoder),
        "resolved": encode_kernel(transformed(kernel, lambda factor: factor.expanded(keys)), encoder),
        "approximations": [
            encoder.encode(approximation) for approximation in (used.values() if isinstance(used, Mapping) else [used])
        ],
        "draws": draws,
    }


# --- names -----------------------------------------------------------------------------------------


def _path(name: str, kernel: Kernel) -> str:
    """Return the path of a hyperparameter by its former name, or of one of its tensors."""
    term = kernel.terms()[0]
    noise, short = ("noise.", name.removeprefix("noise_")) if name.startswith("noise_") else ("", name)
    owner = _LOCAL if short.startswith(f"{_LOCAL}_") else term.name
    short = short.removeprefix(f"{_LOCAL}_")
    is_of_term = short.partition(".")[0] in ("outputscale", *term.factors[0].starts)
    return f"{noise}{owner}.{short}" if is_of_term else name


def _paths(names: Iterable[str], kernel: Kernel) -> list[str]:
    """Return the paths of hyperparameters in the current order, with the noise after all output scales."""
    return [_path(name, kernel) for name in sorted(names, key=lambda name: name == "noise")]


def _renamed(name: str, kernels: Sequence[Kernel]) -> str | None:
    """Return the current name of a tensor, given the kernels of all models. None if the tensor is obsolete."""
    room, _, rest = name.partition(".")
    if name.startswith(_MEMBERS):
        number, _, rest = name.removeprefix(_MEMBERS).partition(".")
        return f"members.{number}.hyperparameters.{_path(rest, kernels[1:][int(number)])}"
    if room in ("draw", "graph"):
        return f"draw.0.{rest}" if rest in _DRAWN else None
    return f"{room}.{_path(rest, kernels[0])}" if room == "hyperparameters" else name


# --- tables ----------------------------------------------------------------------------------------


_DECODE: dict[str, Callable[[Any], Any]] = {
    "spectrum": lambda entry: spectra.by_name(**entry),
    "coupling": lambda entry: decode_coupling(**entry),
    "dtype": json_values.decode_dtype,
    "likelihood": json_values.decode_likelihood,
}
"""The options, except priors, that JSON does not store directly."""
_SHARED = ("ard", "standardize", "lengthscale", "outputscale", "noise", "local_lengthscale", "local_outputscale")
"""The options that are arguments of any model of stationary kernels."""


def _table(old: Json, tensors: Tensors) -> tuple[ModelOptions, list[Json]]:
    """Return the options of a model of a table and its draws."""
    given = {name: _DECODE[name](one) if name in _DECODE else one for name, one in old.items()}
    features, local, seed = given.get("features", "exact"), given.get("local"), given.get("seed", 0)
    known = {name: given[name] for name in (*_SHARED, "dtype", "likelihood") if name in given}
    asked, neighbors = given.get("conditioning", "auto"), given.get("num_neighbors", 30)
    near = Vecchia(neighbors, condition_on={"observations": "responses"}.get(asked, asked), block_size=1, seed=seed)
    first, other = _first(given, features, near, seed), Exact() if features == "exact" else near
    spectrum: Any = local if features == "none" else given.get("spectrum", "gaussian")
    second = None if features in ("none", "nystrom") else local
    options = stationary_model(spectrum, first, second, other, inference=old.get("approximation"), seed=seed, **known)
    jitter = old.get("jitter", JITTER.get(tensors["scaling.inputs.scale"].dtype, JITTER[torch.float32]))
    own = {"jitter": jitter} if features == "nystrom" else {}
    return options, [{**_DRAWS[type(used)], **own} for used in options.approximations.values()]


def _first(given: Json, features: str, near: Vecchia, seed: int) -> Approximation:
    """Return the approximation of the first term of a model of a table."""
    if features in ("exact", "none"):
        return Exact() if features == "exact" else near
    if features == "nystrom":
        return InducingPoints(
            given["num_inducing"],
            init={"k-means": "kmeans", "pivots": "pivoted-cholesky"}[given["inducing"]],
            method=given.get("diagonal") or "sor",
            learn_locations=given.get("learn_inducing", False),
            residual=near if given.get("local") == "residual" else None,
            seed=seed,
        )
    learned = given.get("frequencies", "fixed") == "learned"
    own = {"kind": features, "coupling": given["coupling"], "learn_frequencies": learned}
    return RandomFeatures(given["num_frequencies"], seed=seed, **own)


_DRAWS: dict[type[Approximation], Json] = {
    Exact: {"form": "kernel"},
    Vecchia: {"form": "neighbors"},
    RandomFeatures: {"form": "weights", "series": [], "has_frequencies": True},
    InducingPoints: {"form": "points"},
}
"""The JSON of the draws of a term of a table by its approximation."""


def _table_tensors(tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors (...). A shared lengthscale had one unit, and now has one for each column."""
    scale, low = tensors["scaling.inputs.scale"], tensors["hyperparameters.lengthscale.low"]
    units = [name for name, tensor in tensors.items() if name.endswith("lengthscale.unit") and tensor.ndim == 0]
    wide = {name: tensors[name].expand(len(scale)).clone() for name in units}
    spread = (low / LENGTHSCALE_BOUNDS[0]).to(scale).expand(scale.shape).clone()
    return {**tensors, **wide, "columns.spread": spread}


# --- fields and nodes ------------------------------------------------------------------------------


def _of_kernel(kernel: Kernel, used: Approximation, old: Json) -> ModelOptions:
    """Return the options of a model of one non-stationary kernel."""
    starts = {name: old[name] for name in ("lengthscale", "outputscale", "noise") if old.get(name) is not None}
    likelihood = json_values.decode_likelihood(old.get("likelihood"))
    return ModelOptions(kernel, likelihood, used, old.get("approximation"), start=starts, seed=old["seed"])


def _arrays(tensors: Tensors, prefix: str) -> objects.Arrays:
    return {name: tensor.numpy() for name, tensor in part(tensors, prefix).items()}


def _mesh(old: Json, tensors: Tensors) -> tuple[ModelOptions, list[Json]]:
    """Return the options of a field on a mesh and its draws."""
    within = math.inf if old.get("within") == "inf" else old.get("within")
    kernel = Mesh(objects.decode_mesh(old, _arrays(tensors, "field.")), within=within)
    return _of_kernel(kernel, SparsePrecision(), old), [{"form": "precision"}]


def _roads(old: Json, tensors: Tensors) -> tuple[ModelOptions, list[Json]]:
    """Return the options of a field on roads and its draws."""
    known = {name: old[name] for name in ("alpha", "boundary") if name in old}
    kernel = Roads(objects.decode_roads(old, _arrays(tensors, "field.")), **known)
    return _of_kernel(kernel, SparsePrecision(), old), [{"form": "precision"}]


def _field_tensors(tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors (...). Inputs of the posterior were standardized, and those of the data were not."""
    location, scale = (tensors[f"scaling.inputs.{name}"] for name in ("location", "scale"))
    inputs = {name: tensor * scale + location for name, tensor in tensors.items() if _is_inputs(name, "predictor.")}
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("field.")}
    return {**kept, **inputs, **_in_own_units(scale)}


def _is_inputs(name: str, *rooms: str) -> bool:
    return name.startswith(rooms) and name.rpartition(".")[2] == "inputs"


def _in_own_units(spread: Tensor) -> dict[str, Tensor]:
    """Return the scaling of columns in their units, given their standard deviations (d,)."""
    maps = {"location": torch.zeros_like(spread), "scale": torch.ones_like(spread)}
    return {"columns.spread": spread, **{f"scaling.inputs.{name}": tensor for name, tensor in maps.items()}}


_OTHERS: dict[str, tuple[Callable[..., Approximation], str | None]] = {
    "exact": (Exact, None),
    "precision": (SparsePrecision, None),
    "rational": (approximations.RationalPrecision, "degree"),
    "chebyshev": (approximations.Chebyshev, "degree"),
    "taylor": (approximations.Taylor, "degree"),
    "spectrum": (approximations.TruncatedSpectrum, "rank"),
}
"""The approximation of features other than walks by name, and the option with its argument."""


def _nodes(old: Json, tensors: Tensors) -> tuple[ModelOptions, list[Json]]:
    """Return the options of a kernel on nodes and its draws."""
    features, series = old["features"], {"degree": None, "rank": None, **old.get("series", {})}
    kernel = Nodes(objects.decode_graph(old, _arrays(tensors, "graph.")), _graph_kernel(old["kernel"]))
    make, size = (partial(_walks, old), None) if features == "walks" else _OTHERS[features]
    used = make() if size is None else make(series[size])
    degree, known = series["degree"], ("generator", "permutation", "tuples", "hop_limits")
    draw = {
        "form": "nodes",
        "kind": features,
        "size": {} if degree is None or features == "walks" else {"degree": degree},
        "halt": Encoder().encode(old["walks"]["halt"]),
        **{name: old[name] for name in known},
    }
    return _of_kernel(kernel, used, old), [{"form": "precision"} if features == "precision" else draw]


def _walks(old: Json) -> approximations.RandomWalks:
    """Return the random walks of a model.

    Raises:
        ValueError: If a rule for exact hops is missing or superfluous.
    """
    limits, asked = old["hop_limits"], old["walks"]["exact_hops"]
    if (limits is not None and asked not in ("auto", "rule")) or (limits is None and asked == "rule"):
        given = "with" if limits is not None else "without"
        raise ValueError(f"exact_hops={asked!r} must not come {given} hop_limits")
    hops = HopRule(limits) if asked == "rule" else asked
    options = arguments_from_file(approximations.RandomWalks, old["walks"])
    return approximations.RandomWalks(**{**options, "exact_hops": hops}, seed=old["seed"])


def _graph_kernel(described: Json) -> GraphKernel:
    """Return a graph kernel, whose base, if any, has no base."""
    inner = {name: graphs.kernels.by_name(**value) for name, value in described.items() if isinstance(value, dict)}
    return graphs.kernels.by_name(**{**described, **inner})


def _node_tensors(tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors (...). Positions of nodes were a vector, and are now a column."""
    inputs = {
        name: tensor[:, None].double() for name, tensor in tensors.items() if _is_inputs(name, "predictor.", "data.")
    }
    return {**tensors, **inputs, **_in_own_units(torch.ones(1, dtype=torch.float64))}


TABLES = ("ExactGP", "SparseSpectrumGP", "TableGP")
"""The classes of models of tables."""
_KINDS = {
    **dict.fromkeys(TABLES, _Kind(ColumnKind.NUMBER, _table, _table_tensors)),
    "MeshGP": _Kind(ColumnKind.COORDINATE, _mesh, _field_tensors),
    "RoadGP": _Kind(ColumnKind.COORDINATE, _roads, _field_tensors),
    "GraphGP": _Kind(ColumnKind.NODE, _nodes, _node_tensors),
}
