"""Kernels of Whittle-Matern fields on roads and on surfaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from rfgp.autograd import Array, is_differentiated, numpy_function
from rfgp.columns import ColumnKind
from rfgp.errors import DataError, InvalidArgumentError, NotDifferentiableError
from rfgp.kernels.arguments import Key, bounds_in
from rfgp.kernels.domains import Domain, MeshDomain, RoadDomain, as_points
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import LatentField, Projector, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter
from rfgp.spectra.spectrum import positive

START, BOUNDS = 0.05, (1e-4, 1e2)
"""The start and the bounds of the lengthscale, in extents of the roads or the surface."""
POINTS = 256
"""The number of points whose covariance is computed at once for their variances."""


@dataclass(frozen=True, eq=False)
class DomainField(LatentField):
    """The latent values of a field on a domain.

    Attributes:
        domain: The field and its domain.
    """

    domain: Domain

    @property
    def field(self) -> Any:
        """The precision as a function of the lengthscale."""
        return self.domain.field

    @property
    def is_refined(self) -> bool:
        """Whether the field has values at some places only."""
        return self.domain.is_refined

    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the lengthscale (1,), and the factor 1."""
        return values["lengthscale"].double().reshape(1), torch.ones((), dtype=torch.float64)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return A (n, N) of points a (n, d)."""
        return self.domain.projector(as_points(a))

    def refine(self, a: Tensor) -> tuple[Any, Projector]:
        """Return the field with points a (n, d) among its values, and its projector."""
        field, read = self.domain.refine(as_points(a))
        return field, partial(_read, read)

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection A (n, N) of points to a refined field, and variances (n,)."""
        return self.domain.between(field, values, as_points(a))

    def slopes(self, field: Any, values: Array, a: Tensor) -> list[tuple[sp.csr_array, Array]]:
        """Return the derivatives of the results of `between` in each column of points a (n, d).

        Raises:
            NotDifferentiableError: If the field has no derivative at a point.
        """
        return [(slope, np.zeros(len(a))) for slope in self.domain.slopes(as_points(a))]


def _read(projector: Any, a: Tensor) -> sp.csr_array:
    matrix: sp.csr_array = projector(as_points(a))
    return matrix


def field_covariance(latent: LatentField, values: Values, a: Tensor, b: Tensor) -> Tensor:
    """Return the covariance (n, m) of a field at points a (n, d) and b (m, d).

    It is A Q^-1 B^T times the factor of the field.
    Let Z = Q^-1 A^T and G be the gradient in the covariance. The gradient in the entries of Q is -Z_a G Z_b^T, since
    d Q^-1 = -Q^-1 dQ Q^-1.

    Args:
        latent: The field.
        values: The hyperparameters by name. The covariance is differentiable in them.
        a: The points, (n, d).
        b: The points, (m, d).

    Raises:
        NotDifferentiableError: If points require gradients.
    """
    if is_differentiated(a, b):
        raise NotDifferentiableError(
            "X must not require gradients for the exact covariance of a field on a mesh or roads, got X that does. Use "
            "predict(X.detach()), or SparsePrecision()."
        )
    theta, factor = latent.parameters(values)
    if latent.is_refined:
        field, read = latent.refine(torch.cat([a, b]))
    else:
        field, read = latent.field, latent.projector
    left, right = read(a), read(b)
    rows = np.repeat(np.arange(len(field.pattern.indptr) - 1), np.diff(field.pattern.indptr))

    def solved(point: Array) -> tuple[Array, Array]:
        factorized = field.factor_at(point)
        return factorized.solve(left.T.toarray()), factorized.solve(right.T.toarray())

    def value(point: Array) -> Array:
        return np.asarray(left @ solved(point)[1]).reshape(-1)

    def pull_back(point: Array, gradient: Array) -> Array:
        z, w = solved(point)
        pushed = z @ gradient.reshape(left.shape[0], right.shape[0])
        columns = field.pattern.indices
        weights = (pushed[rows] * w[columns]).sum(1) + (w[rows] * pushed[columns]).sum(1)
        return np.asarray(field.pull_back(point, -0.5 * weights))

    return factor * numpy_function(theta, value, pull_back).reshape(left.shape[0], right.shape[0])


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _OnDomain(Kernel):
    """A field on a domain, which subclasses make.

    Attributes:
        lengthscale: The starting lengthscale, in the domain's units. If None, the domain decides.
    """

    kind: ClassVar[ColumnKind] = ColumnKind.COORDINATE
    lengthscale: float | None = field(default=None, kw_only=True)

    def _set(self, **values: Any) -> None:
        """Set the attributes, and check them."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.lengthscale is not None:
            object.__setattr__(self, "lengthscale", positive("lengthscale", self.lengthscale))
        self.__post_init__()
        known = self.columns
        if known is not None and len(known) != self.domain.num_columns:
            raise InvalidArgumentError(
                f"{type(self).__name__} must have {self.domain.num_columns} columns, got {known!r}."
            )

    def latent_field(self, columns: ColumnSummary) -> LatentField:
        """Return the field with its sparse precision, whatever the columns."""
        return DomainField(self.domain)

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting lengthscale, if it was given."""
        return {"lengthscale": self.lengthscale}

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of points a (n, d) and b (m, d)."""
        return field_covariance(DomainField(self.domain), values, a, b)

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of points a (n, d)."""
        parts = torch.split(a, POINTS)
        variances = [field_covariance(DomainField(self.domain), values, part, part).diagonal() for part in parts]
        return torch.cat(variances) if variances else a.new_zeros(0)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale, in the domain's units."""
        unit = torch.ones((), dtype=torch.float64)
        extent = self.domain.extent * unit
        return {"lengthscale": Hyperparameter(START * extent, unit, bounds_in(extent, BOUNDS))}


