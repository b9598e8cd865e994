"""Regressions as values: rows under a prior at given hyperparameters, and the families of priors."""

from rfgp.regression.family import Family as Family
from rfgp.regression.regression import Regression as Regression
from rfgp.regression.regression import begin as begin
from rfgp.regression.regression import conditioned as conditioned
from rfgp.regression.regression import extended as extended
from rfgp.regression.regression import mean_and_noise as mean_and_noise
from rfgp.regression.regression import solved_if_read as solved_if_read
from rfgp.regression.report import FitReport as FitReport
from rfgp.regression.report import Stage as Stage
from rfgp.regression.table import FeatureFamily as FeatureFamily
from rfgp.regression.table import FeatureMap as FeatureMap
from rfgp.regression.table import FeatureOptions as FeatureOptions
from rfgp.regression.table import InducingFamily as InducingFamily
from rfgp.regression.table import InducingOptions as InducingOptions
from rfgp.regression.table import KernelFamily as KernelFamily
from rfgp.regression.table import KernelOptions as KernelOptions
from rfgp.regression.table import LocalFamily as LocalFamily
from rfgp.regression.table import LocalOptions as LocalOptions
from rfgp.regression.table import TableFamily as TableFamily
from rfgp.regression.table import family_of as family_of
from rfgp.regression.table import kind_of as kind_of
from rfgp.regression.table import options_of as options_of
