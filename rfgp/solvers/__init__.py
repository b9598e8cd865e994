"""Solvers of Gaussian regression on a sum of latent blocks, one for each structure of the prior."""

from rfgp.solvers.role import Inference as Inference
from rfgp.solvers.role import Posterior as Posterior
from rfgp.solvers.role import Solver as Solver
from rfgp.solvers.role import WarmStart as WarmStart
