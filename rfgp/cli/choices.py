"""Names that options take, known before anything heavy is loaded; a test compares them with the library's."""

FEATURES = ("fourier", "laplace", "nystrom", "exact")
"""Of tables, without "none" and "auto"."""
KINDS = ("matern12", "matern32", "matern52", "gaussian")
"""Kernels of a local process."""
SPECTRA = ("gaussian", "matern", "rational-quadratic", "product-laplace", "product-cauchy")
LIKELIHOODS = (
    "normal",
    "bernoulli",
    "categorical",
    "poisson",
    "negative-binomial",
    "student-t",
    "heteroscedastic",
    "gamma",
)
COUPLINGS = (
    "energy",
    "iid",
    "halton",
    "sobol",
    "digital-net",
    "orthogonal",
    "pairwise",
    "monotone",
    "shared-norms",
    "stratified",
    "copula",
    "simplex",
    "simplex-plus",
    "simplex-optimized",
    "constant-norm",
    "structured",
    "fast-orthogonal",
    "fast-simplex",
    "fastfood",
    "circulant",
    "near-orthogonal",
    "spherical-radial",
    "leverage",
    "adapted",
)
"""Of frequencies; each may end in "-antithetic"."""
FREQUENCIES = ("fixed", "learned")
DIAGONALS = ("fitc", "vfe")
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
METRICS = ("haversine", "euclidean")
WEIGHTS = ("unit", "edge-length", "cotangent")
NODES = ("faces", "vertices")
BOUNDARIES = ("neumann", "stationary", "open")
MESH_SUFFIXES = (".stl", ".ply", ".obj", ".off", ".glb", ".vtk", ".msh")
ROAD_SUFFIXES = (".rda", ".geojson", ".json")
ROAD_DUPLICATES = ("parallel", "merge")
HOLDOUTS = ("random", "last")
RESULTS = ("gp_mean", "gp_sd")
"""Properties that `rfgp traffic` writes."""
