"""The base class of approximations, features of products, and terms by weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.autograd import pulled_back
from rfgp.blocks import Design, NewLevels, Prior, WeightBlock
from rfgp.columns import ColumnKind
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier, Laplace
from rfgp.grams import Gram, rotated
from rfgp.kernels.role import (
    OUTPUTSCALE,
    BoundFactor,
    BoundTerm,
    ColumnSummary,
    FourierFunctions,
    Functions,
    Values,
    constants_of,
    of_prefix,
)
from rfgp.messages import changed_arguments

# --- The base class of approximations, which turn a term of a kernel into latent blocks ------------------------------

MIN_NOISE = 1e-6
"""The minimum noise with other approximations, in variances of the target.

With 64 inducing points and a noise of 1e-8, gradients in the lengthscale were 85 % too small."""
MIN_NOISE_OF_LATENT_NEIGHBORS = 1e-8
"""The minimum noise with neighbors of latent values, in variances of the target. Their jitter is 1e-11."""
MIN_NOISE_OF_MATRICES = 1e-10
"""The minimum noise with factorized matrices of rows, features or neighbors, in variances of the target."""
OF_AREAS = "rows are means over areas. Use InducingPoints() or Exact()."
"""Why an approximation does not support a term of such rows."""
BLOCK_ROWS = 2**16
"""The approximate number of rows whose features are in memory at once."""


@dataclass(frozen=True, eq=False)
class TermData:
    """A term, and the summary of the training rows that approximations use.

    Attributes:
        term: The term.
        columns: The summary of all columns (n, D) of the rows, with a sample of them.
        num_rows: The number n of rows.
        values: The starting hyperparameters in standardized units, by path.
        is_gaussian: Whether the likelihood is Gaussian.
        is_averaged: Whether rows are means over areas. Then `num_rows` is the number of their points.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> data.term.name, data.num_rows
        ('rbf', 3)
    """

    term: BoundTerm
    columns: ColumnSummary
    num_rows: int
    values: Values
    is_gaussian: bool = True
    is_averaged: bool = False

    @property
    def constants(self) -> dict[str, Tensor]:
        """The constants of the term by path, (...) each."""
        return constants_of([self.term], self.columns)


@dataclass(frozen=True)
class TermCost:
    """The predicted cost of a term under an approximation.

    Attributes:
        num_features: The number of latent values or weights.
        memory: Bytes of the largest array.
        note: A phrase that describes the computation.
        has_weights: Whether the term has latent values or weights. Otherwise its covariance matrix is formed.

    Examples:
        >>> from rfgp.approximations import TermCost
        >>> TermCost(num_features=512, memory=4e6, note="features of 1,000 rows").num_features
        512
    """

    num_features: int
    memory: float
    note: str
    has_weights: bool = True


def weights_memory(size: int, num_rows: int) -> float:
    """Return the bytes of the features of a block of rows and of their products.

    Args:
        size: The number of features.
        num_rows: The number of rows.
    """
    return 8.0 * size * (min(num_rows, BLOCK_ROWS) + size)


class TermGram(NamedTuple):
    """The covariance of rows as a function of hyperparameters, with its gradient.

    Attributes:
        names: The paths of the hyperparameters with a gradient, in the order of the tensors of a `Gram`.
        at: The map of values by path to the covariance, or None if there is no closed form at these values.
    """

    names: tuple[str, ...]
    at: Callable[[Values], Gram | None]


@dataclass(frozen=True, eq=False)
class TermPrior:
    """A term with fixed draws, as a function of the hyperparameters.

    Attributes:
        kind: The kind of the term in files.
        function: Maps the basis, hyperparameters by path and the summary of all columns to the prior of the term.
        basis: The draws of the term, such as features or points. If None, there are none.
        gram_function: Maps the basis, rows (n, D) and the summary of columns to the covariance of rows as a function of
            the hyperparameters, or to None. If None, its gradient has no closed form.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> prior = rfgp.RandomFeatures(8).build(data, seed=0)
        >>> prior.at(data.values, data.columns).num_features
        16
    """

    kind: str
    function: Callable[[Any, Values, ColumnSummary], Prior]
    basis: Any = None
    gram_function: Callable[[Any, Tensor, ColumnSummary], TermGram | None] | None = None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior of the term.

        Args:
            values: The hyperparameters by path, in standardized units, and learnable draws by path if they differ from
                those of the term.
            columns: The summary of all columns, with all present levels.
        """
        return self.function(self.basis, values, columns)

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows as a function of the hyperparameters.

        Args:
            inputs: The rows, (n, D).
            columns: The summary of all columns.

        Returns:
            The function, or None if its gradient has no closed form.
        """
        return None if self.gram_function is None else self.gram_function(self.basis, inputs, columns)

    @property
    def learnable(self) -> Values:
        """The draws (...) that a fit may change, by path."""
        learnable: Values = getattr(self.basis, "learnable", {})
        return learnable

    def with_learned(self, values: Values) -> "TermPrior":
        """Return the term with other draws (...) by path.

        Args:
            values: The draws (...) by path. Other paths have no effect.
        """
        return replace(self, basis=self.basis.with_learned(values)) if self.learnable else self


@dataclass(frozen=True, repr=False)
class Approximation(ABC):
    """An approximation of a term. Approximations are immutable values.

    Attributes:
        seed: The seed of its random draws. If None, that of the model.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> rfgp.RandomFeatures(8).cost(data).num_features, rfgp.RandomFeatures(8).check(data)
        (16, None)
    """

    seed: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.seed is not None:
            random.resolve_seed(self.seed)

    @abstractmethod
    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None.

        The result is a clause after "because".

        Args:
            data: The term and the rows.
        """

    @abstractmethod
    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the predicted cost without allocating anything.

        Args:
            data: The term and the rows.
            prior: The term from `build`, whose features may differ from those of a new one. If None, a new one.
        """

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise for accurate means, in variances of the target.

        Args:
            data: The term and the rows.
        """
        return MIN_NOISE

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term for other hyperparameters.

        It is the same term if nothing changes, which is the default.

        Args:
            data: The term and the rows, at the other hyperparameters.
            seed: The seed for the term.
            prior: The term from `build`.
        """
        return prior

    @abstractmethod
    def build(self, data: TermData, seed: int) -> TermPrior:
        """Build the prior of a term with its random draws.

        Args:
            data: The term and the rows.
            seed: The seed of the draws. Each term has its own.

        Returns:
            The term with fixed draws.
        """

    def vfe_counterpart(self, term: TermPrior) -> TermPrior | None:
        """Return the term with a VFE residual, for evidence bounds.

        The residual k - phi phi^T of the kernel k and the features phi must be positive semidefinite. Such terms
        bound the exact log marginal likelihood (`rfgp.solvers.lowrank`).

        Args:
            term: A term from `build`.

        Returns:
            The term, or None if the residual cannot be computed or may be indefinite.
        """
        return None

    def check(self, data: TermData) -> None:
        """Raise if the approximation does not support a term.

        Args:
            data: The term and the rows.

        Raises:
            InvalidArgumentError: If it does not. The message states the reason and a remedy.
        """
        reason = self.unsupported_reason(data)
        if reason is not None:
            raise InvalidArgumentError(f"{self!r} cannot be used for the term {data.term.name!r}, because {reason}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed_arguments(self))})"


def num_weights(data: TermData, prior: TermPrior) -> int:
    """Return the number of weights of a built term.

    Args:
        data: The term.
        prior: The term from `Approximation.build`.
    """
    return prior.at(data.values, data.columns).num_features


def scale_name(term: BoundTerm, values: Values) -> str | None:
    """Return the path of the one variance of a term, or None.

    It is the output scale, or the only variance of a factor.

    Args:
        term: The term.
        values: The hyperparameters by path.
    """
    if term.outputscale is not None:
        return term.outputscale
    paths = [f"{prefix}variance" for factor, _, prefix in term.parts() if factor.has_own_variance]
    return paths[0] if len(paths) == 1 and values[paths[0]].numel() == 1 else None


def parameter_names(data: TermData, *, with_scale: bool) -> tuple[str, ...]:
    """Return the paths of the hyperparameters of the covariance of a term.

    Args:
        data: The term.
        with_scale: Whether the term's own variance is among them.
    """
    term = data.term
    of_factors = {f"{prefix}{name}" for prefix in term.prefixes for name in of_prefix(data.values, prefix)}
    scale = scale_name(term, data.values)
    others = [path for path in data.values if path in of_factors - {scale} and not path.endswith(f".{OUTPUTSCALE}")]
    return (*others, *([scale] if with_scale and scale is not None else []))


# --- Features of terms as products of the features of their factors --------------------------------------------------

FeatureMap = Fourier | Laplace


@dataclass(frozen=True, eq=False)
class SpectralPart:
    """Random features of stationary factors with stacked frequencies.

    Attributes:
        factors: The factors.
        feature_map: The map of rows (n, d), divided by the lengthscales, to features.
        path: The path of the frequencies (m, d). If None, a fit does not change them.
    """

    factors: tuple[BoundFactor, ...]
    feature_map: FeatureMap
    path: str | None = None

    @property
    def learnable(self) -> Values:
        """The frequencies (m, d), if a fit may change them."""
        return {} if self.path is None else {self.path: self.feature_map.frequencies.dense()}

    def with_learned(self, values: Values) -> "SpectralPart":
        """Return the part with other frequencies (m, d), if they are among the values."""
        return replace(self, feature_map=self._map_at(values))

    def _map_at(self, values: Values) -> FeatureMap:
        """Return the feature map at frequencies among the values."""
        if self.path is None or self.path not in values:
            return self.feature_map
        weights = self.feature_map.frequencies.weights
        return type(self.feature_map)(Frequencies(values[self.path], weights))

    def functions(self) -> Functions:
        """Return the features as functions of rows (n, D) and of values by path."""
        fourier = self._fourier if self.feature_map.is_trigonometric else None
        return Functions(self.feature_map.num_features, self._features, fourier=fourier)

    def _fourier(self, values: Values) -> FourierFunctions:
        """Return the frequencies (m, c) in the units of the columns."""
        frequencies = self._map_at(values).frequencies
        lengthscales = [values[f"{part.prefix}lengthscale"].double().expand(len(part.indices)) for part in self.factors]
        amplitudes = frequencies.amplitudes.double().expand(frequencies.shape[0])
        indices = [index for part in self.factors for index in part.indices]
        scaled, done = frequencies.dense().double() / torch.cat(lengthscales), list[Tensor]()
        sizes = [len(part.indices) for part in self.factors]
        for part, own in zip(self.factors, torch.split(scaled, sizes, 1), strict=True):
            angle = values.get(f"{part.prefix}rotation")
            done.append(own if angle is None else rotated(own, -angle))
        return FourierFunctions(torch.cat(done, 1), indices, amplitudes)

    def _features(self, x: Tensor, values: Values) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        scaled = [
            rotated(x[:, part.indices], values.get(f"{part.prefix}rotation"))
            / values[f"{part.prefix}lengthscale"].to(x.dtype)
            for part in self.factors
        ]
        features: Tensor = self._map_at(values)(scaled[0] if len(scaled) == 1 else torch.cat(scaled, dim=1))
        return features


@dataclass(frozen=True, eq=False)
class Given:
    """The values of a function of a term: constants, and hyperparameters that it takes as tensors after the rows.

    Attributes:
        names: The paths of the hyperparameters.
        constants: Constants by path.
    """

    names: tuple[str, ...] = ()
    constants: Values = field(default_factory=dict)

    def at(self, parameters: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """Return all values by path.

        Args:
            parameters: The hyperparameters (...), in the order of their names.
        """
        return {**self.constants, **dict(zip(self.names, parameters, strict=True))}


def row_products(parts: Iterable[Tensor]) -> Tensor:
    """Return the row-wise Kronecker product of matrices.

    Args:
        parts: The matrices, (n, F_i) each, at least one.

    Examples:
        >>> row_products([torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])]).tolist()
        [[3.0, 4.0, 6.0, 8.0]]
    """
    return reduce(lambda left, right: (left[:, :, None] * right[:, None, :]).flatten(1), parts)


@dataclass(frozen=True, eq=False)
class TermFeatures:
    """The features of a term without its own variance.

    They are products of one function of each part.

    Attributes:
        parts: The functions of each part.
        given: The values of the functions.
    """

    parts: tuple[Functions, ...]
    given: Given

    @property
    def size(self) -> int:
        """The number F of features."""
        return math.prod(part.size for part in self.parts)

    @property
    def fourier(self) -> "Callable[..., FourierFunctions] | None":
        """The frequencies (m, c) of features that are cosines and sines, as a function of parameters, or None."""
        return self._fourier if len(self.parts) == 1 and self.parts[0].fourier is not None else None

    def _fourier(self, *parameters: Tensor) -> FourierFunctions:
        assert self.parts[0].fourier is not None
        return self.parts[0].fourier(self.given.at(parameters))

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        values = self.given.at(parameters)
        out = row_products(part.features(x, values) for part in self.parts)
        return out.to(x.dtype) if x.dtype == torch.float32 else out


@dataclass(frozen=True)
class FixedFeatures(Design):
    """Features of a term without hyperparameters, and the factors with them.

    Two designs of one term on the same columns, at the same fixed values, compare equal.

    Attributes:
        basis: The draws of the term.
        columns: The summary of all columns.
        fixed: The fixed values that the features depend on, by path.
        functions: The features.
    """

    basis: Any
    columns: ColumnSummary
    fixed: tuple[tuple[str, float], ...]
    functions: TermFeatures = field(compare=False)

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.functions.size

    def fixed_features(self, x: Tensor) -> Tensor:
        """Return the features of rows (n, D), (n, F), float64."""
        fixed = {path: x.new_tensor(value).double() for path, value in self.fixed}
        values = {**self.functions.given.constants, **fixed}
        designs = (part.design for part in self.functions.parts)
        return row_products(design(x.double(), values).double() for design in designs if design is not None)

    def scale(self, *parameters: Tensor) -> Tensor:
        """Return the factors (F,), for a variance of 1."""
        values = self.functions.given.at(parameters)
        ones = (torch.ones(part.size, dtype=torch.float64) for part in self.functions.parts)
        pairs = zip(self.functions.parts, ones, strict=True)
        return row_products((one if part.scale is None else part.scale(values).double())[None] for part, one in pairs)[
            0
        ]


@dataclass(frozen=True, eq=False)
class TermCovariance:
    """The covariance of a term as a function of rows and hyperparameters.

    Attributes:
        term: The term.
        given: The values of the covariance.
    """

    term: BoundTerm
    given: Given

    def __call__(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D)."""
        return self.term.covariance(a, b, self.given.at(parameters))

    def gram(self, a: Tensor, *parameters: Tensor) -> Gram:
        """Return the covariance (n, n) of rows a (n, D) with themselves, and its gradient."""
        return self.term.gram(a, self.given.at(parameters))

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D)."""
        return self.term.variances(a, self.given.at(parameters))


LEVEL_DISTANCE = 5.0
"""The distance of two levels in a search for neighbors, in lengthscales of other columns."""


@dataclass(frozen=True, eq=False)
class TermEmbedding:
    """An embedding of rows with distances near those of a term.

    The squared distance is about k(x, x) + k(z, z) - 2 k(x, z).

    Attributes:
        term: The term.
        given: The values of the embedding.
        spread: The standard deviations of all columns, (D,).
    """

    term: BoundTerm
    given: Given
    spread: Tensor

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the embedding (n, e) of rows (n, D)."""
        values = self.given.at(parameters)
        scale = 1.0 if self.term.outputscale is None else values[self.term.outputscale].sqrt()
        return scale * torch.cat([self._of_factor(part, x, values) for part in self.term.parts()], dim=1)

    def _of_factor(self, part: BoundFactor, x: Tensor, values: Values) -> Tensor:
        """Return the embedding (n, e) of rows (n, D) by a factor."""
        factor, inputs, own = part.factor, x[:, part.indices], of_prefix(values, part.prefix)
        lengthscale = own.get("lengthscale")
        if factor.kind is ColumnKind.LEVEL:
            return LEVEL_DISTANCE * inputs
        if factor.kind is ColumnKind.COORDINATE:
            return inputs
        if factor.embedding is not None:
            embedding: Tensor = factor.embedding(inputs, own)
            return embedding
        if lengthscale is not None and lengthscale.numel() in (1, inputs.shape[1]):
            return inputs / lengthscale.reshape(-1)
        return inputs / self.spread[part.indices].to(inputs)


