"""Terms with their random draws in files: a form for each kind, with JSON and tensors.

Frequencies, points and eigenvectors are tensors, because they take long to compute or depend on the processor's
rounding. Walks are drawn again from their seed and tuned settings.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.random import GENERATOR_VERSION
from rfgp import approximations as kinds
from rfgp import couplings, random
from rfgp.approximations.exact import Split, kernel_term, splits_of
from rfgp.approximations.fourier import column_indices_of
from rfgp.approximations.inducing_points import Points
from rfgp.approximations.nodes import (
    ExactFeatures,
    NodeApproximation,
    NodeFeatures,
    SpectrumFeatures,
    drawn_with,
    make_features,
    node_term,
    nodes_of,
)
from rfgp.approximations.role import Factors, SpectralPart, weights_term
from rfgp.couplings import FastSimplex, Frequencies, StructuredFrequencies
from rfgp.couplings.structured import next_power_of_two
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundFactor, BoundTerm, Factor
from rfgp.lattices import Lattice, Modes
from rfgp.lattices.design import LatticeDesign
from rfgp.models.inputs import check_columns
from rfgp.saving.container import Json, Tensors, check
from rfgp.saving.values import Decoder, Encoder

Encoded = tuple[Json, dict[str, Tensor]]

_MAX_POSITION = 1e100
"""The largest coordinate in standard deviations, so that squares of distances are finite."""
_MAX_NORM, _ROUNDING = 40, 1e-6
"""The largest excess of the norm of a positive feature's frequency over three standard norms, and a rounding error."""
_MAX_QUANTILES = 10_000
"""The most quantiles of the lengths of walks."""
_LATTICE = {"low": "f", "high": "f", "spacing": "f", "half_widths": "i", "indices": "i"}
"""The kinds of the arrays of a lattice and its modes."""


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

    data: kinds.TermData
    approximation: Any
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

    encode: Callable[[Any, BoundTerm, Encoder], Encoded]
    decode: Callable[[SavedTerm], Any]
    approximations: tuple[type[kinds.Approximation], ...]
    needs_data: Callable[[Any], bool] = lambda basis: False


def encode_draw(prior: kinds.TermPrior, term: BoundTerm, encoder: Encoder) -> Encoded:
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


def decode_draw(saved: SavedTerm) -> kinds.TermPrior:
    """Return the term that `encode_draw` wrote.

    Args:
        saved: The saved parts of the term.

    Raises:
        InvalidArgumentError: If the term does not support the approximation.
        ValueError: If the draws do not match the approximation or the term.
    """
    form = _FORMS[saved.content["form"]]
    is_right = isinstance(saved.approximation, form.approximations)
    check(is_right, f"{saved.approximation!r} does not match {saved.content['form']!r}")
    saved.approximation.check(saved.data)
    prior: kinds.TermPrior = form.decode(saved)
    return prior


def needs_data(prior: kinds.TermPrior) -> bool:
    """Return whether predictions of a term need the rows.

    Args:
        prior: The term with its draws.
    """
    return _form_of(prior).needs_data(prior.basis)


def _form_of(prior: kinds.TermPrior) -> _Form:
    if prior.kind not in _FORMS:
        raise InvalidArgumentError(f"A term must be of a kind that can be saved, got {prior.kind!r}.")
    return _FORMS[prior.kind]


