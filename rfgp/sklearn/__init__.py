"""Gaussian processes and random features as scikit-learn estimators."""

from rfgp.errors import requires_extra

with requires_extra("sklearn"):
    from rfgp.sklearn.counts import GPCountRegressor as GPCountRegressor
    from rfgp.sklearn.gp import GPClassifier as GPClassifier
    from rfgp.sklearn.gp import GPRegressor as GPRegressor
    from rfgp.sklearn.graph import GraphGPClassifier as GraphGPClassifier
    from rfgp.sklearn.graph import GraphGPRegressor as GraphGPRegressor
    from rfgp.sklearn.pipelines import make_kernel_ridge as make_kernel_ridge
    from rfgp.sklearn.pipelines import make_kernel_svc as make_kernel_svc
    from rfgp.sklearn.transform import RandomFeatures as RandomFeatures
