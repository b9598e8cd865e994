"""Energy couplings: jointly drawn frequencies that repel each other, for any m."""

from rfgp.couplings.energy.coupling import Energy as Energy
from rfgp.couplings.energy.potential import distances_between as distances_between
