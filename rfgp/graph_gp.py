"""Gaussian processes on the nodes of a graph, on surfaces and on roads."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import graphs
from graphs.graph import check_graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from rfgp import approximations, random
from rfgp.approximations.nodes import (
    NONZEROS_PER_WALKER,
    NodeFeatures,
    has_small_precision,
    make_features,
    nodes_of,
)
from rfgp.approximations.planning import AUTO
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning, arguments
from rfgp.gp import GP
from rfgp.kernels import Kernel, Mesh, Nodes, Roads
from rfgp.kernels.fields import MeshDomain
from rfgp.likelihoods import Likelihood
from rfgp.limits import limits
from rfgp.models import FitReport
from rfgp.models.graphs import FeatureCheck, check_features, features_of
from rfgp.models.spec import ModelSpec
from rfgp.parameters import Hyperprior
from rfgp.threads import computed
from rfgp.torch_context import with_torch_defaults

# --- Gaussian processes on surfaces and on roads: `GP` of one Whittle-Matern field -----------------------------------

_ALPHAS = (2, 3, 4, math.inf)
"""The orders that `MeshGP` averages."""


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
            paths have a derivative. With "auto", `fit` averages both as `MeshGP` does, and reports them in
            `selection`. `condition` without a fit then uses 1.
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
        hyperparameter_posterior: As for `rfgp.GP`.

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
        hyperparameter_posterior: str = "point",
    ) -> None:
        alphas: tuple[Any, ...] = (1, 2) if alpha == "auto" else (alpha,)
        kernels = [Roads(roads, smoothness, boundary=boundary) for smoothness in alphas]
        start = starts(lengthscale=lengthscale, outputscale=outputscale, noise=noise)
        options: dict[str, Any] = {"inference": inference, "priors": priors, "seed": seed, "time_limit": time_limit}
        options["hyperparameter_posterior"] = hyperparameter_posterior
        super().__init__(kernels[0], likelihood, start=start, **options)
        self._spec = _comparing(self.spec, kernels)


class MeshGP(GP):
    """A Gaussian process on a triangle mesh: `GP` with one kernel `kernels.Mesh`.

    Inputs are points (n, 3), or (n, 2) on a mesh of the plane. Tables have the columns "x", "y" and "z". Each point is
    projected to the nearest point of the mesh. The lengthscale is in the mesh's units, not in edges, so that a finer
    mesh changes only details. The hyperparameters are lengthscale, outputscale, noise and mean.

    By default, `fit` fits the orders 2, 3, 4 and math.inf and averages them. Their weights are in proportion to their
    maximized marginal likelihoods, and orders with a weight below 0.001 are dropped. An average takes the sum of its
    members' seconds per prediction and space in a file, has no single terms and cannot draw functions. `members` has
    the models. `gp.members[0][1]` is the one with the largest weight, and a number for `alpha` gives one model. If the
    likelihood is not Gaussian, or there are several outputs, the order with the highest leave-one-out log density is
    kept.

    Args:
        field: A mesh, a `trimesh.Scene`, the path of a file, or a `graphs.MeshField`.
        alpha: The smoothness, from 1 to 6, or math.inf for the heat kernel (see `kernels.Mesh`). With 2 paths are
            continuous, with 3 and more they have derivatives. With "auto", `fit` averages 2, 3, 4 and math.inf and
            reports all in `selection`. `condition` without a fit then uses 2. If None, that of a `graphs.MeshField`,
            and otherwise "auto".
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
        hyperparameter_posterior: As for `rfgp.GP`.

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
        alpha: float | str | None = None,
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
        hyperparameter_posterior: str = "point",
    ) -> None:
        start = starts(lengthscale=lengthscale, outputscale=outputscale, noise=noise)
        kernels = _mesh_kernels(field, alpha, within)
        options: dict[str, Any] = {"inference": inference, "priors": priors, "seed": seed, "time_limit": time_limit}
        options["hyperparameter_posterior"] = hyperparameter_posterior
        super().__init__(kernels[0], likelihood, start=start, **options)
        self._spec = _comparing(self.spec, kernels)

    @property
    def within(self) -> float:
        """The largest distance of a point from the surface, in the mesh's units."""
        ((factor,),) = (term.factors for term in self.kernel.terms())
        assert isinstance(factor.domain, MeshDomain)
        return factor.domain.limit


