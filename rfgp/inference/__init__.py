"""Gaussian inference: posteriors through features or through kernels, and predictions."""

from rfgp.inference.laws import InputBlocks as InputBlocks
from rfgp.inference.laws import Law as Law
from rfgp.inference.laws import Predictor as Predictor
from rfgp.inference.laws import RowPredictor as RowPredictor
from rfgp.inference.laws import WeightPredictor as WeightPredictor
from rfgp.inference.linear import LinearModel as LinearModel
from rfgp.inference.posterior import DualPosterior as DualPosterior
from rfgp.inference.posterior import Posterior as Posterior
from rfgp.inference.posterior import RowPosterior as RowPosterior
from rfgp.inference.prediction import LeaveOneOut as LeaveOneOut
from rfgp.inference.prediction import Prediction as Prediction
from rfgp.inference.primal import PrimalPosterior as PrimalPosterior
from rfgp.inference.prior import FeaturePrior as FeaturePrior
from rfgp.inference.prior import KernelPrior as KernelPrior
from rfgp.inference.prior import posterior as posterior
from rfgp.inference.rows import ArrayRows as ArrayRows
from rfgp.inference.rows import Block as Block
from rfgp.inference.rows import DistributedRows as DistributedRows
from rfgp.inference.rows import JoinedRows as JoinedRows
from rfgp.inference.rows import Rows as Rows
from rfgp.inference.rows import gathered as gathered
