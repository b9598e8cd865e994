"""Which family a user's choices name."""

from dataclasses import fields
from typing import Any

from rfgp import features as feature_maps
from rfgp.errors import InvalidArgumentError
from rfgp.regression.table.features import FeatureFamily
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.local import LocalFamily
from rfgp.regression.table.options import FeatureOptions, KernelOptions, LocalOptions

TableFamily = FeatureFamily | KernelFamily | LocalFamily


def kind_of(features: str | None) -> type[KernelOptions]:
    """Return the options of a kind of features, of "exact" for the exact kernel, or of None for a local process alone.

    Raises:
        InvalidArgumentError: there is no such kind.
    """
    if features is None:
        return LocalOptions
    if features == "exact":
        return KernelOptions
    if features not in feature_maps.names():
        known = ", ".join((*feature_maps.names(), "exact"))
        raise InvalidArgumentError(f"There are no features {features!r}; known are {known}, and None for none.")
    return FeatureOptions


def options_of(**chosen: Any) -> KernelOptions:
    """Return the options among all that may be chosen of tables; those of other kinds of features are left out.

    Raises:
        InvalidArgumentError: there are no such features, or an option cannot be taken.
    """
    kind = kind_of(chosen["features"])
    names = {field.name for field in fields(kind) if field.init}
    return kind(**{name: value for name, value in chosen.items() if name in names})


def family_of(options: KernelOptions) -> TableFamily:
    """Return the family of options, before anything is drawn."""
    if isinstance(options, LocalOptions):
        return LocalFamily(options)
    if not isinstance(options, FeatureOptions):
        return KernelFamily(options)
    features = FeatureFamily(options)
    return features if options.local is None else LocalFamily(options, features)
