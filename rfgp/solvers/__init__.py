"""Solvers of Gaussian regression on a sum of latent blocks, one for each structure of the prior."""

from rfgp.solvers.choice import restore as restore
from rfgp.solvers.choice import solver_for as solver_for
from rfgp.solvers.choice import solver_in_memory as solver_in_memory
from rfgp.solvers.choice import uses_cg as uses_cg
from rfgp.solvers.role import Inference as Inference
from rfgp.solvers.role import Posterior as Posterior
from rfgp.solvers.role import Solver as Solver
from rfgp.solvers.role import WarmStart as WarmStart
