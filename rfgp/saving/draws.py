"""Terms with their random draws in files: a form for each kind, with JSON and tensors.

Frequencies, points and eigenvectors are tensors, because they take long to compute or depend on the processor's
rounding. Walks are drawn again from their seed and tuned settings.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphs.random import GENERATOR_VERSION
from rfgp import couplings, random
from rfgp.approximations import (
    Approximation,
    EquispacedFourier,
    Exact,
    InducingPoints,
    RandomFeatures,
    SparsePrecision,
    TermData,
    TermPrior,
    Vecchia,
)
from rfgp.approximations.exact import Split, kernel_term, splits_of
from rfgp.approximations.fourier import column_indices_of
from rfgp.approximations.inducing_points import Points
from rfgp.approximations.nodes import (
    ExactFeatures,
    NodeApproximation,
    NodeFeatures,
    SpectrumFeatures,
    make_features,
    node_term,
    nodes_of,
)
from rfgp.approximations.role import Factors, SpectralPart, weights_term
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundFactor, BoundTerm, Factor
from rfgp.lattices import Lattice, Modes
from rfgp.lattices.design import LatticeDesign
from rfgp.models.inputs import check_columns
from rfgp.saving.container import Json, Tensors
from rfgp.saving.frequencies import decode_frequencies, encode_frequencies
from rfgp.saving.node_draws import decode_walks, eigenpairs, encode_walks
from rfgp.saving.values import Decoder, Encoder

MAX_POSITION = 1e100
"""The largest coordinate in standard deviations, so that squares of distances are finite."""


LATTICE_ARRAYS = ("low", "high", "spacing", "half_widths")
"""The arrays of a lattice."""


class SavedTerm(NamedTuple):
    """The saved parts of a term with its draws.

    Attributes:
        data: The term, without a sample of rows.
        approximation: The approximation of the term.
        seed: The seed of the term.
        content: The JSON of its form.
        tensors: The tensors (...) by name.
        decoder: The decoder of values.
    """

    data: TermData
    approximation: Approximation
    seed: int
    content: Mapping[str, Any]
    tensors: Tensors
    decoder: Decoder


class _Form(NamedTuple):
    """A kind of terms in a file.

    Attributes:
        encode: A function that returns JSON, and tensors (...).
        decode: A function that returns the term.
        approximations: The approximations with this form.
        needs_data: A function that returns whether predictions of a term need the rows.
    """

    encode: Callable[[Any, BoundTerm, Encoder], tuple[Json, dict[str, Tensor]]]
    decode: Callable[[SavedTerm], TermPrior]
    approximations: tuple[type[Approximation], ...]
    needs_data: Callable[[Any], bool] = lambda basis: False


def encode_draw(prior: TermPrior, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return a term with its draws as JSON, and its tensors (...).

    Args:
        prior: The term with its draws.
        term: The term.
        encoder: The encoder of values.

    Raises:
        InvalidArgumentError: If its kind cannot be saved.
    """
    content, tensors = _form_of(prior).encode(prior.basis, term, encoder)
    return {"form": prior.kind, **content}, tensors


def decode_draw(saved: SavedTerm) -> TermPrior:
    """Return the term that `encode_draw` wrote.

    Args:
        saved: The saved parts of the term.

    Raises:
        InvalidArgumentError: If the term does not support the approximation.
        ValueError: If the draws do not match the approximation or the term.
    """
    form = _FORMS[saved.content["form"]]
    if not isinstance(saved.approximation, form.approximations):
        raise ValueError(f"{saved.approximation!r} does not match {saved.content['form']!r}")
    saved.approximation.check(saved.data)
    return form.decode(saved)


def needs_data(prior: TermPrior) -> bool:
    """Return whether predictions of a term need the rows.

    Args:
        prior: The term with its draws.
    """
    return _form_of(prior).needs_data(prior.basis)


def _form_of(prior: TermPrior) -> _Form:
    if prior.kind not in _FORMS:
        raise InvalidArgumentError(f"A term must be of a kind that can be saved, got {prior.kind!r}.")
    return _FORMS[prior.kind]


