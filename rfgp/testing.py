"""Tools for tests of code that uses the package."""

from rfgp.limits import Limits as Limits
from rfgp.limits import changed_limits as limits

__all__ = ["Limits", "limits"]
