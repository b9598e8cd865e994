"""The loops of the sparse Cholesky factorization, imported on first use to delay numba."""

from graphs.cholesky.compiled.blas import ADDRESSES as ADDRESSES
from graphs.cholesky.compiled.factoring import factorize as factorize
from graphs.cholesky.compiled.factoring import sum_of_logarithms as sum_of_logarithms
from graphs.cholesky.compiled.fronts import panel_rows as panel_rows
from graphs.cholesky.compiled.fronts import peaks as peaks
from graphs.cholesky.compiled.fronts import scatter_indices as scatter_indices
from graphs.cholesky.compiled.fronts import supernode_tree as supernode_tree
from graphs.cholesky.compiled.fronts import supernodes as supernodes
from graphs.cholesky.compiled.inverting import invert as invert
from graphs.cholesky.compiled.solving import backward as backward
from graphs.cholesky.compiled.solving import forward as forward
from graphs.cholesky.compiled.tree import column_counts as column_counts
from graphs.cholesky.compiled.tree import elimination_tree as elimination_tree
from graphs.cholesky.compiled.tree import peeled as peeled
from graphs.cholesky.compiled.tree import postorder as postorder
