"""The families of tables: by random features, inducing points or the exact kernel, and with a local process."""

from rfgp.regression.table.choice import TableFamily as TableFamily
from rfgp.regression.table.choice import family_of as family_of
from rfgp.regression.table.features import FeatureFamily as FeatureFamily
from rfgp.regression.table.features import FeatureMap as FeatureMap
from rfgp.regression.table.inducing import InducingFamily as InducingFamily
from rfgp.regression.table.kernel import KernelFamily as KernelFamily
from rfgp.regression.table.kinds import kind_of as kind_of
from rfgp.regression.table.kinds import options_of as options_of
from rfgp.regression.table.local import LocalFamily as LocalFamily
from rfgp.regression.table.offers import Offer as Offer
from rfgp.regression.table.offers import OpenOptions as OpenOptions
from rfgp.regression.table.open import OpenFamily as OpenFamily
from rfgp.regression.table.open import family_for as family_for
from rfgp.regression.table.options import FeatureOptions as FeatureOptions
from rfgp.regression.table.options import InducingOptions as InducingOptions
from rfgp.regression.table.options import KernelOptions as KernelOptions
from rfgp.regression.table.options import LocalOptions as LocalOptions
