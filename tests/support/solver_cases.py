"""The solvers, and sums of terms that each of them serves."""

from priors import Problem

from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.chain import ChainSolver
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.iterative import IterativeSolver, LatentSolver
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.whitened import BlockedInference, WhitenedSolver


def low_rank(p):
    return LowRankSolver(LinearModel(p.prior.dense, p.rows, p.mean, p.noise))


SOLVERS = {
    "low-rank": low_rank,
    "dense": lambda p: DenseSolver(*p.given),
    "bordered": lambda p: BorderedSolver(*p.given),
    "chain": lambda p: ChainSolver(*p.given),
    "whitened": lambda p: WhitenedSolver.of(*p.given),
    "blocked": lambda p: BlockedInference(p.prior, p.rows, p.mean.detach(), p.noise.detach()),
    "latent": lambda p: LatentSolver(*p.given),
    "iterative": lambda p: IterativeSolver(*p.given),
}
"""Each as a function of a problem."""

STREAMING = ("low-rank", "blocked")
"""Those that read rows in passes, and are no `Solver` of rows in memory."""
WITHOUT_GRADIENTS = ("blocked",)
ESTIMATING = ("iterative",)
"""Those whose likelihood and gradient are estimates from draws."""
DIGITS = {"latent": 1e-7, "iterative": 1e-7}
"""Of solvers by conjugate gradients."""

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
        ("walks in time",),
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
        ("road field",),
        ("road field", "groups", "smooth"),
        ("fitc", "smooth", "groups"),
        ("vfe", "fitc", "exact", "field"),
        ("smooth", "linear", "exact", "field", "groups"),
        ("smooth", "linear", "smooth field", "groups"),
        ("smooth", "groups", "neighbors"),
        ("exact", "refined field", "neighbors"),
        ("smooth", "groups", "near"),
        ("inducing", "residual"),
        ("smooth", "inducing", "linear", "groups", "residual"),
        ("exact", "inducing", "residual"),
    ],
    "chain": [
        ("chain",),
    ],
    "whitened": [
        ("neighbors",),
        ("inducing", "residual"),
        ("smooth", "inducing", "linear", "groups", "residual"),
        ("exact", "inducing", "residual"),
        ("smooth", "fitc", "neighbors"),
        ("exact", "linear", "neighbors"),
        ("groups", "neighbors"),
        ("smooth", "field", "groups", "neighbors"),
        ("linear", "refined field", "neighbors"),
        ("near",),
        ("smooth", "groups", "neighbors", "near"),
    ],
    "blocked": [
        ("smooth", "fitc", "neighbors"),
        ("inducing", "residual"),
        ("linear", "inducing", "residual"),
        ("linear", "near", "neighbors"),
    ],
    "latent": [
        ("neighbors",),
        ("inducing", "residual"),
        ("smooth", "inducing", "linear", "groups", "residual"),
        ("smooth", "groups", "neighbors"),
        ("groups", "near"),
    ],
    "iterative": [
        ("walks",),
        ("smooth", "field", "groups", "walks"),
        ("linear", "walks in time"),
        ("fitc", "linear", "walks"),
    ],
}
"""The names of terms in `terms.TERMS`, a sum of them in each line."""


def solved(name, terms, kind="plain", **options):
    """Return a solver of the rows of a problem, and the problem."""
    problem = Problem(terms, kind, **options)
    problem.digits = max(problem.digits, DIGITS.get(name, 0.0))
    return SOLVERS[name](problem), problem