def _mesh_kernels(field: Any, alpha: float | str | None, within: float | None) -> list[Mesh]:
    """Return the kernels on a mesh for each alpha to compare, with the warnings of the mesh once.

    The highest alpha warns, since it leaves out the most thin faces.
    """
    has_order = isinstance(field, graphs.MeshField)
    is_auto = not has_order if alpha is None else isinstance(alpha, str) and alpha == "auto"
    if has_order and not is_auto and alpha not in (None, field.alpha, math.inf):
        raise InvalidArgumentError(
            f"alpha must be that of the MeshField, {field.alpha}, or math.inf or 'auto', got {alpha!r}."
        )
    if not is_auto:
        usual: Any = field.alpha if alpha is None else alpha
        return [Mesh(field, usual, within=within)]
    read = field if has_order else Mesh(field, 4).mesh
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.GraphWarning)
        return [Mesh((read.vertices, read.faces), other, within=within) for other in _ALPHAS]


def _comparing(spec: ModelSpec, kernels: Sequence[Roads] | Sequence[Mesh]) -> ModelSpec:
    """Return the specification of a model whose `fit` averages several kernels that differ in alpha."""
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


# --- Gaussian processes on the nodes of a graph: `GP` with one kernel on nodes ---------------------------------------


class GraphGP(GP):
    """A Gaussian process on the nodes of a graph, with `kernels.Nodes`.

    Inputs are node labels (n,). A node may be observed more than once, and rows with a target of NaN are left out. The
    hyperparameters are those of the graph kernel, outputscale, noise and mean.

    With sparse features and more than 4,000 observations, systems are solved by conjugate gradients. The relative
    residual is 1e-9 for means and 1e-5 for variances and gradients. The log marginal likelihood then has a standard
    error, `fit_report.likelihood_error`.

    Args:
        graph: The graph.
        kernel: A graph kernel, whose parameters are the starting values, or the name of one. For a name, a fit
            compares several starting values.
        features: One of

            - "walks": random walks.
            - "chebyshev" or "taylor": polynomials of U.
            - "spectrum": the eigenvectors of the smallest eigenvalues of the Laplacian.
            - "exact": all eigenvectors.
            - "precision": the sparse precision of a kernel of integer order (`GraphKernel.precision`), which is exact.
              Meshes, roads and grids may have 10^6 nodes.
            - "rational": a kernel of fractional order as a sum of fields with sparse precisions (Bolin, Simas and
              Xiong, 2024). `diagnose` states the relative error of its spectrum.
            - "auto": exact up to 2,000 nodes. Beyond that, the features that `graphs.advise` proposes: a precision if
              its factor is small enough, else those with the smallest error on a sample of nodes. They are measured at
              the starting kernel and at the fitted one. See `.approximation`.
        num_walkers: The number of walkers per node. It and the next four options are those of `graphs.sample_walks`.
            For "auto", the budget is four features of a node for each walker, or `max_nonzeros`, and the next four
            options have no effect.
        p_halt: The halting probability.
        lengths: The coupling of the walk lengths of a node.
        step_coupling: The coupling of the steps of a node's walkers.
        exact_hops: The number of hops that are computed exactly: an integer, a `graphs.HopRule`, or "auto" for at most
            four non-zeros a row for each walker. A rule is applied at the starting kernel and at the fitted one.
        outputscale: Starting value of the variance. If None, the mean prior variance of the observed nodes is the
            variance of the targets.
        noise: Starting value of the noise variance. If None, several are compared.
        priors: Priors of hyperparameters by name: objects with `log_prob`, or None to remove a default prior. By
            default the noise has one that keeps it from 0 (`rfgp.parameters.BoundaryAvoiding`), and the factors of
            `graphs.kernels.FreeModulation` have log-normal ones of mode 1.
        seed: The seed of all random numbers. If None, one from the system.
        degree: The degree of "chebyshev" and "taylor". If None, the largest with at most four non-zeros a row for each
            walker. For "rational" the number of fields, at most 8. If None, the fewest with a relative error of at
            most 1e-3 at the starting kernel.
        rank: The number of eigenvectors of "spectrum". If None, four for each walker.
        walk_options: Other options of `graphs.sample_walks`, such as `permutation` or `max_nonzeros`.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.
        time_limit: As for `rfgp.GP`.
        hyperparameter_posterior: As for `rfgp.GP`.

    Raises:
        InvalidArgumentError: If a name is unknown, or a degree or rank is given without features.
        GraphError: If an option of the features or the kernel is invalid.

    Examples:
        >>> import graphs
        >>> import rfgp
        >>> line = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
        >>> gp = rfgp.GraphGP(line, "diffusion", noise=0.1, seed=0).condition(["a", "b", "d"], [1.0, 2.0, 0.0])
        >>> gp.features
        'exact'
        >>> gp.predict(["c"]).mean.shape
        (1,)
        >>> gp.graph, gp.is_exact, gp.approximation, gp.fitted_kernel
        (Graph(4 nodes, 3 edges), True, Exact(), Diffusion(lengthscale=2.0))
        >>> walks = rfgp.GraphGP(line, features="walks", num_walkers=8, noise=0.1, seed=0)
        >>> walks = walks.condition(["a", "b", "d"], [1.0, 2.0, 0.0])
        >>> walks.walk_options.num_walkers, type(walks.walks).__name__, type(walks.diagnose()).__name__
        (8, 'Walks', 'FeatureCheck')
        >>> walks.exact().is_exact, walks.selection
        (True, None)
    """

    leaf = Nodes

    @with_torch_defaults()
    def __init__(
        self,
        graph: graphs.Graph,
        kernel: str | GraphKernel = "diffusion",
        features: str = "auto",
        num_walkers: int = 64,
        p_halt: Any = 0.1,
        lengths: str = "systematic",
        step_coupling: str = "stratified",
        exact_hops: int | str | graphs.HopRule = "auto",
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        *,
        degree: int | None = None,
        rank: int | None = None,
        walk_options: Mapping[str, Any] | None = None,
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
        time_limit: str | float | None = None,
        hyperparameter_posterior: str = "point",
    ) -> None:
        check_graph(graph)
        if not isinstance(features, str) or features not in (AUTO, *_KINDS):
            kinds = ", ".join(map(repr, (AUTO, *_KINDS)))
            raise InvalidArgumentError(f"features must be one of {kinds}, got {features!r}.")
        if features == AUTO and not (degree is None and rank is None):
            raise InvalidArgumentError(
                "degree and rank require features by name, got features='auto'. Use features='chebyshev' or 'spectrum'."
            )
        seed = random.resolve_seed(seed)
        walk_settings = {"p_halt": p_halt, "lengths": lengths, "step_coupling": step_coupling, "exact_hops": exact_hops}
        walks = approximations.RandomWalks(num_walkers, **walk_settings, **dict(walk_options or {}), seed=seed)
        nodes = Nodes(graph, kernel)
        budget = walks.max_nonzeros or NONZEROS_PER_WALKER * int(walks.num_walkers)
        approximation = _approximation(features, nodes, walks, budget, degree, rank)
        start = starts(outputscale=outputscale, noise=noise)
        options: dict[str, Any] = {"inference": inference, "priors": priors, "seed": seed, "time_limit": time_limit}
        options["hyperparameter_posterior"] = hyperparameter_posterior
        options["budget"] = budget if approximation == AUTO else None
        super().__init__(nodes, likelihood, approximation, start=start, **options)

    @property
    def graph(self) -> graphs.Graph:
        """The graph."""
        graph: graphs.Graph = nodes_kernel(self).graph
        return graph

    @property
    def features(self) -> str:
        """The name of the features in use, "auto" until data have determined them."""
        if not self.spec.term_priors:
            used = self.approximation
            return AUTO if used == AUTO else next(name for name, kind in _KINDS.items() if type(used) is kind)
        return "precision" if self._drawn is None else self._drawn.name

    @property
    def is_exact(self) -> bool:
        """Whether the kernel is exact, by all eigenvectors or by its sparse precision."""
        return self.features in ("exact", "precision")

    @property
    def approximation(self) -> Any:
        """The approximation in use, "auto" until data have determined it."""
        spec = self.spec
        return next(iter(spec.approximations.values()), spec.options.approximations)

    @property
    def _drawn(self) -> NodeFeatures | None:
        """The features of nodes. None before the first data, and for sparse precisions."""
        terms = self.spec.term_priors
        return features_of(terms[0]) if terms else None

    @property
    def walks(self) -> graphs.Walks | None:
        """The random walks, without their nodes. None if the features are of another kind."""
        return None if self._drawn is None else self._drawn.walks

    @property
    def feature_size(self) -> dict[str, int]:
        """The size of the features by its name, such as {"degree": 8}. Empty for walks."""
        return {} if self._drawn is None else self._drawn.size_options

    @property
    def walk_options(self) -> approximations.RandomWalks:
        """The options of random walks. For features of another kind, the defaults."""
        used = self.approximation
        return used if isinstance(used, approximations.RandomWalks) else approximations.RandomWalks()

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the current hyperparameters, without the output scale."""
        (data,) = self.spec.term_data(self.state.hyperparameters, self.num_observations)
        kernel: GraphKernel = nodes_of(data)[1]
        return kernel

    @computed
    def exact(self) -> Self:
        """Return a copy of the model without approximations.

        It has the same data and hyperparameters. Graphs of more than 2,000 nodes use the sparse precision of the kernel
        if its factor is small enough. Otherwise all eigenvectors are computed, for up to 20,000 nodes.
        """
        is_sparse = has_small_precision(self.graph, self.fitted_kernel)
        return self.with_approximation(approximations.SparsePrecision() if is_sparse else approximations.Exact())

    @computed
    def diagnose(self, *, seed: int = 0) -> FeatureCheck:
        """Estimate the error of the features without the exact process.

        Walks are compared with an independent draw of walks, on held-out observations near each other. Deterministic
        features are compared with the exact kernel on a sample of nodes. `fit` calls this and warns of large errors.

        Args:
            seed: The seed of the sample of nodes. The default is 0.

        Raises:
            NotFittedError: If there are no data.
        """
        return check_features(self.state, seed)

    def diagnosed(self, report: FitReport | None = None, fixed: tuple[str, ...] = ()) -> Iterator[Warning]:
        """Yield warnings about the model, its rows, a fit and poor features.

        Args:
            report: The report of a fit. If None, there was none.
            fixed: The names of the hyperparameters that the fit did not change.
        """
        yield from super().diagnosed(report, fixed)
        features, check = self._drawn, None
        if features is not None:
            features.check(self.fitted_kernel)
            if report is not None and not features.is_exact and self.state.rows is not None:
                check = self.diagnose()
        if check is not None and check.is_poor:
            yield PoorFeaturesWarning(
                f"The features are poor for {self.fitted_kernel} and this noise. {check}. Use more of them "
                f"({arguments('num_walkers', 'degree', 'rank')}), other ones (features='auto' measures them), or the "
                "exact process (features='exact', up to 20,000 nodes). Long lengthscales with little noise need a "
                "truncated spectrum."
            )


def nodes_kernel(model: GP) -> Nodes:
    """Return the kernel of a model on nodes.

    Args:
        model: The model.
    """
    kernel = model.spec.options.kernel
    assert isinstance(kernel, Nodes)
    return kernel


_KINDS = {
    "walks": approximations.RandomWalks,
    "chebyshev": approximations.Chebyshev,
    "taylor": approximations.Taylor,
    "spectrum": approximations.TruncatedSpectrum,
    "exact": approximations.Exact,
    "precision": approximations.SparsePrecision,
    "rational": approximations.RationalPrecision,
}
"""Approximations by the names of features."""


def _approximation(
    features: str, nodes: Nodes, walks: approximations.RandomWalks, budget: int, degree: int | None, rank: int | None
) -> Any:
    """Return the approximation of features by name, checked for the graph, or "auto" on a large graph.

    Raises:
        GraphError: If an option or the kernel does not suit the features.
    """
    graph, kernel = nodes.graph, nodes.graph_kernel
    if features in (AUTO, "walks"):
        graphs.sample_walks(graph, [], seed=0, kernel=kernel, **{**walks.options, "max_nonzeros": budget})
        if features == "walks" or graph.num_nodes > limits().max_exact_nodes:
            return walks if features == "walks" else AUTO
    if features in ("chebyshev", "taylor"):
        chosen = graphs.max_series_degree(graph, budget) if degree is None else degree
        return (approximations.Chebyshev if features == "chebyshev" else approximations.Taylor)(chosen, seed=walks.seed)
    if features == "spectrum":
        return approximations.TruncatedSpectrum(min(budget, graph.num_nodes) if rank is None else rank)
    if features == "rational":
        make_features("rational", graph, kernel, 0, {"degree": degree})
        return approximations.RationalPrecision(degree, seed=walks.seed)
    if features == "precision":
        precision_order(kernel)
        return approximations.SparsePrecision()
    return approximations.Exact()
