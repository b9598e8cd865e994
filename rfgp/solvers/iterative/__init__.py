"""Conjugate gradients and draws for features, walks, sparse precisions and latent neighbors."""

from rfgp.solvers.iterative.latent import LatentSolver as LatentSolver
from rfgp.solvers.iterative.latent import prefers_latent as prefers_latent
from rfgp.solvers.iterative.posterior import IterativePosterior as IterativePosterior
from rfgp.solvers.iterative.solver import IterativeSolver as IterativeSolver
