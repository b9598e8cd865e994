"""Sparse matrices: CSR patterns, values with gradients, and their products."""

from rfgp.sparse.products import Dense as Dense
from rfgp.sparse.products import EntryPattern as EntryPattern
from rfgp.sparse.products import KroneckerRows as KroneckerRows
from rfgp.sparse.products import Matrix as Matrix
from rfgp.sparse.products import Pattern as Pattern
from rfgp.sparse.products import Sparse as Sparse
from rfgp.sparse.products import SparseValues as SparseValues
from rfgp.sparse.products import SparsityPattern as SparsityPattern
from rfgp.sparse.products import add_outer as add_outer
from rfgp.sparse.products import gram as gram
from rfgp.sparse.products import gram_on as gram_on
from rfgp.sparse.products import multiply as multiply
from rfgp.sparse.products import product as product
from rfgp.sparse.products import quadratic_forms as quadratic_forms
from rfgp.sparse.products import row_blocks as row_blocks
from rfgp.sparse.products import sampled_outer as sampled_outer
from rfgp.sparse.products import sampled_product as sampled_product
from rfgp.sparse.products import selection as selection
from rfgp.sparse.products import times_sparse as times_sparse
from rfgp.sparse.products import times_symmetric as times_symmetric
