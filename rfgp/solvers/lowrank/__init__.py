"""Bayesian linear regression on features, in passes over blocks of rows.

Notation of this folder:

    n, k          the numbers of rows and of outputs
    T, F          the numbers of terms and of features of all terms
    y             the targets, (n, k)
    phi           the features without prior scales, (n, F), `phi` in code
    s             the prior standard deviations of the weights, (F,), s_t for those of term t
    Phi = phi s   the features times their prior scales, (n, F), `scaled_phi` in code
    w             the weights, (F, k), with the prior N(0, I)
    D             the noise variances of the rows, (n,)
    A             the posterior precision of w, I + Phi^T D^-1 Phi, (F, F)

In `rfgp.solvers.lowrank.solver`, K is the exact prior covariance of the rows, (n, n), and t a trace. `w_i` is the
weight of row i, and k_t is the kernel of term t.
"""

from rfgp.solvers.lowrank.posterior import FactorCovariance as FactorCovariance
from rfgp.solvers.lowrank.posterior import LowRankPosterior as LowRankPosterior
from rfgp.solvers.lowrank.posterior import RowCovariance as RowCovariance
from rfgp.solvers.lowrank.posterior import with_noise as with_noise
from rfgp.solvers.lowrank.solver import EvidenceBounds as EvidenceBounds
from rfgp.solvers.lowrank.solver import LowRankSolver as LowRankSolver
from rfgp.solvers.lowrank.solver import RowMoments as RowMoments
from rfgp.solvers.lowrank.solver import differentiable_solution as differentiable_solution
from rfgp.solvers.lowrank.solver import evidence_bounds as evidence_bounds
from rfgp.solvers.lowrank.solver import fourier_log_likelihood as fourier_log_likelihood
from rfgp.solvers.lowrank.solver import has_fourier_features as has_fourier_features
from rfgp.solvers.lowrank.solver import left_out as left_out
from rfgp.solvers.lowrank.solver import update_gram as update_gram
from rfgp.solvers.lowrank.statistics import LinearModel as LinearModel
from rfgp.solvers.lowrank.statistics import Statistics as Statistics
from rfgp.solvers.lowrank.statistics import WeightSolution as WeightSolution
from rfgp.solvers.lowrank.statistics import accumulate_gram as accumulate_gram
from rfgp.solvers.lowrank.statistics import add_symmetric_product as add_symmetric_product
from rfgp.solvers.lowrank.statistics import best_common_scale as best_common_scale
from rfgp.solvers.lowrank.statistics import best_ratios as best_ratios
from rfgp.solvers.lowrank.statistics import block_rows as block_rows
from rfgp.solvers.lowrank.statistics import gradient_sums as gradient_sums
from rfgp.solvers.lowrank.statistics import needs_root as needs_root
from rfgp.solvers.lowrank.statistics import quadratic_form as quadratic_form
from rfgp.solvers.lowrank.statistics import quadratic_forms as quadratic_forms
from rfgp.solvers.lowrank.statistics import solve as solve
from rfgp.solvers.lowrank.statistics import summed as summed
from rfgp.solvers.lowrank.statistics import symmetrized as symmetrized
