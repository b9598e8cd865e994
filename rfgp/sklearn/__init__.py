"""Gaussian processes and random features as scikit-learn estimators."""

from rfgp.errors import requires_extra

with requires_extra("sklearn"):
    from rfgp.sklearn.features import RandomFeatures as RandomFeatures
    from rfgp.sklearn.features import make_kernel_ridge as make_kernel_ridge
    from rfgp.sklearn.features import make_kernel_svc as make_kernel_svc
    from rfgp.sklearn.gp import GPClassifier as GPClassifier
    from rfgp.sklearn.gp import GPCountRegressor as GPCountRegressor
    from rfgp.sklearn.gp import GPRegressor as GPRegressor
    from rfgp.sklearn.graph import GraphGPClassifier as GraphGPClassifier
    from rfgp.sklearn.graph import GraphGPRegressor as GraphGPRegressor