# --- The part of a term at levels that no training row has ------------------------------------------------------------


def new_levels(
    term: BoundTerm, columns: ColumnSummary, given: Given, unexplained: Callable[..., Tensor] | None = None
) -> NewLevels | None:
    """Return the part of a term at rows with new levels, or None if it reads no levels.

    It is the covariance of the term minus the part that the features of the training levels explain.

    Args:
        term: The term.
        columns: The summary of all columns, with the number of training levels.
        given: The values of the covariance.
        unexplained: Maps rows a (n, D) and b (m, D) with new levels, and parameters, to their covariance (n, m). If
            None, features are products of functions of factors, which are exact for levels.
    """
    parts = [part for part in term.parts() if part.factor.kind is ColumnKind.LEVEL]
    if unexplained is None:
        parts = [part for part in parts if part.functions(columns) is not None]
        unexplained = partial(_unexplained_levels, term, given, columns, parts)
    known = {index: columns.num_levels[index] for part in parts for index in part.indices}
    return NewLevels(partial(_has_new_level, known), unexplained) if known else None


def _has_new_level(num_levels: Mapping[int, int], x: Tensor) -> Tensor:
    """Return whether rows (n, D) have a new level in one of the columns, (n,)."""
    return torch.stack([x[:, index] >= count for index, count in num_levels.items()]).any(0)


