"""The base class of approximations, features of products, and terms by weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior, WeightBlock
from rfgp.columns import ColumnKind
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features import Fourier, Laplace
from rfgp.grams import Gram
from rfgp.kernels.role import (
    OUTPUTSCALE,
    BoundTerm,
    ColumnSummary,
    Factor,
    FourierFunctions,
    Functions,
    Values,
    constants_of,
    of_prefix,
)
from rfgp.values import changed_arguments

# --- The base class of approximations, which turn a term of a kernel into latent blocks ------------------------------

MIN_NOISE = 1e-6
"""The minimum noise with other approximations, in variances of the target.

With 64 inducing points and a noise of 1e-8, gradients in the lengthscale were 85 % too small."""
MIN_NOISE_OF_LATENT_NEIGHBORS = 1e-8
"""The minimum noise with neighbors of latent values, in variances of the target. Their jitter is 1e-11."""
MIN_NOISE_OF_MATRICES = 1e-10
"""The minimum noise with factorized matrices of rows, features or neighbors, in variances of the target."""
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


class TermPrior(ABC):
    """Interface: a term with fixed random draws, as a function of the hyperparameters.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> prior = rfgp.RandomFeatures(8).build(data, seed=0)
        >>> isinstance(prior, TermPrior), prior.has_basis_of(prior)
        (True, True)
    """

    @abstractmethod
    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior of the term.

        Args:
            values: The hyperparameters by path, in standardized units, and learnable draws by path if they differ from
                those of the term.
            columns: The summary of all columns, with all present levels.
        """

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows as a function of the hyperparameters.

        Args:
            inputs: The rows, (n, D).
            columns: The summary of all columns.

        Returns:
            The function, or None if its gradient has no closed form.
        """
        return None

    def has_basis_of(self, other: "TermPrior") -> bool:
        """Return whether another prior of the same term has the same draws.

        Args:
            other: Another prior of the same term.
        """
        return self is other

    @property
    def learnable(self) -> Values:
        """The draws (...) that a fit may change, by path."""
        return {}

    def with_learned(self, values: Values) -> Self:
        """Return the term with other draws (...) by path.

        Args:
            values: The draws (...) by path. Other paths have no effect.
        """
        return self


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
    def cost(self, data: TermData) -> TermCost:
        """Return the predicted cost without allocating anything.

        Args:
            data: The term and the rows.
        """

    def cost_of(self, data: TermData, prior: TermPrior) -> TermCost:
        """Return the cost of a built term.

        Its features may differ from those of a new one.

        Args:
            data: The term and the rows.
            prior: The term from `build`.
        """
        return self.cost(data)

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise for accurate means, in variances of the target.

        Args:
            data: The term and the rows.
        """
        return MIN_NOISE

    def depends_on_hyperparameters(self, data: TermData) -> bool:
        """Return whether the result of `build` depends on the hyperparameters.

        Args:
            data: The term and the rows.
        """
        return False

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term for other hyperparameters.

        It is the same term if nothing changes.

        Args:
            data: The term and the rows, at the other hyperparameters.
            seed: The seed for the term.
            prior: The term from `build`.
        """
        return self.build(data, seed) if self.depends_on_hyperparameters(data) else prior

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
        bound the exact log marginal likelihood (`rfgp.solvers.lowrank.solver`).

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

    def checked_cost(self, data: TermData) -> TermCost:
        """Return the predicted cost, after checking that the term is supported.

        Args:
            data: The term and the rows.

        Raises:
            InvalidArgumentError: If the approximation does not support the term.
        """
        self.check(data)
        return self.cost(data)


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
    names = [path for path in data.values if any(path.startswith(prefix) for prefix in term.prefixes)]
    of_factors = [path for path in names if "." not in _rest(path, term.prefixes)]
    scale = scale_name(term, data.values)
    others = [path for path in of_factors if path != scale and not path.endswith(f".{OUTPUTSCALE}")]
    return (*others, *([scale] if with_scale and scale is not None else []))


def _rest(path: str, prefixes: tuple[str, ...]) -> str:
    return min((path[len(prefix) :] for prefix in prefixes if path.startswith(prefix)), key=len)


# --- Features of terms as products of the features of their factors --------------------------------------------------

CHUNK = 1000
"""The number of rows with new levels whose variances are computed at once."""

FeatureMap = Fourier | Laplace


class FactorFeatures(Protocol):
    """Interface: functions of one or several factors of a term."""

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the functions of rows (n, D) and of values by path, given all columns."""

    @property
    def learnable(self) -> Values:
        """The draws (...) that a fit may change, by path."""

    def with_learned(self, values: Values) -> "FactorFeatures":
        """Return the part with other draws (...) by path."""


