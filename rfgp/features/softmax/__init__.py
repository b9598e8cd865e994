"""Estimators of the softmax and the Gaussian kernel by pairs of feature maps."""

from rfgp.features.softmax import coefficients as coefficients
from rfgp.features.softmax.coefficients import Coefficient as Coefficient
from rfgp.features.softmax.pairs import Exponential as Exponential
from rfgp.features.softmax.pairs import FeaturePair as FeaturePair
from rfgp.features.softmax.pairs import Positive as Positive
from rfgp.features.softmax.pairs import PositiveMap as PositiveMap
from rfgp.features.softmax.pairs import SideMap as SideMap
from rfgp.features.softmax.pairs import Trigonometric as Trigonometric
from rfgp.features.softmax.pairs import exact as exact
from rfgp.features.softmax.pairs import matching_diagonal as matching_diagonal
from rfgp.features.softmax.recipes import Hybrid as Hybrid
from rfgp.features.softmax.recipes import angular_hybrid as angular_hybrid
from rfgp.features.softmax.recipes import between_centers as between_centers
from rfgp.features.softmax.recipes import bipolar as bipolar
from rfgp.features.softmax.recipes import clustered as clustered
from rfgp.features.softmax.recipes import gaussian_between_centers as gaussian_between_centers
from rfgp.features.softmax.recipes import gaussian_hybrid as gaussian_hybrid
