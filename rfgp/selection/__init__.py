"""Selection of a kernel and approximations by scores of left-out or held-out rows, and the fit of the best."""

from rfgp.selection.candidates import AutoSpace as AutoSpace
from rfgp.selection.select import fit_model as fit_model
from rfgp.selection.select import run_selection as run_selection
