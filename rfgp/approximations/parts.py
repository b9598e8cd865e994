"""Features of terms as products of the features of their factors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rfgp.columns import Kind
from rfgp.kernels.role import Factor, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, of_prefix

CHUNK = 1000
"""The number of rows with new levels whose covariances are computed at once for their variances."""


class Part(Protocol):
    """The role: features of one or several factors of a term."""

    def size(self, columns: ColumnSummary) -> int:
        """Return the number of features, given all columns."""

    def __call__(self, x: Tensor, values: Values) -> Tensor:
        """Return the features (n, F) of rows (n, D), at values by path."""


@dataclass(frozen=True, eq=False)
class FinitePart:
    """The features of a factor of finitely many functions.

    Attributes:
        factor: The factor.
        places: The places of its columns.
        prefix: The prefix of its hyperparameters.
    """

    factor: Factor
    places: list[int]
    prefix: str

    def size(self, columns: ColumnSummary) -> int:
        """Return the number of features, given all columns."""
        found = self.factor.num_functions(columns.select(self.places))
        assert found is not None
        return found

    def __call__(self, x: Tensor, values: Values) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        return self.factor.features(x[:, self.places], of_prefix(values, self.prefix))


@dataclass(frozen=True, eq=False)
class SpectralPart:
    """Random features of stationary factors, whose frequencies are stacked.

    Attributes:
        places: The places of the columns of each factor.
        prefixes: The prefixes of their hyperparameters.
        feature_map: Maps rows in lengthscales, (n, d), to features.
        num_features: The number of features.
    """

    places: tuple[list[int], ...]
    prefixes: tuple[str, ...]
    feature_map: Callable[[Tensor], Tensor]
    num_features: int

    def size(self, columns: ColumnSummary) -> int:
        """Return the number of features, whatever the columns."""
        return self.num_features

    def __call__(self, x: Tensor, values: Values) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        pairs = zip(self.places, self.prefixes, strict=True)
        scaled = [x[:, places] / values[f"{prefix}lengthscale"].to(x.dtype) for places, prefix in pairs]
        return self.feature_map(scaled[0] if len(scaled) == 1 else torch.cat(scaled, dim=1))


@dataclass(frozen=True, eq=False)
class TermFeatures:
    """The features of a term without its own variance: products of one feature of each part.

    Attributes:
        parts: The parts.
        names: The paths of the hyperparameters that `__call__` takes after the rows.
        constants: Constants by path.
    """

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    constants: Values

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, F) of rows (n, D)."""
        values = {**self.constants, **dict(zip(self.names, parameters, strict=True))}
        first, *others = (part(x, values) for part in self.parts)
        out = first
        for features in others:
            out = (out[:, :, None] * features[:, None, :]).reshape(len(x), -1)
        return out.to(x.dtype) if x.dtype == torch.float32 else out


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

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D)."""
        return self.term.variances(a, self._values(parameters))

    def _values(self, parameters: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return {**self.constants, **dict(zip(self.names, parameters, strict=True))}


@dataclass(frozen=True, eq=False)
class NewLevels:
    """The covariance of a term between rows with levels that no training row has.

    It is the covariance of the term without the part that the features of known levels explain.

    Attributes:
        term: The term.
        names: The paths of the hyperparameters that `__call__` takes after the rows.
        constants: Constants by path.
        num_levels: The number of known levels of each column, D of them.
        features: The features of rows (n, D) and hyperparameters. If None, they are products of features of factors,
            those of levels exact.
    """

    term: BoundTerm
    names: tuple[str, ...]
    constants: Values
    num_levels: tuple[int, ...]
    features: Callable[..., Tensor] | None = None

    def is_new(self, x: Tensor) -> Tensor:
        """Return whether rows (n, D) have a new level in a column of the term, (n,)."""
        out = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for factor, places, _ in self.term.parts():
            for place in places if factor.kind is Kind.LEVEL else []:
                out |= x[:, place] >= self.num_levels[place]
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
        for some in torch.split(rows, CHUNK):
            found = self._between(a[some], a[some], parameters).diagonal()
            out = out.index_put((some,), found)
        return out

    def _between(self, a: Tensor, b: Tensor, parameters: tuple[Tensor, ...]) -> Tensor:
        """Return the covariance (n, m) of rows with new levels."""
        if self.features is not None:
            left, right = (self.features(x.double(), *parameters) for x in (a, b))
            return TermCovariance(self.term, self.names, self.constants)(a, b, *parameters) - left @ right.mT
        values = {**self.constants, **dict(zip(self.names, parameters, strict=True))}
        exact = known = others = torch.ones((), dtype=torch.float64, device=a.device)
        for factor, places, prefix in self.term.parts():
            x, z, own = a[:, places], b[:, places], of_prefix(values, prefix)
            if factor.kind is Kind.LEVEL:
                exact = exact * factor.covariance(x, z, own)
                known = known * (factor.features(x, own) @ factor.features(z, own).mT)
            else:
                others = others * factor.covariance(x, z, own)
        return (exact - known) * others
