"""Random features as GPyTorch kernels."""

from rfgp.errors import requires_extra

with requires_extra("gpytorch"):
    from rfgp.gpytorch.covariances import SparseLinearOperator as SparseLinearOperator
    from rfgp.gpytorch.covariances import SparseRootLinearOperator as SparseRootLinearOperator
    from rfgp.gpytorch.kernels import GraphFeatureKernel as GraphFeatureKernel
    from rfgp.gpytorch.kernels import RandomFeatureKernel as RandomFeatureKernel
    from rfgp.gpytorch.kernels import SpectrumKernel as SpectrumKernel
    from rfgp.gpytorch.terms import TermKernel as TermKernel
    from rfgp.gpytorch.terms import kernel_of as kernel_of
    from rfgp.sparse import SparsityPattern as SparsityPattern
