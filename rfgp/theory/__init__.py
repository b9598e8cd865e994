"""Theory of random features: variances, the costs of couplings, and the required number of frequencies."""

from rfgp.theory.kernels import PairsError as PairsError
from rfgp.theory.kernels import independent_variance as independent_variance
from rfgp.theory.kernels import kernel_error as kernel_error
from rfgp.theory.kernels import orthogonal_moment as orthogonal_moment
from rfgp.theory.kernels import orthogonality_gap as orthogonality_gap
from rfgp.theory.kernels import pairs_error as pairs_error
from rfgp.theory.kernels import pairwise_moment as pairwise_moment
from rfgp.theory.kernels import required_num_frequencies as required_num_frequencies
from rfgp.theory.kernels import rotated_error as rotated_error
from rfgp.theory.kernels import rotated_moments as rotated_moments
from rfgp.theory.kernels import simplex_moment as simplex_moment
from rfgp.theory.kernels import variance as variance
from rfgp.theory.softmax import angular_moments as angular_moments
from rfgp.theory.softmax import bipolar_variance as bipolar_variance
from rfgp.theory.softmax import exponential_covariance as exponential_covariance
from rfgp.theory.softmax import gaussian_moments as gaussian_moments
from rfgp.theory.softmax import softmax_variance as softmax_variance
