"""Pure functions from a model state and a plan to the fitted state and a report.

Words that the modules use:

    basis           the drawn part of an approximation, such as frequencies, inducing points or a grid
    dotted name     the name of a hyperparameter with its term, such as "local.lengthscale"
    raw             the unconstrained logarithm of a hyperparameter
    profiled        maximized in closed form given the others, as common factors of all variances are
    lattice         the equispaced Fourier grid of `rfgp.EquispacedFourier`, with a mode for each pair of features
    pool            the rows from which subsets are drawn
    screened        compared at several starting values by a few steps on few rows
    scoring         Newton's method with the Fisher or the average information in place of the Hessian
"""

from rfgp.fitting.maximize import Deadline as Deadline
from rfgp.fitting.maximize import Plan as Plan
from rfgp.fitting.maximize import ended_early as ended_early
from rfgp.fitting.maximize import maximize as maximize
from rfgp.fitting.progress import Callback as Callback
from rfgp.fitting.progress import Progress as Progress
from rfgp.fitting.progress import Reporter as Reporter
from rfgp.fitting.progress import fingerprint as fingerprint
from rfgp.fitting.progress import open_checkpoint as open_checkpoint
from rfgp.fitting.terms import fit_terms as fit_terms
from rfgp.models.report import TIME_OVER as TIME_OVER
