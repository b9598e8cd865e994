"""Approximations of the terms of a kernel, as immutable values."""

from rfgp.approximations.exact import Exact as Exact
from rfgp.approximations.exact import SparsePrecision as SparsePrecision
from rfgp.approximations.fourier import EquispacedFourier as EquispacedFourier
from rfgp.approximations.fourier import RandomFeatures as RandomFeatures
from rfgp.approximations.inducing_points import InducingPoints as InducingPoints
from rfgp.approximations.inducing_points import Vecchia as Vecchia
from rfgp.approximations.nodes import Chebyshev as Chebyshev
from rfgp.approximations.nodes import RandomWalks as RandomWalks
from rfgp.approximations.nodes import RationalPrecision as RationalPrecision
from rfgp.approximations.nodes import Taylor as Taylor
from rfgp.approximations.nodes import TruncatedSpectrum as TruncatedSpectrum
from rfgp.approximations.planning import parse as parse
from rfgp.approximations.role import Approximation as Approximation
from rfgp.approximations.role import TermCost as TermCost
from rfgp.approximations.role import TermData as TermData
from rfgp.approximations.role import TermPrior as TermPrior
