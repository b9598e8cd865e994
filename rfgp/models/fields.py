"""Gaussian processes on surfaces and on roads: `GP` of one Whittle-Matern field."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import graphs
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Mesh, Roads
from rfgp.kernels.domains import MeshDomain
from rfgp.likelihoods import Likelihood
from rfgp.models.gp import GP
from rfgp.parameters import Hyperprior
from rfgp.regression.spec import ModelSpec
from rfgp.torch_context import with_torch_defaults

_ALPHAS = (2, 3, 4)
"""The orders that `MeshGP(alpha="auto")` compares."""


class RoadGP(GP):
    """An exact Gaussian process on a road network, with `kernels.Roads`.

    The process is continuous along roads and over crossings. It depends on the lengths of roads, not on their division
    into segments. Means, variances, likelihoods and their gradients come from sparse Cholesky factors.

    Inputs are positions (n, 2): the number of a road, and the fraction of its length from its first point.
    `graphs.RoadNetwork.nearest` finds positions of points. Tables have the columns "road" and "fraction". The
    hyperparameters are lengthscale, outputscale, noise and mean.

    Args:
        roads: The road network.
        alpha: The smoothness. With 1 the kernel on a long road is exp(-d / lengthscale). With 2 it is Matern 3/2, and
            paths have a derivative. With "auto", `fit` selects the value with the higher leave-one-out log density and
            reports both in `selection`. `condition` without a fit then uses 1.
        boundary: The condition at free ends of roads. With "neumann", the derivative is zero. With "stationary", roads
            continue without an end. With "open", there is no condition, as in MetricGraph without its correction. See
            `graphs.RoadField`.
        lengthscale: Starting value, in the units of the roads' lengths. If None, several are compared.
        outputscale: Starting value of the variance on a long road. If None, the mean prior variance of the observed
            positions is the variance of the targets.
        noise: Starting value of the noise variance. If None, several are compared.
        likelihood: The distribution of an observation given the latent function, a name or an object of
            `rfgp.likelihoods`.
        inference: "laplace" or "variational", for likelihoods that are not Gaussian. If None, the default of the
            likelihood.
        priors: Priors of hyperparameters by name: objects with `log_prob`, or None to remove a default prior.
        seed: The seed of all random numbers. If None, one from the system.
        time_limit: As for `rfgp.GP`.

    Raises:
        InvalidArgumentError: If there are no roads, or alpha, the boundary or a starting value is invalid.

    Source: Bolin, Simas and Wallin (2024), Gaussian Whittle-Matern fields on metric graphs, Bernoulli 30(2).

    Examples:
        >>> import graphs
        >>> import rfgp
        >>> net = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 1)]], metric="euclidean")
        >>> gp = rfgp.RoadGP(net, lengthscale=1.0, outputscale=1.0, noise=0.01, seed=0)
        >>> gp.condition([(0, 0.2), (1, 0.5)], [1.0, 2.0]).predict([(0, 1.0)]).mean.shape
        (1,)
    """

    leaf = Roads

    @with_torch_defaults()
    def __init__(
        self,
        roads: graphs.RoadNetwork,
        alpha: int | str = 1,
        *,
        boundary: str = "neumann",
        lengthscale: float | None = None,
        outputscale: float | None = None,
        noise: float | None = None,
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        time_limit: str | float | None = None,
    ) -> None:
        alphas: tuple[Any, ...] = (1, 2) if alpha == "auto" else (alpha,)
        kernels = [Roads(roads, smoothness, boundary=boundary) for smoothness in alphas]
        start = starts(lengthscale=lengthscale, outputscale=outputscale, noise=noise)
        options: dict[str, Any] = {"inference": inference, "priors": priors, "seed": seed, "time_limit": time_limit}
        super().__init__(kernels[0], likelihood, start=start, **options)
        self._spec = _comparing(self.spec, kernels)


class MeshGP(GP):
    """A Gaussian process on a triangle mesh: `GP` with one kernel `kernels.Mesh`.

    Inputs are points (n, 3), or (n, 2) on a mesh of the plane. Tables have the columns "x", "y" and "z". Each point is
    projected to the nearest point of the mesh. The lengthscale is in the mesh's units, not in edges, so that a finer
    mesh changes only details. The hyperparameters are lengthscale, outputscale, noise and mean.

    Args:
        field: A mesh, a `trimesh.Scene`, the path of a file, or a `graphs.MeshField`.
        alpha: The smoothness, from 1 to 6. With 2 paths are continuous, with 3 and more they have derivatives. With
            "auto", `fit` selects 2, 3 or 4 by the leave-one-out log density and reports all in `selection`. `condition`
            without a fit then uses 2. If None, that of the `graphs.MeshField`, or 2.
        within: The largest distance of a point from the surface, in the mesh's units. Points farther away raise an
            error, and math.inf allows any distance. If None, a tenth of the diagonal of the mesh's bounding box.
        lengthscale: Starting value, in the mesh's units. If None, several are compared.
        outputscale: Starting value of the variance on a large flat surface. If None, the mean prior variance of the
            observed points is the variance of the targets.
        noise: Starting value of the noise variance. If None, several are compared.
        likelihood: As for `RoadGP`.
        inference: As for `RoadGP`.
        priors: As for `RoadGP`.
        seed: The seed of all random numbers. If None, one from the system.
        time_limit: As for `rfgp.GP`.

    Raises:
        InvalidArgumentError: If field is neither a field nor a mesh, alpha differs from that of the field, or within
            is not positive.
        GraphError: If the mesh is invalid, or alpha is out of range.

    Source: Lindgren, Rue and Lindstrom (2011), An explicit link between Gaussian fields and Gaussian Markov random
    fields: the stochastic partial differential equation approach.

    Examples:
        >>> import rfgp
        >>> import trimesh
        >>> ball = trimesh.creation.icosphere(2)
        >>> gp = rfgp.MeshGP(ball, within=0.05, lengthscale=1.0, outputscale=1.0, noise=0.01, seed=0)
        >>> gp = gp.condition(ball.vertices[:20], ball.vertices[:20, 2])
        >>> gp.predict([[0.0, 0.0, 0.97]]).mean.shape  # the north pole, 0.03 below the surface
        (1,)
        >>> gp.predict([[0.0, 0.0, 0.0]])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rfgp.errors.DataError: Points must lie within 0.05 of the surface, got row 0 at a distance of 0.982...
    """

    leaf = Mesh

    @with_torch_defaults()
    def __init__(
        self,
        field: Any,
        alpha: int | str | None = None,
        *,
        within: float | None = None,
        lengthscale: float | None = None,
        outputscale: float | None = None,
        noise: float | None = None,
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        time_limit: str | float | None = None,
    ) -> None:
        start = starts(lengthscale=lengthscale, outputscale=outputscale, noise=noise)
        kernels = _mesh_kernels(field, alpha, within)
        options: dict[str, Any] = {"inference": inference, "priors": priors, "seed": seed, "time_limit": time_limit}
        super().__init__(kernels[0], likelihood, start=start, **options)
        self._spec = _comparing(self.spec, kernels)

    @property
    def within(self) -> float:
        """The largest distance of a point from the surface, in the mesh's units."""
        ((factor,),) = (term.factors for term in self.kernel.terms())
        assert isinstance(factor.domain, MeshDomain)
        return factor.domain.limit


