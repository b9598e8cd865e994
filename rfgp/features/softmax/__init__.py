"""Estimators of the softmax and the Gaussian kernel by pairs of feature maps."""

from rfgp.features.softmax.basic import Positive as Positive
from rfgp.features.softmax.basic import Trigonometric as Trigonometric
from rfgp.features.softmax.pair import FeaturePair as FeaturePair
from rfgp.features.softmax.pair import PositiveMap as PositiveMap
from rfgp.features.softmax.pair import SideMap as SideMap
from rfgp.features.softmax.pair import exact as exact