def _unexplained_levels(
    term: BoundTerm,
    given: Given,
    columns: ColumnSummary,
    of_levels: list[BoundFactor],
    a: Tensor,
    b: Tensor,
    *parameters: Tensor,
) -> Tensor:
    """Return the covariance (n, m) of rows with new levels that the functions of levels do not explain."""
    values = given.at(parameters)
    exact = explained = torch.ones((), dtype=torch.float64, device=a.device)
    others = values.get(str(term.outputscale), exact).double()
    for part in term.parts():
        covariance = part.covariance(a, b, values)
        functions = part.functions(columns) if part in of_levels else None
        if functions is None:
            others = others * covariance
        else:
            exact = exact * covariance
            explained = explained * (functions.features(a, values) @ functions.features(b, values).mT)
    return (exact - explained) * others


# --- Terms by weights: f = s phi(x) w, with products of the features of the factors ----------------------------------


@dataclass(frozen=True, eq=False)
class Factors:
    """The features of the factors of a term, which are multiplied.

    Attributes:
        spectral: The random features of stationary factors. If None, there are none.
        finite: The factors with finitely many functions.
    """

    spectral: SpectralPart | None
    finite: tuple[BoundFactor, ...]

    def functions(self, columns: ColumnSummary) -> tuple[Functions, ...]:
        """Return the features of each part, given all columns."""
        finite = [part.functions(columns) for part in self.finite]
        spectral = [] if self.spectral is None else [self.spectral.functions()]
        return (*spectral, *(functions for functions in finite if functions is not None))

    @property
    def learnable(self) -> Values:
        """The learnable frequencies (m, d), by path."""
        return {} if self.spectral is None else self.spectral.learnable

    def with_learned(self, values: Values) -> "Factors":
        """Return the features with other frequencies (m, d), if they are among the values."""
        return self if self.spectral is None else replace(self, spectral=self.spectral.with_learned(values))


