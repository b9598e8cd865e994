"""Approximate posteriors under likelihoods that are not Gaussian, by Gaussian sites."""

from rfgp.inference.sites.choice import infer as infer
from rfgp.inference.sites.choice import restore as restore
from rfgp.inference.sites.coupled_dense import CoupledDenseLaplace as CoupledDenseLaplace
from rfgp.inference.sites.coupled_lowrank import CoupledLowRankLaplace as CoupledLowRankLaplace
from rfgp.inference.sites.laplace import Laplace as Laplace
from rfgp.inference.sites.lowrank import LowRankLaplace as LowRankLaplace
from rfgp.inference.sites.variational import Variational as Variational
