"""Random features and their Gaussian processes as scikit-learn estimators."""

from rfgp.sklearn.auto import TableGPRegressor as TableGPRegressor
from rfgp.sklearn.counts import RandomFeatureGPCountRegressor as RandomFeatureGPCountRegressor
from rfgp.sklearn.graph import GraphGPClassifier as GraphGPClassifier
from rfgp.sklearn.graph import GraphGPRegressor as GraphGPRegressor
from rfgp.sklearn.pipelines import make_kernel_ridge as make_kernel_ridge
from rfgp.sklearn.pipelines import make_kernel_svc as make_kernel_svc
from rfgp.sklearn.table import RandomFeatureGPClassifier as RandomFeatureGPClassifier
from rfgp.sklearn.table import RandomFeatureGPRegressor as RandomFeatureGPRegressor
from rfgp.sklearn.transform import RandomFeatures as RandomFeatures