@dataclass(frozen=True, eq=False)
class FinitePart:
    """The functions of a factor of finitely many functions.

    Attributes:
        factor: The factor.
        indices: The indices of its columns.
        prefix: The prefix of its hyperparameters.
    """

    factor: Factor
    indices: list[int]
    prefix: str

    @property
    def learnable(self) -> Values:
        """No draws (...), an empty dict."""
        return {}

    def with_learned(self, values: Values) -> "FinitePart":
        """Return the part itself, because it has no draws (...)."""
        return self

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the functions of rows (n, D) and of values by path, given all columns."""
        functions = self.factor.functions(columns.select(self.indices))
        assert functions is not None
        features = partial(_of_columns, functions.features, self.indices, self.prefix)
        if not self.factor.hyperparameters(columns.select(self.indices)):
            return Functions(functions.size, features, features)
        if functions.design is None or functions.scale is None:
            return Functions(functions.size, features)
        design = partial(_of_columns, functions.design, self.indices, self.prefix)
        scale = partial(_at_prefix, functions.scale, self.prefix)
        reads = tuple(self.prefix + name for name in functions.reads)
        return Functions(functions.size, features, design, scale, reads)


def _at_prefix(scale: Callable[[Values], Tensor], prefix: str, values: Values) -> Tensor:
    """Return factors (F,) at the values of a prefix."""
    return scale(of_prefix(values, prefix))


def _of_columns(
    features: Callable[[Tensor, Values], Tensor], indices: list[int], prefix: str, x: Tensor, values: Values
) -> Tensor:
    """Return features (n, F) of some columns of rows (n, D)."""
    return features(x[:, indices], of_prefix(values, prefix))


@dataclass(frozen=True, eq=False)
class SpectralPart:
    """Random features of stationary factors with stacked frequencies.

    Attributes:
        indices: The indices of the columns of each factor.
        prefixes: The prefixes of their hyperparameters.
        feature_map: The map of rows (n, d), divided by the lengthscales, to features.
        path: The path of the frequencies (m, d). If None, a fit does not change them.
    """

    indices: tuple[list[int], ...]
    prefixes: tuple[str, ...]
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

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the features as functions of rows (n, D) and of values by path.

        They do not depend on the summary of the columns.
        """
        fourier = self._fourier if self.feature_map.is_trigonometric else None
        return Functions(self.feature_map.num_features, self._features, fourier=fourier)

    def _fourier(self, values: Values) -> FourierFunctions:
        """Return the frequencies (m, c) in the units of the columns."""
        frequencies = self._map_at(values).frequencies
        lengthscales = [
            values[f"{prefix}lengthscale"].double().expand(len(indices))
            for indices, prefix in zip(self.indices, self.prefixes, strict=True)
        ]
        amplitudes = frequencies.amplitudes.double().expand(frequencies.shape[0])
        indices = [index for group in self.indices for index in group]
        return FourierFunctions(frequencies.dense().double() / torch.cat(lengthscales), indices, amplitudes)

    def _features(self, x: Tensor, values: Values) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        pairs = zip(self.indices, self.prefixes, strict=True)
        scaled = [x[:, indices] / values[f"{prefix}lengthscale"].to(x.dtype) for indices, prefix in pairs]
        features: Tensor = self._map_at(values)(scaled[0] if len(scaled) == 1 else torch.cat(scaled, dim=1))
        return features


