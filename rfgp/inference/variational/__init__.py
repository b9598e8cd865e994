"""Variational inference under likelihoods that are not normal: the normal law that is nearest to the posterior."""

from rfgp.inference.variational.choice import variational_evidence as variational_evidence
from rfgp.inference.variational.evidence import VariationalEvidence as VariationalEvidence
