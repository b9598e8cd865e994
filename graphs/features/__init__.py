"""Features of nodes with one interface: random walks, polynomials of U, and eigenvectors."""

from graphs.features.base import NodeFeatures as NodeFeatures
from graphs.features.base import Sparsity as Sparsity
from graphs.features.base import feature_matrix as feature_matrix
from graphs.features.base import max_series_degree as max_series_degree
from graphs.features.series import SeriesFeatures as SeriesFeatures
from graphs.features.series import chebyshev_features as chebyshev_features
from graphs.features.series import chebyshev_interpolation as chebyshev_interpolation
from graphs.features.series import taylor_features as taylor_features
from graphs.features.spectrum import SpectralFeatures as SpectralFeatures
from graphs.features.spectrum import spectral_features as spectral_features
from graphs.features.walks import Walks as Walks
from graphs.features.walks import sample_walks as sample_walks
