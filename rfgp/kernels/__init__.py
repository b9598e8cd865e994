"""Kernels: covariance functions as immutable values that `+` and `*` compose."""

from rfgp.kernels.fields import Mesh as Mesh
from rfgp.kernels.fields import Nodes as Nodes
from rfgp.kernels.fields import Roads as Roads
from rfgp.kernels.kernel import Kernel as Kernel
from rfgp.kernels.kernel import Sum as Sum
from rfgp.kernels.levels import Categorical as Categorical
from rfgp.kernels.levels import Constant as Constant
from rfgp.kernels.levels import Coregionalization as Coregionalization
from rfgp.kernels.levels import Group as Group
from rfgp.kernels.levels import Linear as Linear
from rfgp.kernels.levels import Polynomial as Polynomial
from rfgp.kernels.parsing import parse as parse
from rfgp.kernels.role import ColumnSummary as ColumnSummary
from rfgp.kernels.role import Term as Term
from rfgp.kernels.stationary import RBF as RBF
from rfgp.kernels.stationary import Additive as Additive
from rfgp.kernels.stationary import Centered as Centered
from rfgp.kernels.stationary import Harmonics as Harmonics
from rfgp.kernels.stationary import Matern as Matern
from rfgp.kernels.stationary import Periodic as Periodic
from rfgp.kernels.stationary import RationalQuadratic as RationalQuadratic
from rfgp.kernels.stationary import Sphere as Sphere
from rfgp.kernels.stationary import Stationary as Stationary
from rfgp.kernels.wandering import IntegratedWiener as IntegratedWiener
from rfgp.kernels.wandering import Wiener as Wiener
