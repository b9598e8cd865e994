"""Immutable states of models: rows under a prior at given hyperparameters, and specifications."""

from rfgp.regression.base_spec import BaseSpec as BaseSpec
from rfgp.regression.base_spec import Member as Member
from rfgp.regression.base_spec import mean_and_noise as mean_and_noise
from rfgp.regression.calibration import Calibration as Calibration
from rfgp.regression.calibration import calibrated_ends as calibrated_ends
from rfgp.regression.calibration import calibration as calibration
from rfgp.regression.integrals import integrated as integrated
from rfgp.regression.report import FitReport as FitReport
from rfgp.regression.report import Stage as Stage
from rfgp.regression.selection_report import Budget as Budget
from rfgp.regression.selection_report import Score as Score
from rfgp.regression.selection_report import SelectionReport as SelectionReport
from rfgp.regression.selection_report import Trial as Trial
from rfgp.regression.state import GPState as GPState
from rfgp.regression.state import begin as begin
from rfgp.regression.state import initial_state as initial_state
from rfgp.regression.updating import conditioned as conditioned
from rfgp.regression.updating import extended as extended
from rfgp.regression.updating import reduced as reduced
from rfgp.regression.updating import solved_if_read as solved_if_read