def _mesh_kernels(field: Any, alpha: int | str | None, within: float | None) -> list[Mesh]:
    """Return the kernels on a mesh for each alpha to compare, with the warnings of the mesh once.

    The highest alpha warns, since it leaves out the most thin faces.
    """
    is_auto = isinstance(alpha, str) and alpha == "auto"
    if isinstance(field, graphs.MeshField) and not is_auto and alpha not in (None, field.alpha):
        raise InvalidArgumentError(f"alpha must be that of the MeshField, {field.alpha}, or 'auto', got {alpha!r}.")
    if not is_auto:
        usual: Any = 2 if alpha is None else alpha
        return [Mesh(field, usual, within=within)]
    read = field if isinstance(field, graphs.MeshField) else graphs.MeshField(field, _ALPHAS[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.GraphWarning)
        return [Mesh((read.vertices, read.faces), other, within=within) for other in _ALPHAS]


def _comparing(spec: ModelSpec, kernels: Sequence[Roads] | Sequence[Mesh]) -> ModelSpec:
    """Return the specification of a model whose `fit` selects one of several kernels that differ in alpha."""
    if len(kernels) == 1:
        return spec
    named: dict[str, Kernel] = {f"alpha={kernel.alpha}": kernel for kernel in kernels}
    return replace(spec, options=spec.options.changed(alternatives=named))


def starts(**values: float | None) -> dict[str, float]:
    """Return the starting values from the user by name.

    Args:
        **values: The starting values by name. If one is None, it is left out.
    """
    return {name: value for name, value in values.items() if value is not None}
