"""The role of a factor: a kernel on columns of its own that is not a sum."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from rfgp.columns import Kind
from rfgp.kernels.arguments import Key
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Quantity
from rfgp.spectra import Spectrum

Values = Mapping[str, Tensor]
"""Hyperparameters and constants in standardised units, by name."""


class Factor(Protocol):
    """The role: a kernel on columns of its own; see `rfgp.kernels.Kernel`."""

    @property
    def columns(self) -> tuple[Key, ...] | None:
        """The keys of its columns. If None, all columns but the target."""

    @property
    def name(self) -> str | None:
        """Its name, or None."""

    @property
    def kind(self) -> Kind:
        """How the columns are read."""

    @property
    def nodes(self) -> Any:
        """The graph whose nodes the column names, or None."""

    @property
    def has_own_variance(self) -> bool:
        """Whether a hyperparameter takes the place of the output scale."""

    @property
    def measure(self) -> Spectrum | None:
        """The spectral measure of a stationary kernel of x / lengthscale, or None."""

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting values that the user gave, by name."""

    def num_functions(self, columns: ColumnSummary) -> int | None:
        """Return the number F of functions of `features`, or None."""

    def features(self, a: Tensor, values: Values) -> Tensor:
        """Return phi (n, F) of rows a (n, c) with phi phi^T the covariance."""

    def series(self, values: Values) -> "Factor | None":
        """Return a factor of finitely many functions that is nearly this one at some hyperparameters, or None."""

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c)."""

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Quantity]:
        """Return the hyperparameters by name."""

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants by name, (...) each."""
