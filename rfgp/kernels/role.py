"""The interfaces of factors of terms: kernels that are not sums, and their latent fields."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from rfgp.autograd import Array
from rfgp.columns import ColumnKind
from rfgp.kernels.arguments import Key
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter
from rfgp.spectra import Spectrum

Values = Mapping[str, Tensor]
"""Hyperparameters and constants in standardized units, by name."""


class FourierFunctions(NamedTuple):
    """Functions a cos(w . x), followed by a sin(w . x)."""

    frequencies: Tensor  # (m, c)
    places: list[int]  # of the columns (c,) that they read
    amplitudes: Tensor  # (m,)


@dataclass(frozen=True, eq=False)
class Functions:
    """Finitely many functions phi of rows such that phi phi^T is the covariance.

    Attributes:
        size: The number F of functions.
        features: Maps rows a (n, c), and values by name, to phi (n, F).
        design: Maps rows and values to phi (n, F) without the factors that depend on hyperparameters, or None.
        scale: Maps values to these factors, (F,).
        reads: The names of the values on which the design depends.
        fourier: Maps values to frequencies, for cosines and sines. None for other functions.
    """

    size: int
    features: Callable[[Tensor, Values], Tensor]
    design: Callable[[Tensor, Values], Tensor] | None = None
    scale: Callable[[Values], Tensor] | None = None
    reads: tuple[str, ...] = ()
    fourier: Callable[[Values], FourierFunctions] | None = None


Projector = Callable[[Tensor], sp.csr_array]
"""Maps rows (n, c) to the sparse matrix A (n, N) that reads the latent values of a field."""


class LatentField(Protocol):
    """Interface: N latent values u, their sparse precision Q and projection to rows.

    The defaults hold for a field with all its values in place, whose latent values do not depend on hyperparameters.
    """

    @property
    @abstractmethod
    def field(self) -> Any:
        """Q as a function of its parameters, a `graphs.precisions.MarkovField`."""

    @property
    def is_refined(self) -> bool:
        """Whether the field has values at some places only, so that rows need `refine`."""
        return False

    def at(self, values: Values) -> "LatentField":
        """Return the field for some hyperparameters, if its latent values depend on them.

        Args:
            values: The hyperparameters and constants by name.
        """
        return self

    @abstractmethod
    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the parameters (p,) of Q, and the scale of A Q^-1 A^T, 0-d.

        Args:
            values: The hyperparameters and constants by name.
        """

    @abstractmethod
    def projector(self, a: Tensor) -> sp.csr_array:
        """Return A (n, N) of rows a (n, c)."""

    def refine(self, a: Tensor) -> tuple[Any, Projector]:
        """Return the field with rows a (n, c) among its values, and its projector."""
        return self.field, self.projector

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection of rows to a field, and their conditional variances.

        Args:
            field: A field from `refine`.
            values: Its parameters, (p,).
            a: Rows, (n, c), which need not be among its values.

        Returns:
            A (n, N), and the variances (n,) of f at rows given the field's values, in units of its variance.
        """
        return self.projector(a), np.zeros(len(a))

    @property
    def slopes(self) -> "Callable[[Any, Array, Tensor], list[tuple[sp.csr_array, Array]]] | None":
        """The derivatives of the results of `between` in each column of the rows.

        They are a function that takes the arguments of `between`. It returns dA / dx (n, N) and the derivatives (n,) of
        the conditional variances for each column, or raises a `NotDifferentiableError`. If None, rows have no
        derivatives because they are labels.
        """
        return None


class Factor(Protocol):
    """The interface of a kernel on its columns. See `rfgp.kernels.Kernel`."""

    @property
    def columns(self) -> tuple[Key, ...] | None:
        """The keys of its columns. If None, all columns but the target."""

    @property
    def name(self) -> str | None:
        """Its name, or None."""

    @property
    def kind(self) -> ColumnKind:
        """How the columns are read."""

    @property
    def nodes(self) -> Any:
        """The graph whose nodes the column names, or None."""

    @property
    def graph_kernel(self) -> Any:
        """The kernel on these nodes, or None."""

    @property
    def domain(self) -> Any:
        """The domain of the points that the columns are, or None."""

    @property
    def embedding(self) -> Any:
        """Maps columns (n, c) to positions (n, e) for a neighbor search, or None."""

    @property
    def has_own_variance(self) -> bool:
        """Whether a hyperparameter replaces the output scale."""

    @property
    def measure(self) -> Spectrum | None:
        """The spectral measure of a stationary kernel of x / lengthscale, or None."""

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting values that the user gave, by name."""

    def latent_field(self, columns: ColumnSummary) -> "LatentField | None":
        """Return the latent field with a sparse precision, or None."""

    def functions(self, columns: ColumnSummary) -> "Functions | None":
        """Return functions phi such that phi phi^T is the covariance, or None."""

    def series(self, values: Values) -> "Factor | None":
        """Return an accurate factor of finitely many functions, or None."""

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c)."""

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters by name."""

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants by name, (...) each."""
