"""Posteriors of latent functions given rows, and predictions in the user's units."""

from rfgp.inference.distributions import MarginalDistribution as MarginalDistribution
from rfgp.inference.mixture import MixturePrediction as MixturePrediction
from rfgp.inference.observed import LeaveOneOut as LeaveOneOut
from rfgp.inference.observed import ObservedClasses as ObservedClasses
from rfgp.inference.observed import ObservedPrediction as ObservedPrediction
from rfgp.inference.prediction import LogNormal as LogNormal
from rfgp.inference.prediction import Prediction as Prediction
