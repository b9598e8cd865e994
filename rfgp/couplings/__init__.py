"""Couplings: joint laws of m frequencies, each of which follows the spectral law."""

from rfgp.couplings.antithetic import Antithetic as Antithetic
from rfgp.couplings.coupling import Coupling as Coupling
from rfgp.couplings.energy import Energy as Energy
from rfgp.couplings.energy import distances_between as distances_between
from rfgp.couplings.frequencies import Frequencies as Frequencies
from rfgp.couplings.independent import IID as IID
from rfgp.couplings.low_discrepancy import Halton as Halton
from rfgp.couplings.low_discrepancy import Sobol as Sobol
from rfgp.couplings.orthogonal import Copula as Copula
from rfgp.couplings.orthogonal import Monotone as Monotone
from rfgp.couplings.orthogonal import Orthogonal as Orthogonal
from rfgp.couplings.orthogonal import Pairwise as Pairwise
from rfgp.couplings.orthogonal import Stratified as Stratified
from rfgp.couplings.radial import RadialLaw as RadialLaw
from rfgp.couplings.registry import by_name as by_name
from rfgp.couplings.registry import for_features as for_features
from rfgp.couplings.registry import name_of as name_of
from rfgp.couplings.registry import names as names
from rfgp.couplings.registry import options_of as options_of
from rfgp.couplings.simplex import Simplex as Simplex
from rfgp.couplings.simplex import SimplexPlus as SimplexPlus
