"""Equispaced Fourier grids, in code lattices: features, with sums over rows by non-uniform fast Fourier transforms."""

from rfgp.lattices.lattice import Lattice, Modes
from rfgp.lattices.planning import LatticePlan, distance_at_correlation, plan_lattice
from rfgp.lattices.spectral import SpectralProduct

__all__ = ["Lattice", "LatticePlan", "Modes", "SpectralProduct", "distance_at_correlation", "plan_lattice"]
