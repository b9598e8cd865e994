"""Factors of terms: what kernels define on their columns, and the interface of their latent fields."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Array
from rfgp.columns import ColumnKind
from rfgp.kernels.arguments import check_name, read_columns
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
    """Interface: N latent values u with a sparse precision Q, and their projection to rows.

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
    def slopes(self) -> "Callable[[Any, Array, Tensor], tuple[sp.csr_array, Array]] | None":
        """Maps the arguments of `between` to the derivatives of its results.

        None if the results are treated as constant in the columns. A field with slopes has variance 1 everywhere.
        """
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Factor(ABC):
    """What a kernel defines on its columns. See `rfgp.kernels.Kernel`.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        name: The name of its term, or None.
    """

    columns: Any = None
    name: str | None = field(default=None, kw_only=True)

    kind: ClassVar[ColumnKind] = ColumnKind.NUMBER
    """How the columns are read."""
    nodes: ClassVar[Any] = None
    """The graph whose nodes the column names, for ColumnKind.NODE."""
    graph_kernel: ClassVar[Any] = None
    """The kernel on these nodes, a `graphs.kernels.GraphKernel`, for ColumnKind.NODE."""
    domain: ClassVar[Any] = None
    """The domain of the points that the columns are, a `rfgp.kernels.domains.Domain`, for ColumnKind.COORDINATE."""
    embedding: ClassVar[Any] = None
    """Maps the columns (n, c) and the values to positions (n, e) for the neighbor search of `Vecchia`.

    The squared distance of close rows is about 2 - 2 k. If None, positions are the columns in lengthscales."""
    has_own_variance: ClassVar[bool] = False
    """Whether a hyperparameter of the kernel replaces the output scale of its term."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", read_columns(self.columns))
        check_name(self.name)

    @abstractmethod
    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c).

        It must be differentiable in all arguments.

        Args:
            a: The kernel's columns, in standardized units.
            b: The kernel's columns of other rows.
            values: The kernel's hyperparameters and constants by name.
        """

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c).

        Args:
            a: The kernel's columns, in standardized units.
            values: The kernel's hyperparameters and constants by name.
        """
        variances = [self.covariance(row, row, values)[0, 0] for row in a[:, None]]
        return torch.stack(variances) if variances else a.new_zeros(0)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters by name, with starting values.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return {}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants of `covariance` by name, in standardized units, (...) each.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return {}

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the latent field with a sparse precision, or None.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return None

    @property
    def measure(self) -> Spectrum | None:
        """The spectral measure at unit lengthscale. None if not stationary."""
        return None

    def functions(self, columns: ColumnSummary) -> Functions | None:
        """Return finitely many functions phi with covariance phi phi^T, or None.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return None

    def series(self, values: Values) -> "Factor | None":
        """Return an accurate kernel of finitely many functions, or None.

        It has the same columns and hyperparameters.

        Args:
            values: The hyperparameters and constants by name, at which it is accurate.
        """
        return None

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting values by name, in the user's units. None if missing."""
        return {}
