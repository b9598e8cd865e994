"""Approximate posteriors under likelihoods that are not Gaussian, by Gaussian sites."""

from rfgp.inference.sites.choice import infer as infer
from rfgp.inference.sites.choice import restore as restore
from rfgp.inference.sites.newton import Laplace as Laplace
from rfgp.inference.sites.variational import Variational as Variational
from rfgp.inference.sites.weights import CoupledLowRankLaplace as CoupledLowRankLaplace
from rfgp.inference.sites.weights import LowRankLaplace as LowRankLaplace
