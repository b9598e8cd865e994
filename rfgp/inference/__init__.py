"""Gaussian inference: what rows say under a prior, the posterior that is kept of them, and predictions."""

from rfgp.inference.choice import evidence as evidence
from rfgp.inference.choice import iterates as iterates
from rfgp.inference.choice import restore as restore
from rfgp.inference.dense import KernelEvidence as KernelEvidence
from rfgp.inference.dense import RowEvidence as RowEvidence
from rfgp.inference.evidence import Evidence as Evidence
from rfgp.inference.laws import InputBlocks as InputBlocks
from rfgp.inference.laws import Law as Law
from rfgp.inference.laws import Posterior as Posterior
from rfgp.inference.linear import LinearModel as LinearModel
from rfgp.inference.posteriors import KernelPosterior as KernelPosterior
from rfgp.inference.posteriors import WeightPosterior as WeightPosterior
from rfgp.inference.prediction import LeaveOneOut as LeaveOneOut
from rfgp.inference.prediction import LogNormal as LogNormal
from rfgp.inference.prediction import Prediction as Prediction
from rfgp.inference.primal import FeatureEvidence as FeatureEvidence
from rfgp.inference.primal import absorb as absorb
from rfgp.inference.primal import absorbs as absorbs
from rfgp.inference.priors import FeaturePrior as FeaturePrior
from rfgp.inference.priors import KernelPrior as KernelPrior
from rfgp.inference.priors import Prior as Prior
from rfgp.inference.priors import SparsePrior as SparsePrior
from rfgp.inference.sparse import SparseEvidence as SparseEvidence
from rfgp.inference.sparse import SparsePosterior as SparsePosterior
