"""Specifications and immutable states of models, and reports of their fits and selections."""

from rfgp.inference.mixture import Member as Member
from rfgp.models.report import Budget as Budget
from rfgp.models.report import Calibration as Calibration
from rfgp.models.report import FitReport as FitReport
from rfgp.models.report import Score as Score
from rfgp.models.report import SelectionReport as SelectionReport
from rfgp.models.report import Stage as Stage
from rfgp.models.report import Trial as Trial
from rfgp.models.spec import ModelSpec as ModelSpec
from rfgp.models.spec import mean_and_noise as mean_and_noise
from rfgp.models.state import GPState as GPState
from rfgp.models.state import begin as begin
from rfgp.models.state import initial_state as initial_state
from rfgp.models.variogram import Variogram as Variogram
