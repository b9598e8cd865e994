"""Selection of a kernel and approximations by scores of left-out or held-out rows, and the fit of the best.

Words that the modules use:

    candidate       a kernel with approximations of its terms
    round           a fit of each remaining candidate to a number of rows, and its score; about two rounds precede the
                    fit to all rows
    score           the mean log density of left-out or held-out rows, in nats
    followup        a candidate that is scored only if another one, its parent, survives a round
    groups          rows that are held out together, as in grouped cross-validation
    warm            started at the hyperparameters of an earlier fit

A round eliminates candidates that are worse than the best by more than two standard errors and by more than 0.15 nats a
row. At most two survive if rows are held out, otherwise three.
"""

from rfgp.selection.candidates import AutoSpace as AutoSpace
from rfgp.selection.select import fit_model as fit_model
from rfgp.selection.select import run_selection as run_selection
