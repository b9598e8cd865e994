"""Models of one or two stationary kernels over all columns, from flat options as the presets have them."""

import rfgp
from rfgp.regression.spec import ModelSpec
from rfgp.regression.stationary import stationary_model


def spec_of(spectrum, approximation, local=None, local_approximation=None, *, seed=0, **options):
    """Return the specification of a model; for the arguments see `rfgp.regression.stationary.stationary_model`."""
    return ModelSpec(stationary_model(spectrum, approximation, local, local_approximation, seed=seed, **options))


def model_of(spectrum, approximation, local=None, local_approximation=None, *, seed=0, **options):
    """Return the model of a specification."""
    return rfgp.GP.of(spec_of(spectrum, approximation, local, local_approximation, seed=seed, **options))