def weights_term(data: TermData, spectral: SpectralPart | None = None, finite: Iterable[BoundFactor] = ()) -> TermPrior:
    """Return a term by the weights of products of features.

    Args:
        data: The term.
        spectral: The random features of its stationary factors. If None, there are none.
        finite: Its other factors, or their series.
    """
    given = data.term, parameter_names(data, with_scale=False), scale_name(data.term, data.values)
    functions = partial(_weights_prior, *given), partial(_weights_gram, *given)
    return TermPrior("weights", functions[0], Factors(spectral, tuple(finite)), functions[1])


def unit_constants(term: BoundTerm, scale: str | None, columns: ColumnSummary) -> dict[str, Tensor]:
    """Return the constants (...) of a term by path, with a variance of 1.

    Args:
        term: The term.
        scale: The path of the variance of the term, or of a factor of one column. If None, it is 1.
        columns: The summary of all columns.
    """
    constants = constants_of([term], columns)
    if scale is not None:
        constants[scale] = torch.ones(() if scale == term.outputscale else 1, dtype=torch.float64)
    return constants


def variance_at(scale: str | None, values: Values) -> Tensor | None:
    """Return the variance of a term, 0-d, or None if it is 1.

    Args:
        scale: The path of the variance. If None, it is 1.
        values: The hyperparameters by path.
    """
    return None if scale is None else values[scale].reshape(())


