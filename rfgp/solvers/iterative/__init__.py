"""Conjugate gradients and draws for features, walks, sparse precisions and latent neighbors."""

from rfgp.solvers.iterative.solver import IterativePosterior as IterativePosterior
from rfgp.solvers.iterative.solver import IterativeSolver as IterativeSolver
from rfgp.solvers.iterative.solver import LatentSolver as LatentSolver
from rfgp.solvers.iterative.solver import prefers_latent as prefers_latent
