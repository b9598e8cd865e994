"""Variance-reducing couplings for random features (Reid et al. 2024): its half on graphs.

What the figures have in common is in `walks_shared`; kernels (Table 5, Figs. 3, 8, 10), PageRank (Fig. 9) and
Gaussian processes (Figs. 4, 11) are files of their own.
"""

from benchmarks.papers.couplings import walks_kernels, walks_pagerank, walks_processes
from benchmarks.record import Figure

FIGURES: dict[str, Figure] = {**walks_kernels.FIGURES, **walks_processes.FIGURES, **walks_pagerank.FIGURES}
