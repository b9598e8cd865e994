"""Feature maps: modules that own a draw and evaluate Phi."""

from rfgp.features import softmax as softmax
from rfgp.features.euclidean import Fourier as Fourier
from rfgp.features.euclidean import Laplace as Laplace
from rfgp.features.euclidean import by_name as by_name
from rfgp.features.euclidean import names as names
from rfgp.features.inducing import Nystrom as Nystrom
from rfgp.features.walks import WalkFeatures as WalkFeatures
from rfgp.features.walks import kernel_function as kernel_function
