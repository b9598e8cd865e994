"""Random-feature processes in BoTorch (`pip install 'rfgp[botorch]'`)."""

from rfgp.errors import MissingDependencyError

try:
    from rfgp.botorch.model import KernelFeatures as KernelFeatures
    from rfgp.botorch.model import RandomFeatureGP as RandomFeatureGP
except ModuleNotFoundError as error:
    raise MissingDependencyError.of("botorch", error) from error
