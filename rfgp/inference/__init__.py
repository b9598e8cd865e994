"""Inference: posteriors of latent functions given rows, and predictions in the user's units."""

from rfgp.inference.composite import HeteroscedasticPosterior as HeteroscedasticPosterior
from rfgp.inference.composite import IndependentFunctions as IndependentFunctions
from rfgp.inference.conditioned import ConditionedGP as ConditionedGP
from rfgp.inference.distributions import Distribution as Distribution
from rfgp.inference.distributions import LatentDistribution as LatentDistribution
from rfgp.inference.distributions import LinearFunctionals as LinearFunctionals
from rfgp.inference.distributions import MarginalDistribution as MarginalDistribution
from rfgp.inference.labels import ObservedClasses as ObservedClasses
from rfgp.inference.left_out import LeaveOneOut as LeaveOneOut
from rfgp.inference.mixture import MixtureDistribution as MixtureDistribution
from rfgp.inference.mixture import MixtureInference as MixtureInference
from rfgp.inference.mixture import MixtureMember as MixtureMember
from rfgp.inference.mixture import MixturePosterior as MixturePosterior
from rfgp.inference.mixture_prediction import MixturePrediction as MixturePrediction
from rfgp.inference.observed import ObservedPrediction as ObservedPrediction
from rfgp.inference.observed import observations as observations
from rfgp.inference.prediction import LogNormal as LogNormal
from rfgp.inference.prediction import Prediction as Prediction
