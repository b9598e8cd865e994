"""Files of models on tables of earlier versions in the present form.

They had families of their own: a kernel by exact covariances, random features or inducing points, possibly with a
second one, "local", by exact covariances or nearest neighbours; neighbours alone; or an average of exact kernels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rfgp import couplings, spectra
from rfgp.approximations import Approximation, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.features.inducing import JITTER
from rfgp.kernels import RBF, Kernel, Matern, RationalQuadratic, Stationary
from rfgp.kernels.kernel import transformed
from rfgp.kernels.stationary import LENGTHSCALE_BOUNDS
from rfgp.local.kinds import spectrum_of
from rfgp.saving.kernels import encode_approximations, encode_kernel
from rfgp.saving.values import Encoder

Json = dict[str, Any]
Tensors = Mapping[str, Tensor]

TABLES = ("ExactGP", "SparseSpectrumGP", "TableGP")
"""The classes of models."""
_LOCAL, _OF_KERNEL = "local", ("lengthscale", "outputscale")
"""The name of the second term, and the hyperparameters of each term."""
_DRAWN = ("frequencies", "weights", "signs", "lengths", "points")
"""The tensors that belong to random draws."""
_MEMBERS = "draw.members."
"""The beginning of the names of the hyperparameters of the others in an average."""


def upgraded_table(header: Json, tensors: Tensors) -> tuple[Json, Tensors]:
    """Return the header and the tensors (...) of a model on a table in the present form."""
    old, scale = header["options"], tensors["scaling.inputs.scale"]
    average, keys = old.get("average"), header["columns"] or list(range(len(scale)))
    term, *members = (
        _terms(one)[0] for one in (old, *(each["options"] for each in (average or {}).get("members", ())))
    )
    changed = {name: _widened(name, one, len(scale)) for name, one in tensors.items()}
    changed = {new: one for name, one in changed.items() if (new := _renamed(name, term, members))}
    low = tensors["hyperparameters.lengthscale.low"] / LENGTHSCALE_BOUNDS[0]
    changed["columns.spread"] = low.to(scale).expand(scale.shape).clone()
    options = _options(old, keys, scale.dtype)
    options["schema"] = schema_of(keys, "number", _terms(old))
    if average is not None:
        pairs = [(each, _options(each["options"], keys, scale.dtype)) for each in average["members"]]
        others = [
            {"weight": each["weight"], "hyperparameters": _paths(each["quantities"], name), "options": own}
            for (each, own), name in zip(pairs, members, strict=True)
        ]
        options["average"] = {"weight": average["weight"], "members": others}
    return {**header, "hyperparameters": _paths(header["hyperparameters"], term), "options": options}, changed


def schema_of(keys: Sequence[Any], kind: str, terms: Sequence[str]) -> Json:
    """Return the schema of columns of one kind, which some terms read."""
    column = {"is_date": False, "kind": kind, "levels": [], "terms": list(terms)}
    return {"version": 1, "columns": [{"key": key, **column} for key in keys]}


def common_options(old: Mapping[str, Any]) -> Json:
    """Return the options that all models have, without graphs, meshes and roads."""
    names = {"likelihood": "likelihood", "inference": "approximation", "dtype": "dtype"}
    kept = {name: old.get(former) for name, former in names.items()}
    chosen = {"mean": "constant", "standardize": old.get("standardize", True), "seed": old.get("seed", 0)}
    return {**kept, **chosen, "objects": [], "nodes": []}


def path_of(name: str, term: str, own: Sequence[str] = _OF_KERNEL) -> str:
    """Return the path of a hyperparameter of a model of one term, and of a second one if it is local.

    Args:
        name: Its former name, or that of one of its tensors.
        term: The name of the term.
        own: The former names of the hyperparameters of terms.
    """
    noise, short = ("noise.", name.removeprefix("noise_")) if name.startswith("noise_") else ("", name)
    owner = _LOCAL if short.startswith(f"{_LOCAL}_") else term
    short = short.removeprefix(f"{_LOCAL}_")
    return f"{noise}{owner}.{short}" if short.partition(".")[0] in own else name


# --- names -----------------------------------------------------------------------------------------


def _paths(names: Sequence[str], term: str) -> list[str]:
    """Return the paths of hyperparameters in the present order: the noise after all output scales."""
    return [path_of(name, term) for name in sorted(names, key=lambda name: name == "noise")]


def _renamed(name: str, term: str, members: Sequence[str]) -> str | None:
    """Return the present name of a tensor, None if there is none now; given the names of the terms of all models."""
    room, _, rest = name.partition(".")
    if name.startswith(_MEMBERS):
        number, _, rest = name.removeprefix(_MEMBERS).partition(".")
        return f"members.{number}.hyperparameters.{path_of(rest, members[int(number)])}"
    if room == "draw":
        return f"draw.0.{rest}" if rest in _DRAWN else None
    return f"hyperparameters.{path_of(rest, term)}" if room == "hyperparameters" else name


def _widened(name: str, tensor: Tensor, width: int) -> Tensor:
    """Return a tensor, and the unit of a lengthscale that all columns share for each column (d,)."""
    return tensor.expand(width).clone() if name.endswith("lengthscale.unit") and tensor.ndim == 0 else tensor


# --- options ---------------------------------------------------------------------------------------


def _options(old: Mapping[str, Any], keys: Sequence[Any], dtype: torch.dtype) -> Json:
    """Return the options of a model of columns with these keys, without what models of an average share."""
    encoder, kernel, names = Encoder(), _kernel(old), _terms(old)
    chosen = list(_approximations(old))
    used = chosen[0] if len(names) == 1 else dict(zip(names, chosen, strict=True))
    starts = {path_of(name, names[0]): old.get(name) for name in ("outputscale", "noise", "local_outputscale")}
    return {
        **common_options(old),
        "kernel": encode_kernel(kernel, encoder),
        "resolved": encode_kernel(transformed(kernel, lambda factor: factor.expanded(keys)), encoder),
        "approximation": encode_approximations(used, encoder),
        "approximations": [encoder.encode(one) for one in chosen],
        "draws": [_draw(one, old, dtype) for one in chosen],
        "start": {path: value for path, value in starts.items() if value is not None},
        "priors": {path_of(name, names[0]): prior for name, prior in (old.get("priors") or {}).items()},
    }


def _kernel(old: Mapping[str, Any]) -> Kernel:
    """Return the kernel, of one term or of two."""
    options, local = {"ard": old["ard"], "lengthscale": old.get("lengthscale")}, str(old.get(_LOCAL))
    if old.get("features") == "none":
        return _leaf(spectrum_of(local), options)
    own = _leaf(spectra.by_name(**old["spectrum"]), options)
    if local in ("None", "residual"):
        return own
    return own + _leaf(spectrum_of(local), {**options, "lengthscale": old.get("local_lengthscale"), "name": _LOCAL})


def _leaf(spectrum: spectra.Spectrum, options: Mapping[str, Any]) -> Kernel:
    kinds = {spectra.Gaussian: RBF, spectra.Matern: Matern, spectra.RationalQuadratic: RationalQuadratic}
    kind = kinds.get(type(spectrum))
    return Stationary(spectrum=spectrum, **options) if kind is None else kind(**vars(spectrum), **options)


def _terms(old: Mapping[str, Any]) -> list[str]:
    """Return the names of the terms."""
    return [str(term.name) for term in _kernel(old).terms()]


def _approximations(old: Mapping[str, Any]) -> Iterator[Approximation]:
    """Yield the approximation of each term."""
    features, seed, local = old.get("features", "exact"), old.get("seed"), old.get(_LOCAL)
    conditions = {"observations": "responses", "latent": "latent", "auto": "auto"}
    condition_on = conditions[old.get("conditioning", "auto")]
    near = Vecchia(old.get("num_neighbors", 30), condition_on=condition_on, seed=seed)
    if features == "nystrom":
        init = {"k-means": "kmeans", "pivots": "pivots"}[old["inducing"]]
        options = {"method": old.get("diagonal") or "sor", "learn_locations": old["learn_inducing"], "seed": seed}
        options |= {"residual": near} if local == "residual" else {}
        yield InducingPoints(old["num_inducing"], init=init, **options)
    elif features == "exact":
        yield from [Exact()] * len(_terms(old))
    else:
        if features != "none":
            is_learned, coupling = old["frequencies"] == "learned", couplings.by_name(**old["coupling"])
            own = {"kind": features, "coupling": coupling, "learn_frequencies": is_learned, "seed": seed}
            yield RandomFeatures(old["num_frequencies"], **own)
        if local is not None:
            yield near


def _draw(approximation: Approximation, old: Mapping[str, Any], dtype: torch.dtype) -> Json:
    """Return the form of the draws of a term. Inducing points without a jitter have that of the type of the rows."""
    if isinstance(approximation, RandomFeatures):
        return {"form": "weights", "series": [], "has_frequencies": True}
    if isinstance(approximation, InducingPoints):
        return {"form": "points", "jitter": old.get("jitter", JITTER.get(dtype, JITTER[torch.float32]))}
    return {"form": "neighbors" if isinstance(approximation, Vecchia) else "kernel"}