def _nothing(basis: None, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {}, {}


def _encode_kernel(split: Split | None, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {} if split is None else {"split": [list(side) for side in split]}, {}


def _kernel(saved: SavedTerm) -> TermPrior:
    known = saved.content.get("split")
    splits = [split for split in splits_of(saved.data.term) if [list(side) for side in split] == known]
    if known is not None and not splits:
        raise ValueError("the factors of a product must be divided into two sides")
    return kernel_term(saved.data, splits[0] if splits else None)


def _built(saved: SavedTerm) -> TermPrior:
    return saved.approximation.build(saved.data, saved.seed)


# --- weights ---------------------------------------------------------------------------------------


def _encode_weights(basis: Factors, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return the series of factors, None for a factor itself, and the tensors of frequencies (m, d)."""
    factors = [id(factor) for factor in term.term.factors]
    series = [None if id(part.factor) in factors else encoder.encode(part.factor) for part in basis.finite]
    tensors = {} if basis.spectral is None else encode_frequencies(basis.spectral.feature_map.frequencies)
    return {"series": series, "has_frequencies": basis.spectral is not None}, tensors


def _weights(saved: SavedTerm) -> TermPrior:
    data, restored, has_frequencies = saved.data, list[BoundFactor](), saved.content["has_frequencies"]
    finite = [part for part in data.term.parts() if part.factor.measure is None or not has_frequencies]
    for part, content in zip(finite, saved.content["series"], strict=True):
        series = part if content is None else part._replace(factor=_series(part.factor, saved.decoder.decode(content)))
        if series.functions(data.columns) is None:
            raise ValueError(f"all factors of {data.term.name} must have finitely many functions")
        restored.append(series)
    return weights_term(data, _spectral(saved) if has_frequencies else None, restored)


def _series(factor: Factor, saved: Any) -> Factor:
    """Return the series of a factor."""
    known = factor.series({name: torch.ones((), dtype=torch.float64) for name in factor.starts})
    if known is None or type(saved) is not type(known) or saved.columns != factor.columns:
        raise ValueError("a series must match its factor")
    series: Factor = saved
    return series


def _spectral(saved: SavedTerm) -> SpectralPart:
    """Return the random features of stationary factors."""
    approximation = saved.approximation
    if not isinstance(approximation, RandomFeatures):
        raise ValueError(f"{approximation!r} has no frequencies")
    count = sum(len(part.indices) for part in saved.data.term.parts() if part.factor.measure is not None)
    coupling = couplings.for_features(approximation.coupling, approximation.kind)
    shape = approximation.num_frequencies, count
    return approximation.spectral(saved.data, decode_frequencies(saved.tensors, shape, coupling, approximation.kind))


# --- points ----------------------------------------------------------------------------------------


def _encode_points(basis: Points, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {}, {"points": basis.points}


def _points(saved: SavedTerm) -> TermPrior:
    points, data, approximation = saved.tensors["points"], saved.data, saved.approximation
    assert isinstance(approximation, InducingPoints)
    fits = points.ndim == 2 and points.shape[1] == data.columns.num_columns and points.dtype == torch.float64
    if not fits or not 0 < len(points) <= approximation.num_points or not bool((points.abs() < MAX_POSITION).all()):
        raise ValueError("the inducing points must match the options and the columns")
    check_columns([data.term], data.columns, points)
    return approximation.with_points(data, points, saved.seed)


def _always(basis: Any) -> bool:
    return True


# --- lattices --------------------------------------------------------------------------------------


def _encode_lattice(design: LatticeDesign, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    modes, lattice = design.modes, design.lattice
    arrays = {name: getattr(lattice, name) for name in LATTICE_ARRAYS} | {"indices": modes.indices}
    return {}, {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def _lattice(saved: SavedTerm) -> TermPrior:
    approximation, data, tensors = saved.approximation, saved.data, saved.tensors
    assert isinstance(approximation, EquispacedFourier)
    columns = column_indices_of(data.term)
    arrays = [tensors[name] for name in LATTICE_ARRAYS]
    kinds = (torch.float64, torch.float64, torch.float64, torch.int64)
    if any(array.shape != (len(columns),) or array.dtype != kind for array, kind in zip(arrays, kinds, strict=True)):
        raise ValueError("the lattice must match the columns")
    low, high, spacing, widths = (array.numpy() for array in arrays)
    is_sound = bool((np.abs([low, high]) < MAX_POSITION).all() and (low <= high).all() and (spacing > 0).all())
    if not is_sound or not (spacing * (high - low) < 1).all() or not ((widths > 0) & (widths < 2**31)).all():
        raise ValueError("the lattice must match the range of the rows")
    indices = tensors["indices"]
    is_mode = indices.ndim == 2 and indices.shape[1] == len(columns) and indices.dtype == torch.int64
    if not is_mode or not bool((indices.abs() <= arrays[3]).all()) or 2 * len(indices) + 1 > approximation.max_features:
        raise ValueError("the modes must be on the lattice")
    if len(torch.unique(torch.cat([indices, -indices, 0 * arrays[3][None]]), dim=0)) < 2 * len(indices) + 1:
        raise ValueError("the modes of the lattice must be unique")
    return approximation.with_modes(data, Modes(Lattice(columns, low, high, spacing, widths), indices.numpy()))


# --- nodes -----------------------------------------------------------------------------------------


def _encode_nodes(features: NodeFeatures, term: BoundTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return the settings of draws of features, and eigenvalues (r,) and eigenvectors (N, r)."""
    tensors, walks = dict[str, Tensor](), features.walks
    if isinstance(features, SpectrumFeatures):  # they differ between machines by rotations and reflections
        arrays = {"eigenvalues": features.draw.eigenvalues, "eigenvectors": features.draw.eigenvectors}
        tensors = {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}
    halt = None if walks is None else encoder.encode(walks.settings.halting.p_halt)
    return {
        "kind": features.name,
        "size": features.size_options,
        "halt": halt,
        "generator": GENERATOR_VERSION,
        **encode_walks(walks),
    }, tensors


def _nodes(saved: SavedTerm) -> TermPrior:
    return node_term(saved.data, _features_of_nodes(saved))


def _features_of_nodes(saved: SavedTerm) -> NodeFeatures:
    """Return the features of nodes."""
    approximation, content = saved.approximation, saved.content
    graph, kernel, _ = nodes_of(saved.data)
    kind = content["kind"]
    if kind == "exact":
        return ExactFeatures(graph, kernel)
    assert isinstance(approximation, NodeApproximation)
    if kind == "spectrum":
        arrays = {name: tensor.numpy() for name, tensor in saved.tensors.items()}
        return SpectrumFeatures(eigenpairs(graph, arrays), kernel)
    is_walk = kind == "walks"
    if is_walk and content["generator"] != GENERATOR_VERSION:
        raise InvalidArgumentError(
            f"the walks must have generator {GENERATOR_VERSION} of this version, got {content['generator']}"
        )
    options = {**approximation.options, **_size(content["size"])}
    options |= decode_walks(content, options["lengths"] if is_walk else None)
    options |= {"p_halt": saved.decoder.decode(content["halt"])} if is_walk else {}
    seed = saved.seed if approximation.seed is None else random.resolve_seed(approximation.seed)
    return make_features(kind, graph, kernel, seed, options)


def _size(content: Any) -> dict[str, int]:
    """Return the degree of a series, or the number of fields."""
    if not set(content) <= {"degree"} or not all(type(size) is int for size in content.values()):
        raise ValueError("the features of nodes must have a valid size")
    return dict(content)


_FORMS = {
    "kernel": _Form(_encode_kernel, _kernel, (Exact,), _always),
    "weights": _Form(_encode_weights, _weights, (Exact, RandomFeatures)),
    "lattice": _Form(_encode_lattice, _lattice, (EquispacedFourier,)),
    "points": _Form(_encode_points, _points, (InducingPoints,), lambda basis: basis.neighbors is not None),
    "neighbors": _Form(_nothing, _built, (Vecchia,), _always),
    "neighbors of a kernel": _Form(_nothing, _built, (Vecchia,), _always),
    "precision": _Form(_nothing, _built, (SparsePrecision,)),
    "nodes": _Form(_encode_nodes, _nodes, (NodeApproximation, Exact)),
}