@dataclass(frozen=True, eq=False)
class TermFeatures:
    """The features of a term without its own variance.

    They are products of one function of each part.

    Attributes:
        parts: The functions of each part.
        names: The paths of the hyperparameters that `__call__` takes after the rows.
        constants: Constants by path.
    """

    parts: tuple[Functions, ...]
    names: tuple[str, ...]
    constants: Values

    @property
    def size(self) -> int:
        """The number F of features."""
        return math.prod(part.size for part in self.parts)

    @property
    def is_fourier(self) -> bool:
        """Whether the features are cosines and sines."""
        return len(self.parts) == 1 and self.parts[0].fourier is not None

    def fourier(self, *parameters: Tensor) -> FourierFunctions:
        """Return the frequencies (m, c) of features that are cosines and sines."""
        (part,) = self.parts
        assert part.fourier is not None
        return part.fourier(self._values(parameters))

    def _values(self, parameters: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return {**self.constants, **dict(zip(self.names, parameters, strict=True))}

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        values = self._values(parameters)
        first, *others = (part.features(x, values) for part in self.parts)
        out = first
        for features in others:
            out = (out[:, :, None] * features[:, None, :]).flatten(1)
        return out.to(x.dtype) if x.dtype == torch.float32 else out


@dataclass(frozen=True)
class FixedFeatures:
    """Features of a term without hyperparameters, and the factors with them.

    Two designs of one term on the same columns, at the same fixed values, compare equal.

    Attributes:
        term: The term with its draws.
        columns: The summary of all columns.
        fixed: The fixed values that the features depend on, by path.
        functions: The features.
    """

    term: Any
    columns: ColumnSummary
    fixed: tuple[tuple[str, float], ...]
    functions: TermFeatures = field(compare=False)

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.functions.size

    def fixed_features(self, x: Tensor) -> Tensor:
        """Return the features of rows (n, D), (n, F), float64."""
        values = {**self.functions.constants, **{path: x.new_tensor(value).double() for path, value in self.fixed}}
        out = torch.ones(len(x), 1, dtype=torch.float64)
        for part in self.functions.parts:
            assert part.design is not None
            part_features = part.design(x.double(), values).double()
            out = (out[:, :, None] * part_features[:, None, :]).flatten(1)
        return out

    def scale(self, *parameters: Tensor) -> Tensor:
        """Return the factors (F,), for a variance of 1."""
        values = {**self.functions.constants, **dict(zip(self.functions.names, parameters, strict=True))}
        out = torch.ones(1, dtype=torch.float64)
        for part in self.functions.parts:
            factors = torch.ones(part.size, dtype=torch.float64) if part.scale is None else part.scale(values).double()
            out = (out[:, None] * factors).reshape(-1)
        return out

    def residual_variance(self, *parameters: Tensor) -> Tensor:
        """Return 0, 0-d: the features omit nothing of the term."""
        return torch.zeros((), dtype=torch.float64)

    def residual_derivative_variance(self, column: int, *parameters: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Return 0, 0-d: the features omit nothing of the derivative of the term."""
        return torch.zeros((), dtype=torch.float64)

    def residual_derivative_covariance(self, inputs: Tensor, column: int, *parameters: Tensor) -> Tensor:
        """Return 0 (n, n): the features omit nothing of the derivative of the term."""
        return torch.zeros(len(inputs), len(inputs), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class TermCovariance:
    """The covariance of a term as a function of rows and hyperparameters.

    Attributes:
        term: The term.
        names: The paths of the hyperparameters that are passed after the rows.
        constants: Constants by path.
    """

    term: BoundTerm
    names: tuple[str, ...]
    constants: Values

    def __call__(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D)."""
        return self.term.covariance(a, b, self._values(parameters))

    def gram(self, a: Tensor, *parameters: Tensor) -> Gram:
        """Return the covariance (n, n) of rows a (n, D) with themselves, and its gradient."""
        return self.term.gram(a, self._values(parameters))

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D)."""
        return self.term.variances(a, self._values(parameters))

    def _values(self, parameters: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return {**self.constants, **dict(zip(self.names, parameters, strict=True))}


LEVEL_DISTANCE = 5.0
"""The distance of two levels in a search for neighbors, in lengthscales of other columns."""


@dataclass(frozen=True, eq=False)
class TermEmbedding:
    """An embedding of rows with distances near those of a term.

    The squared distance is about k(x, x) + k(z, z) - 2 k(x, z).

    Attributes:
        term: The term.
        names: The paths of the hyperparameters that `__call__` takes after the rows.
        constants: Constants by path.
        spread: The standard deviations of all columns, (D,).
    """

    term: BoundTerm
    names: tuple[str, ...]
    constants: Values
    spread: Tensor

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the embedding (n, e) of rows (n, D)."""
        values = {**self.constants, **dict(zip(self.names, parameters, strict=True))}
        scale = 1.0 if self.term.outputscale is None else values[self.term.outputscale].sqrt()
        pairs = ((factor, indices, of_prefix(values, prefix)) for factor, indices, prefix in self.term.parts())
        return scale * torch.cat([self._of_factor(factor, x, indices, own) for factor, indices, own in pairs], dim=1)

    def _of_factor(self, factor: Factor, x: Tensor, indices: list[int], values: Values) -> Tensor:
        """Return the embedding (n, e) of rows (n, D) by a factor."""
        inputs, lengthscale = x[:, indices], values.get("lengthscale")
        if factor.kind is ColumnKind.LEVEL:
            return LEVEL_DISTANCE * inputs
        if factor.kind is ColumnKind.COORDINATE:
            return inputs
        if factor.embedding is not None:
            embedding: Tensor = factor.embedding(inputs, values)
            return embedding
        if lengthscale is not None and lengthscale.numel() in (1, inputs.shape[1]):
            return inputs / lengthscale.reshape(-1)
        return inputs / self.spread[indices].to(inputs)


@dataclass(frozen=True, eq=False)
class NewLevels:
    """The covariance of a term between rows with new levels.

    No training row has these levels. It is the covariance of the term minus the part that the features of the training
    levels explain.

    Attributes:
        term: The term.
        names: The paths of the hyperparameters that `__call__` takes after the rows.
        constants: Constants by path.
        num_levels: The number of training levels of each column, D of them.
        of_levels: The functions of each factor on levels, None for other factors.
        features: The features of rows (n, D) and hyperparameters. If None, they are products of functions of factors,
            exact for levels.
    """

    term: BoundTerm
    names: tuple[str, ...]
    constants: Values
    num_levels: tuple[int, ...]
    of_levels: tuple[Functions | None, ...] = ()
    features: Callable[..., Tensor] | None = None

    @classmethod
    def for_term(
        cls, term: BoundTerm, names: tuple[str, ...], constants: Values, columns: ColumnSummary
    ) -> "NewLevels | None":
        """Return the covariance of new levels of a term, or None without levels."""
        of_levels = [
            factor.functions(columns.select(indices)) if factor.kind is ColumnKind.LEVEL else None
            for factor, indices, _ in term.parts()
        ]
        has_levels = any(functions is not None for functions in of_levels)
        return cls(term, names, constants, columns.num_levels, tuple(of_levels)) if has_levels else None

    def is_new(self, x: Tensor) -> Tensor:
        """Return whether rows (n, D) have a new level in a column of the term, (n,)."""
        out = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for factor, indices, _ in self.term.parts():
            for index in indices if factor.kind is ColumnKind.LEVEL else []:
                out |= x[:, index] >= self.num_levels[index]
        return out

    def covariance(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), for a variance of 1."""
        out = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
        rows, columns = (self.is_new(x).nonzero()[:, 0] for x in (a, b))
        if len(rows) and len(columns):
            out = out.index_put((rows[:, None], columns), self._between(a[rows], b[columns], parameters))
        return out

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D), for a variance of 1."""
        out = torch.zeros(len(a), dtype=torch.float64, device=a.device)
        rows = self.is_new(a).nonzero()[:, 0]
        for chunk in torch.split(rows, CHUNK) if len(rows) else ():
            values = self._between(a[chunk], a[chunk], parameters).diagonal()
            out = out.index_put((chunk,), values)
        return out

    def _between(self, a: Tensor, b: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
        """Return the covariance (n, m) of rows with new levels."""
        if self.features is not None:
            left, right = (self.features(x.double(), *parameters) for x in (a, b))
            return TermCovariance(self.term, self.names, self.constants)(a, b, *parameters) - left @ right.mT
        values = {**self.constants, **dict(zip(self.names, parameters, strict=True))}
        exact = explained = torch.ones((), dtype=torch.float64, device=a.device)
        others = values.get(str(self.term.outputscale), exact).double()
        for (factor, indices, prefix), functions in zip(self.term.parts(), self.of_levels, strict=True):
            x, z, at_prefix = a[:, indices], b[:, indices], of_prefix(values, prefix)
            if functions is not None:
                exact = exact * factor.covariance(x, z, at_prefix)
                explained = explained * (functions.features(x, at_prefix) @ functions.features(z, at_prefix).mT)
            else:
                others = others * factor.covariance(x, z, at_prefix)
        return (exact - explained) * others


# --- Terms by weights: f = s phi(x) w, with products of the features of the factors ----------------------------------


@dataclass(frozen=True, eq=False)
class WeightTermPrior(TermPrior):
    """A term with the features of its factors.

    Attributes:
        term: The term.
        parts: The features of its factors, which are multiplied.
        names: The paths of the hyperparameters that the features depend on.
        scale: The path of the variance. If None, it is 1.
    """

    term: BoundTerm
    parts: tuple[FactorFeatures, ...]
    names: tuple[str, ...]
    scale: str | None

    @classmethod
    def of(cls, data: TermData, parts: Sequence[FactorFeatures]) -> "WeightTermPrior":
        """Return a term with some features of its factors.

        Args:
            data: The term.
            parts: The features of its factors, which are multiplied.
        """
        scale = scale_name(data.term, data.values)
        return cls(data.term, tuple(parts), parameter_names(data, with_scale=False), scale)

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior of the weights at hyperparameters by path, given all columns."""
        constants = self._constants(columns)
        names = (*self.names, *(path for path in self.learnable if path in values))
        features = TermFeatures(tuple(part.functions(columns) for part in self.parts), names, constants)
        block = WeightBlock(
            features,
            features.size,
            tuple(values[name] for name in names),
            None if self.scale is None else values[self.scale].reshape(()),
            name=self.term.name,
            new_levels=NewLevels.for_term(self.term, names, constants, columns),
            design=self._design(features, values, columns),
            fourier=features.fourier if features.is_fourier else None,
        )
        return Prior(weights=(block,))

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows (n, D) if hyperparameters only scale features.

        Otherwise it is None.
        """
        parts = tuple(part.functions(columns) for part in self.parts)
        if self.learnable or any(part.design is None or part.reads for part in parts):
            return None
        features = TermFeatures(parts, self.names, self._constants(columns))
        fixed = FixedFeatures(self, columns, (), features)
        design, names = fixed.fixed_features(inputs), self.names
        one = torch.ones((), dtype=torch.float64)

        def at(values: Values) -> Gram:
            with torch.enable_grad():
                leaves = [values[name].detach().requires_grad_() for name in names]
                scale = fixed.scale(*leaves)
            variance = one if self.scale is None else values[self.scale].reshape(())
            gram = Gram.of_design(design, scale, variance)

            def pull_back(gradient: Tensor) -> list[Tensor | None]:
                grad_scale, grad_variance = gram.pull_back(gradient)
                gradients = list(torch.autograd.grad(scale, leaves, grad_scale)) if scale.requires_grad else []
                return [*gradients, *([] if self.scale is None else [grad_variance])]

            return replace(gram, pull_back=pull_back)

        return TermGram((*names, *([] if self.scale is None else [self.scale])), at)

    def _constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants (...) by path, given all columns."""
        constants = constants_of([self.term], columns)
        if self.scale is not None and self.scale != self.term.outputscale:
            constants[self.scale] = torch.ones(1, dtype=torch.float64)  # the variance of a factor scales the term
        return constants

    def _design(self, features: TermFeatures, values: Values, columns: ColumnSummary) -> FixedFeatures | None:
        """Return the features that depend on no hyperparameter, or None."""
        if any(part.design is None for part in features.parts):
            return None
        paths = dict.fromkeys(path for part in features.parts for path in part.reads)
        fixed = tuple((path, float(values[path].detach())) for path in paths)
        return FixedFeatures(self, columns, fixed, features)

    @property
    def learnable(self) -> Values:
        """The learnable frequencies (m, d) of the parts, by path."""
        return {path: value for part in self.parts for path, value in part.learnable.items()}

    def with_learned(self, values: Values) -> "WeightTermPrior":
        """Return the term with other frequencies (m, d) by path."""
        return replace(self, parts=tuple(part.with_learned(values) for part in self.parts))
