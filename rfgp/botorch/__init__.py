"""Random-feature processes in BoTorch (`pip install 'rfgp[botorch]'`)."""

from rfgp.errors import requires_extra

with requires_extra("botorch"):
    from rfgp.botorch.model import KernelFeatures as KernelFeatures
    from rfgp.botorch.model import RandomFeatureGP as RandomFeatureGP
