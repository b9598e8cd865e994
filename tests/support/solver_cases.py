"""The solvers, and sums of terms that each of them serves."""

from priors import Problem

from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.iterative import IterativeSolver, LatentSolver
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.whitened import BlockedInference, WhitenedSolver


def low_rank(p):
    return LowRankSolver(LinearModel(p.prior.dense, p.rows, p.mean, p.noise))


SOLVERS = {
    "low-rank": low_rank,
    "dense": lambda p: DenseSolver(p.prior, p.rows, p.mean, p.noise),
    "bordered": lambda p: BorderedSolver(p.prior, p.rows, p.mean, p.noise),
    "whitened": lambda p: WhitenedSolver.of(p.prior, p.rows, p.mean, p.noise),
    "latent": lambda p: LatentSolver(p.prior, p.rows, p.mean, p.noise),
}
"""Each as a function of a problem."""

APART = {IterativeSolver, BlockedInference}
"""Those with tests of their own: one estimates, and one has no gradient."""

STREAMING = ("low-rank",)
"""Those that read rows in passes, and are no `Solver` of rows in memory."""

PRIORS = {
    "low-rank": [
        ("smooth",),
        ("fitc",),
        ("vfe",),
        ("smooth", "rough", "linear"),
        ("smooth", "fitc", "vfe"),
    ],
    "dense": [
        ("exact",),
        ("wide",),
        ("walks",),
        ("wide", "linear"),
        ("smooth", "linear", "exact", "walks"),
    ],
    "bordered": [
        ("field",),
        ("smooth field",),
        ("stiff field",),
        ("groups",),
        ("smooth",),
        ("field", "groups"),
        ("refined field", "smooth"),
        ("fitc", "smooth", "groups"),
        ("vfe", "fitc", "exact", "field"),
        ("smooth", "linear", "exact", "field", "groups"),
        ("smooth", "linear", "smooth field", "groups"),
    ],
    "whitened": [
        ("neighbors",),
        ("neighbors", "smooth", "linear"),
        ("neighbors", "fitc"),
        ("neighbors", "exact"),
        ("neighbors", "groups"),
        ("neighbors", "smooth", "field", "groups"),
        ("neighbors", "linear", "refined field"),
    ],
    "latent": [
        ("neighbors",),
        ("neighbors", "smooth", "linear"),
        ("neighbors", "fitc"),
        ("neighbors", "smooth", "field", "groups"),
    ],
}
"""The names of terms in `priors.TERMS`, a sum of them in each line."""


def solved(name, terms, kind="plain", **options):
    """Return a solver of the rows of a problem, and the problem."""
    problem = Problem(terms, kind, **options)
    return SOLVERS[name](problem), problem
