"""The specification of a model: a kernel, approximations of its terms and a likelihood, resolved on data."""

from rfgp.regression.spec.averages import approximated as approximated
from rfgp.regression.spec.averages import averaged as averaged
from rfgp.regression.spec.averages import check_average as check_average
from rfgp.regression.spec.averages import check_shares as check_shares
from rfgp.regression.spec.averages import each_changed as each_changed
from rfgp.regression.spec.averages import largest as largest
from rfgp.regression.spec.averages import parts_of_average as parts_of_average
from rfgp.regression.spec.averages import with_rows as with_rows
from rfgp.regression.spec.bounds import exact_evidence_bounds as exact_evidence_bounds
from rfgp.regression.spec.changes import block_scales as block_scales
from rfgp.regression.spec.changes import data_summary as data_summary
from rfgp.regression.spec.changes import learnable_draws as learnable_draws
from rfgp.regression.spec.changes import reassigned as reassigned
from rfgp.regression.spec.changes import some_terms as some_terms
from rfgp.regression.spec.changes import values_of_terms as values_of_terms
from rfgp.regression.spec.changes import variance_paths as variance_paths
from rfgp.regression.spec.changes import with_draws_of as with_draws_of
from rfgp.regression.spec.changes import with_learned as with_learned
from rfgp.regression.spec.freedom import degrees_of_freedom as degrees_of_freedom
from rfgp.regression.spec.options import ModelOptions as ModelOptions
from rfgp.regression.spec.spec import ModelSpec as ModelSpec
from rfgp.regression.spec.spec import restored as restored
from rfgp.regression.spec.starvation import exact_left_out as exact_left_out
from rfgp.regression.spec.starvation import starvation_warnings as starvation_warnings
