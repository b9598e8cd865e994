"""Couplings: joint laws of m frequencies, each of which follows the spectral law."""

from rfgp.couplings.coupling import Coupling as Coupling
from rfgp.couplings.frequencies import Frequencies as Frequencies
from rfgp.couplings.independent import IID as IID
from rfgp.couplings.orthogonal import Orthogonal as Orthogonal
from rfgp.couplings.orthogonal import Pairwise as Pairwise
from rfgp.couplings.registry import by_name as by_name
from rfgp.couplings.registry import name_of as name_of
from rfgp.couplings.registry import names as names
