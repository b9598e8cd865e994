"""Which family options are of."""

from rfgp.regression.table.features import FeatureFamily
from rfgp.regression.table.inducing import InducingFamily
from rfgp.regression.table.kernel import KernelFamily
from rfgp.regression.table.local import LocalFamily
from rfgp.regression.table.options import FeatureOptions, InducingOptions, KernelOptions, LocalOptions

TableFamily = FeatureFamily | InducingFamily | KernelFamily | LocalFamily


def family_of(options: KernelOptions) -> TableFamily:
    """Return the family of options, before anything is drawn."""
    if isinstance(options, LocalOptions):
        return LocalFamily(options)
    if isinstance(options, InducingOptions):
        return InducingFamily(options)
    if not isinstance(options, FeatureOptions):
        return KernelFamily(options)
    features = FeatureFamily(options)
    return features if options.local is None else LocalFamily(options, features)