def _weights_prior(
    term: BoundTerm, names: tuple[str, ...], scale: str | None, basis: Factors, values: Values, columns: ColumnSummary
) -> Prior:
    """Return the prior of the weights at hyperparameters by path."""
    names = (*names, *(path for path in basis.learnable if path in values))
    given = Given(names, unit_constants(term, scale, columns))
    features = TermFeatures(basis.functions(columns), given)
    design = None
    if all(part.design is not None for part in features.parts):
        paths = dict.fromkeys(path for part in features.parts for path in part.reads)
        fixed = tuple((path, float(values[path].detach())) for path in paths)
        design = FixedFeatures(basis, columns, fixed, features)
    block = WeightBlock(
        features,
        features.size,
        tuple(values[name] for name in names),
        variance_at(scale, values),
        name=term.name,
        new_levels=new_levels(term, columns, given),
        design=design,
        fourier=features.fourier,
    )
    return Prior(weights=(block,))


def _weights_gram(
    term: BoundTerm, names: tuple[str, ...], scale: str | None, basis: Factors, inputs: Tensor, columns: ColumnSummary
) -> TermGram | None:
    """Return the covariance of rows (n, D) if hyperparameters only scale features, or None."""
    parts = basis.functions(columns)
    if basis.learnable or any(part.design is None or part.reads for part in parts):
        return None
    fixed = FixedFeatures(basis, columns, (), TermFeatures(parts, Given(names, unit_constants(term, scale, columns))))
    design, one = fixed.fixed_features(inputs), torch.ones((), dtype=torch.float64)

    def at(values: Values) -> Gram:
        with torch.enable_grad():
            leaves = [values[name].detach().requires_grad_() for name in names]
            factors = fixed.scale(*leaves)
        variance = variance_at(scale, values)
        gram = Gram.of_design(design, factors, one if variance is None else variance)

        def pull_back(gradient: Tensor) -> list[Tensor | None]:
            in_factors, in_variance = gram.pull_back(gradient)
            found = pulled_back([factors], leaves, [in_factors]) if factors.requires_grad else ()
            return [*found, *([] if variance is None else [in_variance])]

        return replace(gram, pull_back=pull_back)

    return TermGram((*names, *([] if scale is None else [scale])), at)