ROAD_COLUMNS = ("road", "fraction")
"""The columns of positions on roads."""
POINT_COLUMNS = ("x", "y", "z")
"""The columns of points."""


def _chosen(keys: Sequence[Key], names: tuple[str, ...], kind: str) -> tuple[Key, ...]:
    """Return the columns of these names, or the leading ones of an array.

    Raises:
        DataError: If an array has fewer columns.
        InvalidArgumentError: If the table has other names.
    """
    if all(name in keys for name in names):
        return names
    if len(keys) >= len(names) and all(isinstance(key, int) for key in keys):
        return tuple(keys[: len(names)])
    if all(isinstance(key, int) for key in keys):
        raise DataError(f"{kind} reads the columns {', '.join(names)}, and X has shape (n, {len(keys)}).")
    raise InvalidArgumentError(f"{kind} reads the columns {', '.join(names)}, which X does not have. Give columns=.")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Roads(_OnDomain):
    """A Whittle-Matern field on a road network, continuous over crossings.

    On a long road the kernel is exp(-d / lengthscale) for alpha = 1, and Matern 3/2 for alpha = 2.

    Source: Bolin, Simas and Wallin (2024), Gaussian Whittle-Matern fields on metric graphs, Section 2.

    Attributes:
        network: The roads, a `graphs.RoadNetwork`.
        alpha: 1, or 2 for paths with a derivative.
        columns: The keys of the number of a road and of the fraction of its length. If None, "road" and "fraction", or
            the first two columns of an array.
        boundary: The condition at free ends of roads: "neumann", "stationary" or "open". See `graphs.RoadField`.
        lengthscale: The starting lengthscale, in the units of the roads' lengths. If None, 5 % of their extent.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there are no roads, or alpha, the boundary or a number is invalid.

    Examples:
        >>> import graphs
        >>> from rfgp import kernels as k
        >>> net = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)]])
        >>> kernel = k.Roads(net, boundary="stationary", lengthscale=1.0)
        >>> kernel.matrix({"road": [0, 0], "fraction": [0.0, 1.0]}).shape
        torch.Size([2, 2])
    """

    network: Any = None
    alpha: int = 1
    boundary: str = field(default="neumann", kw_only=True)

    def __init__(
        self,
        network: Any,
        alpha: int = 1,
        columns: Any = None,
        *,
        boundary: str = "neumann",
        lengthscale: float | None = None,
        name: str | None = None,
    ) -> None:
        domain = RoadDomain(graphs.RoadField(network, alpha, boundary))
        self._set(
            domain=domain,
            network=network,
            alpha=alpha,
            columns=columns,
            boundary=boundary,
            lengthscale=lengthscale,
            name=name,
        )

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the kernel with explicit columns.

        Args:
            keys: All columns but the target.
        """
        return self if self.columns is not None else replace(self, columns=_chosen(keys, ROAD_COLUMNS, "Roads"))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Mesh(_OnDomain):
    """A Whittle-Matern field of linear finite elements on a triangle mesh.

    Points are projected to the nearest point of the mesh.

    Source: Lindgren, Rue and Lindstrom (2011), An explicit link between Gaussian fields and Gaussian Markov random
    fields, Section 2.3.

    Attributes:
        mesh: A `graphs.MeshField`, a mesh of trimesh, or the path of a file.
        alpha: The smoothness, from 1 to 6. A `graphs.MeshField` has its own.
        columns: The keys of the coordinates. If None, "x", "y" and "z", or the leading columns of an array.
        within: The largest distance of a point from the surface. If None, a tenth of the diagonal of its box.
        lengthscale: The starting lengthscale, in the mesh's units. If None, 5 % of its diagonal.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there is no mesh, or alpha or a number is invalid.

    Examples:
        >>> import trimesh
        >>> from rfgp import kernels as k
        >>> ball = trimesh.creation.icosphere(2)
        >>> k.Mesh(ball, lengthscale=1.0).matrix(ball.vertices[:5]).shape
        torch.Size([5, 5])
    """

    mesh: Any = None
    alpha: int = 2
    within: float | None = field(default=None, kw_only=True)

    def __init__(
        self,
        mesh: Any,
        alpha: int = 2,
        columns: Any = None,
        *,
        within: float | None = None,
        lengthscale: float | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(mesh, graphs.Graph):
            raise InvalidArgumentError("Mesh needs a graphs.MeshField or a mesh, got a graph. Use k.Nodes for graphs.")
        field = mesh if isinstance(mesh, graphs.MeshField) else graphs.MeshField(mesh, alpha)
        self._set(
            domain=MeshDomain(field, within),
            mesh=field,
            alpha=field.alpha,
            columns=columns,
            within=within,
            lengthscale=lengthscale,
            name=name,
        )

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the kernel with explicit columns.

        Args:
            keys: All columns but the target.
        """
        names = POINT_COLUMNS[: self.domain.num_columns]
        return self if self.columns is not None else replace(self, columns=_chosen(keys, names, "Mesh"))
