"""The names that options accept, without imports of large packages; a test compares them with those of the library."""

KERNELS = (
    "RBF",
    "Matern",
    "RationalQuadratic",
    "Stationary",
    "Periodic",
    "Harmonics",
    "Linear",
    "Polynomial",
    "Constant",
    "Group",
    "Categorical",
    "Coregionalization",
    "Additive",
)
OBJECT_KERNELS = ("Nodes", "Roads", "Mesh")
"""Kernels of graphs, roads and meshes, which a text cannot hold."""
APPROXIMATIONS = (
    "Exact",
    "RandomFeatures",
    "EquispacedFourier",
    "InducingPoints",
    "Vecchia",
    "SparsePrecision",
    "RandomWalks",
    "Chebyshev",
    "Taylor",
    "TruncatedSpectrum",
    "RationalPrecision",
)
LIKELIHOODS = (
    "gaussian",
    "bernoulli",
    "categorical",
    "poisson",
    "negative-binomial",
    "student-t",
    "heteroscedastic",
    "gamma",
)
INFERENCES = ("laplace", "variational")
GRAPH_KERNELS = (
    "diffusion",
    "regularized-laplacian",
    "matern",
    "random-walk",
    "inverse-cosine",
    "modulated",
    "power-series",
    "spectral",
    "free",
)
GRAPH_FEATURES = ("auto", "walks", "chebyshev", "taylor", "spectrum", "rational", "precision", "exact")
FIELD = "whittle-matern"
"""The process on a surface or on roads, instead of a kernel of the graph."""
METRICS = ("haversine", "euclidean")
WEIGHTS = ("unit", "edge-length", "cotangent")
NODES = ("faces", "vertices")
BOUNDARIES = ("neumann", "stationary", "open")
MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb", ".vtk", ".vtu", ".msh")
ROAD_SUFFIXES = (".rda", ".geojson", ".json")
ROAD_DUPLICATES = ("parallel", "merge")
HOLDOUTS = ("random", "last")
RESULTS = ("gp_mean", "gp_sd", "gp_observed_sd", "gp_low", "gp_high")
"""Properties that `rfgp traffic` writes."""


def is_expression(kernel: str) -> bool:
    """Return whether a kernel is a sum or product of terms, and no name.

    Args:
        kernel: The kernel as text.

    Examples:
        >>> is_expression("Roads() + Linear(maxspeed)"), is_expression("diffusion")
        (True, False)
    """
    return "(" in kernel
