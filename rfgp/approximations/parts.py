"""Features of terms as products of the features of their factors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.couplings import Frequencies
from rfgp.features import Fourier, Laplace
from rfgp.grams import Gram
from rfgp.kernels.role import Factor, FourierFunctions, Functions, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, of_prefix

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
