"""Which kind of options a user's choices are of."""

from dataclasses import fields
from typing import Any

from rfgp import features as feature_maps
from rfgp.errors import InvalidArgumentError
from rfgp.regression.table.options import FeatureOptions, InducingOptions, KernelOptions, LocalOptions

_OTHERS: dict[str | None, type[KernelOptions]] = {
    "nystrom": InducingOptions,
    "exact": KernelOptions,
    None: LocalOptions,
}
_COMPLETE = {
    "fourier": "of Fourier features phi(x) . phi(x) = k(x, x) already, and what they miss is no covariance",
    "laplace": "positive features miss k(x, x) in both directions, and what they miss is no covariance",
}


def kind_of(features: str | None) -> type[KernelOptions]:
    """Return the options of a kind of features, of "exact" for the exact kernel, or of None for a local process alone.

    Raises:
        InvalidArgumentError: there is no such kind.
    """
    if features is None or (isinstance(features, str) and features in _OTHERS):
        return _OTHERS[features]
    if features not in feature_maps.names():
        known = ", ".join((*feature_maps.names(), "nystrom", "exact"))
        raise InvalidArgumentError(f"There are no features {features!r}; known are {known}, and None for none.")
    return FeatureOptions


def options_of(**chosen: Any) -> KernelOptions:
    """Return the options among all that may be chosen of tables; those of other kinds of features are left out.

    Raises:
        InvalidArgumentError: there are no such features, or an option cannot be taken.
    """
    kind = kind_of(chosen["features"])
    if kind is not InducingOptions and chosen.get("learn_inducing"):
        raise InvalidArgumentError('learn_inducing=True is for features="nystrom".')
    if kind is InducingOptions and chosen.get("frequencies", "fixed") != "fixed":
        raise InvalidArgumentError("Inducing points have no frequencies to learn; they learn with learn_inducing=True.")
    if kind is not InducingOptions and chosen.get("diagonal") is not None:
        why = _COMPLETE.get(chosen["features"], "these features are the whole kernel, so nothing is missing")
        raise InvalidArgumentError(f'diagonal={chosen["diagonal"]!r} is for features="nystrom": {why}.')
    names = {field.name for field in fields(kind) if field.init}
    return kind(**{name: value for name, value in chosen.items() if name in names})
