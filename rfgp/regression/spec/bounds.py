"""Bounds on the log marginal likelihood of the exact kernel."""

from dataclasses import replace

from rfgp.errors import InvalidArgumentError
from rfgp.regression.base_spec import mean_and_noise
from rfgp.regression.spec.changes import spec_of
from rfgp.regression.state import GPState
from rfgp.solvers.lowrank import EvidenceBounds, LinearModel, evidence_bounds


def exact_evidence_bounds(state: GPState) -> EvidenceBounds:
    """Return bounds on the log marginal likelihood of the exact kernel, in user units.

    Args:
        state: The state of the model, with rows.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the likelihood is not Gaussian, or a term has no bounds.
    """
    spec, rows = spec_of(state), state.require_rows(purpose="evidence_bounds")
    if not spec.is_gaussian:
        raise InvalidArgumentError(
            f"evidence_bounds requires a Gaussian likelihood, got {spec.options.likelihood!r}. Compare "
            "log_marginal_likelihood() with that of exact() on some of the rows."
        )
    pairs = zip(spec.terms, spec.term_priors, strict=True)
    bounding = {term.name: spec.approximations[term.name].vfe_counterpart(prior) for term, prior in pairs}
    kept = tuple(prior for prior in bounding.values() if prior is not None)
    values = state.hyperparameters.detached()
    prior = replace(spec, term_priors=kept).prior(values)
    wrong = [name for name, prior in bounding.items() if prior is None]
    wrong += [name for block in prior.blocks if block not in prior.weights for name in block.names]
    if wrong:
        raise InvalidArgumentError(
            "evidence_bounds requires inducing points, or exact terms of finitely many functions, got "
            f"{spec.approximations[wrong[0]]!r} for the term {wrong[0]!r}. Use "
            "with_approximation(rfgp.InducingPoints())."
        )
    model = LinearModel(prior.dense, rows, *mean_and_noise(values))
    return evidence_bounds(model, state.scaling.targets.log_jacobian(rows.count))
