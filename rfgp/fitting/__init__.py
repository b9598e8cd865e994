"""Pure functions from a model state and a plan to the fitted state and a report.

Two words that the modules use: The basis of a fit is the drawn part of an approximation, such as frequencies, inducing
points or a grid. The dotted name of a hyperparameter has its term first, such as "local.lengthscale".
"""

from rfgp.fitting.checkpoint import fingerprint as fingerprint
from rfgp.fitting.checkpoint import open_checkpoint_log as open_checkpoint_log
from rfgp.fitting.maximize import Plan as Plan
from rfgp.fitting.maximize import maximize as maximize
from rfgp.fitting.progress import Callback as Callback
from rfgp.fitting.progress import Progress as Progress
from rfgp.fitting.progress import Reporter as Reporter
from rfgp.fitting.terms import fit_terms as fit_terms
