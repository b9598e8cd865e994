"""Options of models of tables, and the kernels and approximations that they stand for."""

from rfgp.regression.table.kinds import kind_of as kind_of
from rfgp.regression.table.kinds import options_of as options_of
from rfgp.regression.table.offers import Offer as Offer
from rfgp.regression.table.offers import OpenOptions as OpenOptions
from rfgp.regression.table.options import FeatureOptions as FeatureOptions
from rfgp.regression.table.options import InducingOptions as InducingOptions
from rfgp.regression.table.options import KernelOptions as KernelOptions
from rfgp.regression.table.options import LocalOptions as LocalOptions
from rfgp.regression.table.specs import is_settled as is_settled
from rfgp.regression.table.specs import model_options as model_options
from rfgp.regression.table.specs import open_options as open_options
from rfgp.regression.table.specs import table_options as table_options
