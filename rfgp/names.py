"""The names that options accept, without numpy and torch. Registries and the command line share them.

Those of graphs, meshes and roads belong to the package `graphs`; a test compares them.
"""

KERNELS = (
    "RBF",
    "Matern",
    "RationalQuadratic",
    "Stationary",
    "Sphere",
    "Periodic",
    "Harmonics",
    "Linear",
    "Polynomial",
    "Constant",
    "Group",
    "Categorical",
    "Coregionalization",
    "Additive",
    "Wiener",
    "IntegratedWiener",
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
    "zero-inflated-poisson",
    "zero-inflated-negative-binomial",
    "hurdle-poisson",
    "ordinal",
    "beta",
    "binomial",
    "weibull",
    "tobit",
    "lognormal",
)
INFERENCES = ("laplace", "variational")
POSTERIORS = ("point", "integrated", "auto")
"""The kinds of posteriors of hyperparameters."""
FEATURES = ("fourier", "laplace")
HOLDOUTS = ("random", "last")
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
METRICS = ("haversine", "euclidean")
WEIGHTS = ("unit", "edge-length", "cotangent")
NODES = ("faces", "vertices")
BOUNDARIES = ("neumann", "stationary", "open")
ROAD_DUPLICATES = ("parallel", "merge")
MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb", ".vtk", ".vtu", ".msh")
ROAD_SUFFIXES = (".rda", ".geojson", ".json")
RESULTS = ("gp_mean", "gp_sd", "gp_observed_sd", "gp_low", "gp_high")
"""Properties that are written to the features of roads."""