def _arrays(**arrays: Any) -> dict[str, Tensor]:
    return {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def _always(basis: Any) -> bool:
    return True


# --- Terms without draws ---------------------------------------------------------------------------------------------


def _nothing(basis: None, term: BoundTerm, encoder: Encoder) -> Encoded:
    return {}, {}


def _built(saved: SavedTerm) -> Any:
    return saved.approximation.build(saved.data, saved.seed)


def _encode_kernel(split: Split | None, term: BoundTerm, encoder: Encoder) -> Encoded:
    return {"split": encoder.encode(split)}, {}


def _kernel(saved: SavedTerm) -> kinds.TermPrior:
    split = saved.decoder.decode(saved.content["split"])
    check(split is None or split in splits_of(saved.data.term), "a product must be divided into two sides")
    return kernel_term(saved.data, split)


# --- Weights ---------------------------------------------------------------------------------------------------------


def _encode_weights(basis: Factors, term: BoundTerm, encoder: Encoder) -> Encoded:
    """Return the series of factors, None for a factor itself, and the tensors of frequencies (m, d)."""
    factors = [id(factor) for factor in term.term.factors]
    series = [None if id(part.factor) in factors else encoder.encode(part.factor) for part in basis.finite]
    content = {"series": series, "has_frequencies": basis.spectral is not None}
    if basis.spectral is None:
        return content, {}
    frequencies = basis.spectral.feature_map.frequencies
    if isinstance(frequencies, StructuredFrequencies):
        return content, {"signs": frequencies.signs, "lengths": frequencies.lengths}
    return content, {"frequencies": frequencies.dense(), "weights": frequencies.weights}


def _weights(saved: SavedTerm) -> kinds.TermPrior:
    data, restored, has_frequencies = saved.data, list[BoundFactor](), saved.content["has_frequencies"]
    finite = [part for part in data.term.parts() if part.factor.measure is None or not has_frequencies]
    for part, content in zip(finite, saved.content["series"], strict=True):
        series = part if content is None else part._replace(factor=_series(part.factor, saved.decoder.decode(content)))
        is_finite = series.functions(data.columns) is not None
        check(is_finite, f"all factors of {data.term.name} must have finitely many functions")
        restored.append(series)
    return weights_term(data, _spectral(saved) if has_frequencies else None, restored)


def _series(factor: Factor, saved: Any) -> Factor:
    """Return the series of a factor."""
    known = factor.series({name: torch.ones((), dtype=torch.float64) for name in factor.starts})
    is_right = known is not None and type(saved) is type(known) and saved.columns == factor.columns
    check(is_right, "a series must match its factor")
    series: Factor = saved
    return series


def _spectral(saved: SavedTerm) -> SpectralPart:
    """Return the random features of stationary factors."""
    approximation = saved.approximation
    if not isinstance(approximation, kinds.RandomFeatures):
        raise ValueError(f"{approximation!r} has no frequencies")
    d = sum(len(part.indices) for part in saved.data.term.parts() if part.factor.measure is not None)
    frequencies, is_laplace = _frequencies(saved.tensors, d, approximation), approximation.kind == "laplace"
    check(frequencies.shape == (approximation.num_frequencies, d), "the frequencies must match the columns")
    longest = 3 * math.sqrt(d) + _MAX_NORM  # exp(omega . x) must not overflow near the data
    is_short = not is_laplace or bool(frequencies.dense().norm(dim=1).max() < longest)
    check(is_short, "the frequencies must be as short as those of a draw")
    return approximation.spectral(saved.data, frequencies)


def _frequencies(tensors: Tensors, d: int, approximation: kinds.RandomFeatures) -> Frequencies:
    coupling = couplings.for_features(approximation.coupling, approximation.kind)
    if "signs" not in tensors:
        is_paired = coupling.is_antithetic and approximation.kind == "laplace"
        return Frequencies(tensors["frequencies"], tensors["weights"], is_paired)
    signs, lengths, size = tensors["signs"], tensors["lengths"], next_power_of_two(d)
    is_whole = lengths.ndim == 1 and signs.ndim == 3 and signs.shape[::2] == (-(-len(lengths) // size), size)
    is_signs = is_whole and signs.dtype == torch.int8 and bool((signs.abs() == 1).all())
    check(is_signs, "the signs of structured frequencies must match the options and the columns")
    return StructuredFrequencies(signs, lengths, d, isinstance(coupling, FastSimplex))


# --- Points and lattices ---------------------------------------------------------------------------------------------


def _encode_points(basis: Points, term: BoundTerm, encoder: Encoder) -> Encoded:
    return {}, {"points": basis.points}


def _points(saved: SavedTerm) -> Any:
    points, data = saved.tensors["points"], saved.data
    fits = points.ndim == 2 and points.shape[1] == data.columns.num_columns and points.dtype == torch.float64
    fits = fits and 0 < len(points) <= saved.approximation.num_points and bool((points.abs() < _MAX_POSITION).all())
    check(fits, "the inducing points must match the options and the columns")
    check_columns([data.term], data.columns, points)
    return saved.approximation.with_points(data, points, saved.seed)


def _encode_lattice(design: LatticeDesign, term: BoundTerm, encoder: Encoder) -> Encoded:
    held = {**vars(design.lattice), "indices": design.modes.indices}
    return {}, _arrays(**{name: held[name] for name in _LATTICE})


def _lattice(saved: SavedTerm) -> Any:
    columns = column_indices_of(saved.data.term)
    low, high, spacing, widths, indices = (saved.tensors[name].numpy() for name in _LATTICE)
    is_typed = all(saved.tensors[name].numpy().dtype == f"{kind}8" for name, kind in _LATTICE.items())
    shapes = {low.shape, high.shape, spacing.shape, widths.shape, indices.shape[1:]}
    check(is_typed and shapes == {(len(columns),)}, "the lattice must match the columns")
    in_range = (np.abs([low, high]) < _MAX_POSITION).all() and (low <= high).all() and (spacing > 0).all()
    in_range = in_range and (spacing * (high - low) < 1).all() and ((widths > 0) & (widths < 2**31)).all()
    check(in_range, "the lattice must match the range of the rows")
    most = saved.approximation.max_features
    check((np.abs(indices) <= widths).all() and 2 * len(indices) + 1 <= most, "the modes must be on the lattice")
    modes = np.unique(np.concatenate([indices, -indices, 0 * indices[:1]]), axis=0)
    check(len(modes) == 2 * len(indices) + 1, "the modes of the lattice must be unique")
    return saved.approximation.with_modes(saved.data, Modes(Lattice(columns, low, high, spacing, widths), indices))


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _encode_nodes(features: NodeFeatures, term: BoundTerm, encoder: Encoder) -> Encoded:
    """Return the settings of draws of features, and eigenvalues (r,) and eigenvectors (N, r)."""
    content: Json = {"kind": features.name, "options": features.size_options}
    if isinstance(features, SpectrumFeatures):  # they differ between machines by rotations and reflections
        return content, _arrays(eigenvalues=features.draw.eigenvalues, eigenvectors=features.draw.eigenvectors)
    if features.walks is not None:
        drawn = {"p_halt": features.walks.settings.halting.p_halt, **drawn_with(features.walks)}
        content |= {"options": {name: encoder.encode(value) for name, value in drawn.items()}}
        content |= {"generator": GENERATOR_VERSION}
    return content, {}


def _nodes(saved: SavedTerm) -> kinds.TermPrior:
    return node_term(saved.data, _features_of_nodes(saved))


def _features_of_nodes(saved: SavedTerm) -> NodeFeatures:
    """Return the features of nodes."""
    approximation, kind = saved.approximation, saved.content["kind"]
    graph, kernel, _ = nodes_of(saved.data)
    if kind == "exact":
        return ExactFeatures(graph, kernel)
    check(isinstance(approximation, NodeApproximation), f"{approximation!r} does not match {kind!r}")
    if kind == "spectrum":
        return SpectrumFeatures(_eigenpairs(graph, saved.tensors), kernel)
    drawn = {name: saved.decoder.decode(option) for name, option in saved.content["options"].items()}
    if kind == "walks":
        _check_walks(drawn, approximation.options["lengths"], saved.content["generator"])
    else:
        check(set(drawn) <= {"degree"} and all(type(size) is int for size in drawn.values()), "a degree must be valid")
    seed = saved.seed if approximation.seed is None else random.resolve_seed(approximation.seed)
    return make_features(kind, graph, kernel, seed, {**approximation.options, **drawn})


def _check_walks(drawn: Mapping[str, Any], lengths: str, generator: Any) -> None:
    """Check the tuned settings of walks with a coupling of their lengths."""
    known = f"the walks must have generator {GENERATOR_VERSION} of this version, got {generator}"
    check(generator == GENERATOR_VERSION, known)
    names = {"p_halt", "exact_hops"} | {"sigma": {"permutation"}, "learned": {"tuples"}}.get(lengths, set())
    check(set(drawn) == names, f"walks with {lengths} lengths must have the options {sorted(names)}")
    count = len(drawn.get("permutation", (0, 1)))
    check(2 <= count <= _MAX_QUANTILES, f"a permutation must have 2 to {_MAX_QUANTILES} quantiles")
    hops = drawn["exact_hops"]
    check(type(hops) is int or isinstance(hops, graphs.HopRule), "the hops of walks must be a number or a rule")


def _eigenpairs(graph: graphs.Graph, tensors: Tensors) -> graphs.SpectralFeatures:
    """Return spectral features of eigenvalues (r,) and eigenvectors (N, r)."""
    values, vectors = (tensors[name].numpy() for name in ("eigenvalues", "eigenvectors"))
    fits = values.ndim == 1 and len(values) > 0 and vectors.shape == (graph.num_nodes, len(values))
    fits = fits and values.dtype == vectors.dtype == np.float64
    check(fits, f"eigenvectors must match {graph.num_nodes} nodes, got shape {vectors.shape}")
    is_unit = np.abs(values).max() <= 1 and np.abs(vectors).max() <= 1 + _ROUNDING
    check(is_unit, "the eigenvalues and the eigenvectors must be at most 1")
    return graphs.SpectralFeatures(graph, np.zeros(0, dtype=np.int64), values, vectors)


_FORMS = {
    "kernel": _Form(_encode_kernel, _kernel, (kinds.Exact,), _always),
    "weights": _Form(_encode_weights, _weights, (kinds.Exact, kinds.RandomFeatures)),
    "lattice": _Form(_encode_lattice, _lattice, (kinds.EquispacedFourier,)),
    "points": _Form(_encode_points, _points, (kinds.InducingPoints,), lambda basis: basis.neighbors is not None),
    "neighbors": _Form(_nothing, _built, (kinds.Vecchia,), _always),
    "neighbors of a kernel": _Form(_nothing, _built, (kinds.Vecchia,), _always),
    "precision": _Form(_nothing, _built, (kinds.SparsePrecision,)),
    "nodes": _Form(_encode_nodes, _nodes, (NodeApproximation, kinds.Exact)),
}
