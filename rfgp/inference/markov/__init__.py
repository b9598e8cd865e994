"""Inference through sparse precisions: exact, by sparse Cholesky factors."""

from rfgp.inference.markov.evidence import MarkovEvidence as MarkovEvidence
from rfgp.inference.markov.posterior import MarkovPosterior as MarkovPosterior
from rfgp.inference.markov.prior import MarkovPrior as MarkovPrior
