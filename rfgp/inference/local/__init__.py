"""Features and a local process beside them: prior, what rows say, and the law of new points."""

from rfgp.inference.local.blocks import BlockedLocalEvidence as BlockedLocalEvidence
from rfgp.inference.local.blocks import is_large as is_large
from rfgp.inference.local.evidence import LocalEvidence as LocalEvidence
from rfgp.inference.local.latent import LatentEvidence as LatentEvidence
from rfgp.inference.local.latent import LatentPosterior as LatentPosterior
from rfgp.inference.local.latent import is_loud as is_loud
from rfgp.inference.local.posterior import LocalPosterior as LocalPosterior
from rfgp.inference.local.prior import LocalPrior as LocalPrior
