"""Models: the public classes, each around an immutable model state. `.graph` and `.fields` need graphs."""

from rfgp.models.presets import ExactGP as ExactGP
from rfgp.models.presets import SparseSpectrumGP as SparseSpectrumGP
