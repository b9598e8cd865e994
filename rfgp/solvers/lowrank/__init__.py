"""Bayesian linear regression on features, in passes over blocks of rows."""

from rfgp.solvers.lowrank.bounds import EvidenceBounds as EvidenceBounds
from rfgp.solvers.lowrank.bounds import evidence_bounds as evidence_bounds
from rfgp.solvers.lowrank.fourier import fourier_log_likelihood as fourier_log_likelihood
from rfgp.solvers.lowrank.fourier import has_fourier_features as has_fourier_features
from rfgp.solvers.lowrank.model import LinearModel as LinearModel
from rfgp.solvers.lowrank.model import ParameterGradients as ParameterGradients
from rfgp.solvers.lowrank.model import block_rows as block_rows
from rfgp.solvers.lowrank.model import summed as summed
from rfgp.solvers.lowrank.posterior import FactorCovariance as FactorCovariance
from rfgp.solvers.lowrank.posterior import LowRankPosterior as LowRankPosterior
from rfgp.solvers.lowrank.posterior import RowCovariance as RowCovariance
from rfgp.solvers.lowrank.solver import LowRankSolver as LowRankSolver
from rfgp.solvers.lowrank.solver import update_gram as update_gram
from rfgp.solvers.lowrank.statistics import Statistics as Statistics
from rfgp.solvers.lowrank.statistics import accumulate_gram as accumulate_gram
from rfgp.solvers.lowrank.statistics import add_symmetric_product as add_symmetric_product
from rfgp.solvers.lowrank.statistics import best_common_scale as best_common_scale
from rfgp.solvers.lowrank.statistics import best_ratios as best_ratios
from rfgp.solvers.lowrank.statistics import best_scales as best_scales
from rfgp.solvers.lowrank.statistics import solve as solve
from rfgp.solvers.lowrank.statistics import symmetrized as symmetrized
