"""Immutable states of models: rows under a prior at given hyperparameters, and specifications."""

from rfgp.inference.mixture import Member as Member
from rfgp.regression.report import Budget as Budget
from rfgp.regression.report import Calibration as Calibration
from rfgp.regression.report import FitReport as FitReport
from rfgp.regression.report import Score as Score
from rfgp.regression.report import SelectionReport as SelectionReport
from rfgp.regression.report import Stage as Stage
from rfgp.regression.report import Trial as Trial
from rfgp.regression.spec import ModelSpec as ModelSpec
from rfgp.regression.spec import mean_and_noise as mean_and_noise
from rfgp.regression.state import GPState as GPState
from rfgp.regression.state import begin as begin
from rfgp.regression.state import initial_state as initial_state
