"""Spectra: the spectral measures of stationary kernels at unit scale."""

from rfgp.spectra.measures import Gaussian as Gaussian
from rfgp.spectra.measures import Matern as Matern
from rfgp.spectra.measures import ProductCauchy as ProductCauchy
from rfgp.spectra.measures import ProductLaplace as ProductLaplace
from rfgp.spectra.measures import RationalQuadratic as RationalQuadratic
from rfgp.spectra.measures import by_name as by_name
from rfgp.spectra.measures import name_of as name_of
from rfgp.spectra.measures import names as names
from rfgp.spectra.role import Spectrum as Spectrum
