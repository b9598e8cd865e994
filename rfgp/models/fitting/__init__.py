"""Fitting: maximising a marginal likelihood over hyperparameters, and over frequencies."""

from rfgp.models.fitting.checkpoint import Journal as Journal
from rfgp.models.fitting.checkpoint import fingerprint as fingerprint
from rfgp.models.fitting.checkpoint import open_journal as open_journal
from rfgp.models.fitting.lbfgs import Plan as Plan
from rfgp.models.fitting.lbfgs import maximize as maximize
from rfgp.models.fitting.progress import Callback as Callback
from rfgp.models.fitting.progress import Progress as Progress
from rfgp.models.fitting.progress import Reporter as Reporter
from rfgp.models.fitting.report import FitReport as FitReport
from rfgp.models.fitting.report import Stage as Stage
from rfgp.models.fitting.scoring import ascend as ascend
