"""Gaussian processes on surfaces and on roads: Whittle-Matern fields, exactly."""

from collections.abc import Mapping
from typing import Any

import graphs
from rfgp import random
from rfgp.ambient import plain
from rfgp.choosing import fit_field
from rfgp.errors import InvalidArgumentError
from rfgp.fitting import fit_nodes
from rfgp.likelihoods import Likelihood
from rfgp.models.given import options_from
from rfgp.models.process import Process
from rfgp.parameters import Hyperprior
from rfgp.regression import Choice
from rfgp.regression.fields import FieldFamily, FieldOptions, MeshDomain, RoadDomain
from rfgp.saving.fields import MESHES, ROADS


class RoadGP(Process[FieldFamily]):
    """A Gaussian process on a road network: a Whittle-Matern field on the metric graph, without approximation.

    Inputs are positions (n, 2): the number of a road, and the fraction of its length from its first point
    (`graphs.RoadNetwork.nearest` finds those of coordinates). The process is continuous along roads and over crossings,
    knows lengths and not how roads were cut into pieces, and predicts anywhere on a road. It has no features: means,
    variances, likelihoods and their gradients come from sparse Cholesky factors.

    Args:
        roads: The network.
        alpha: 1, for paths as rough as those of a diffusion (on a long road the kernel exp(-d / lengthscale)), or 2,
            for paths with a derivative (Matern 3/2); or "auto": `fit` takes the one under which observations that are
            left out are likelier, and says so in `choice`; `condition` without a fit takes 1.
        boundary: What holds at free ends: "neumann", no derivative, "stationary", roads go on for ever, or "open",
            nothing, as in MetricGraph without its correction; see `graphs.RoadField`.
        lengthscale: Starting value, in the units of the roads' lengths; None: several are compared.
        outputscale: Starting value of the variance on a long road; None: such that the prior variance of the observed
            positions is on average that of the targets.
        noise: Starting value of the noise variance; None: several are compared.
        likelihood: The law of an observation given the process, as for `rfgp.TableGP`: "normal", "bernoulli",
            "poisson", "negative-binomial", "gamma", "student-t", "heteroscedastic", or one of `rfgp.likelihoods`.
        approximation: "laplace" or "variational", as for `rfgp.TableGP`.
        priors: Log densities (objects with `log_prob`) of named hyperparameters; see `rfgp.GraphGP`.
        seed: An integer, or None for one from the system, kept as `.seed`.

    Hyperparameters: lengthscale, outputscale, noise, mean.

    Raises:
        InvalidArgumentError: no roads, or another alpha or boundary.

    Source: Bolin, Simas and Wallin (2024), "Gaussian Whittle-Matern fields on metric graphs", Bernoulli 30(2).
    """

    codec = ROADS
    strategy = staticmethod(fit_field)

    @plain()
    def __init__(
        self,
        roads: graphs.RoadNetwork,
        alpha: int | str = 1,
        *,
        boundary: str = "neumann",
        lengthscale: float | None = None,
        outputscale: float | None = None,
        noise: float | None = None,
        likelihood: str | Likelihood = "normal",
        approximation: str | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
    ) -> None:
        options = options_from(FieldOptions, {**locals(), "seed": random.resolve_seed(seed)})
        alphas: tuple[Any, ...] = (1, 2) if isinstance(alpha, str) and alpha == "auto" else (alpha,)
        domains = {f"alpha={each}": RoadDomain(graphs.RoadField(roads, each, boundary)) for each in alphas}
        first = next(iter(domains.values()))
        super().__init__(FieldFamily(first, options, candidates=domains if len(domains) > 1 else {}))

    @property
    def choice(self) -> Choice | None:
        """What alpha="auto" chose and why, in the same form as on tables; None where it was named."""
        return None if self.fit_report is None else self.fit_report.choice


class MeshGP(Process[FieldFamily]):
    """A Gaussian process on a surface: a Whittle-Matern field of linear finite elements on a triangle mesh.

    Inputs are points (n, 3), or (n, 2) on a mesh of the plane; the process there is that at the nearest point of the
    mesh, which may be no farther away than `within`. Refining a mesh changes detail alone, since the lengthscale is in
    its units, not in edges.

    Args:
        field: A `graphs.MeshField`, or what it is made of with alpha = 2: a mesh, a `trimesh.Scene` or the path of a
            file.
        within: The largest distance of a point from the surface, in the mesh's units: `fit`, `condition` and `predict`
            refuse points farther away. If None, a tenth of the diagonal of the mesh's box; math.inf allows any
            distance. It is saved with the model.
        lengthscale: Starting value, in the mesh's units; None: several are compared.
        outputscale: Starting value of the variance on a large flat surface; None: such that the prior variance of the
            observed points is on average that of the targets.
        noise: Starting value of the noise variance; None: several are compared.
        likelihood: The law of an observation given the process, as for `rfgp.TableGP`: "normal", "bernoulli",
            "poisson", "negative-binomial", "gamma", "student-t", "heteroscedastic", or one of `rfgp.likelihoods`.
        approximation: "laplace" or "variational", as for `rfgp.TableGP`.
        priors: Log densities (objects with `log_prob`) of named hyperparameters; see `rfgp.GraphGP`.
        seed: An integer, or None for one from the system, kept as `.seed`.

    Hyperparameters: lengthscale, outputscale, noise, mean.

    Raises:
        InvalidArgumentError: neither a field nor a mesh, or a limit that is no positive number; `graphs` raises its own
            for meshes.

    >>> import trimesh
    >>> ball = trimesh.creation.icosphere(2)
    >>> gp = MeshGP(ball, within=0.05, lengthscale=1.0, outputscale=1.0, noise=0.01, seed=0)
    >>> gp = gp.condition(ball.vertices[:20], ball.vertices[:20, 2])
    >>> gp.predict([[0.0, 0.0, 0.97]]).mean.shape  # the north pole, 0.03 below the surface
    (1,)
    >>> gp.predict([[0.0, 0.0, 0.0]])
    Traceback (most recent call last):
    rfgp.errors.DataError: Points must lie within 0.05 of the surface, got row 0 at a distance of 0.973...

    Source: Lindgren, Rue and Lindstrom (2011), "An explicit link between Gaussian fields and Gaussian Markov random
    fields: the stochastic partial differential equation approach".
    """

    codec = MESHES
    strategy = staticmethod(fit_nodes)

    @plain()
    def __init__(
        self,
        field: Any,
        *,
        within: float | None = None,
        lengthscale: float | None = None,
        outputscale: float | None = None,
        noise: float | None = None,
        likelihood: str | Likelihood = "normal",
        approximation: str | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
    ) -> None:
        if isinstance(field, graphs.Graph):
            raise InvalidArgumentError(
                "A graphs.MeshField or a mesh is needed, got a graph; rfgp.GraphGP takes graphs."
            )
        field = field if isinstance(field, graphs.MeshField) else graphs.MeshField(field)
        options = options_from(FieldOptions, {**locals(), "seed": random.resolve_seed(seed)})
        super().__init__(FieldFamily(MeshDomain(field, within), options))

    @property
    def within(self) -> float:
        """The largest distance of a point from the surface, in the mesh's units."""
        domain = self.family.domain
        assert isinstance(domain, MeshDomain)
        return domain.limit
