"""Equispaced Fourier grids, in code lattices: features, with sums over rows by non-uniform fast Fourier transforms."""

from rfgp.lattices.design import Lattice, LatticePlan, Modes, SpectralProduct, distance_at_correlation, plan_lattice

__all__ = ["Lattice", "LatticePlan", "Modes", "SpectralProduct", "distance_at_correlation", "plan_lattice"]
