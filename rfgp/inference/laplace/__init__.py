"""Laplace's approximation: observations whose law given the latent function is not normal."""

from rfgp.inference.laplace.choice import laplace_evidence as laplace_evidence
from rfgp.inference.laplace.evidence import LaplaceEvidence as LaplaceEvidence
from rfgp.inference.laplace.primal import LaplaceFeatureEvidence as LaplaceFeatureEvidence
