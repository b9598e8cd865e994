"""Errors planted in the source of every solver: a sign, a scale, something left out. The checks must find each."""

from functools import partial

import pytest
import torch
from checks import fails
from planting import planted
from solver_cases import PRIORS, solved
from solver_checks import (
    check_derivatives,
    check_draws,
    check_leave_one_out,
    check_likelihood,
    check_operator,
    check_other_targets,
    check_predictions,
    check_rows,
    check_terms,
)
from terms import table

from rfgp.blocks import weights
from rfgp.rows import blocks
from rfgp.solvers import dense
from rfgp.solvers.bordered import operator, pattern, posterior, reads, solver, system
from rfgp.solvers.lowrank import covariance, model, statistics
from rfgp.solvers.lowrank import posterior as weight_posterior
from rfgp.solvers.lowrank import solver as passes

NEW = table(7, seed=9)


def of_posterior(check, new=NEW):
    return lambda found, problem: check(found.posterior(), problem, new)


CHECKS = {
    "likelihood": check_likelihood,
    "rows": check_rows,
    "left out": check_leave_one_out,
    "targets": check_other_targets,
    "predictions": partial(check_predictions, new=NEW),
    "terms": partial(check_terms, new=NEW),
    "draws": torch.no_grad()(of_posterior(check_draws, NEW[:4])),
    "operator": of_posterior(check_operator),
    "derivatives": lambda found, problem: check_derivatives(found.posterior(), problem, NEW, problem.theta),
}
PLANTED = {
    "low-rank": [
        (weights, "self.unit.sqrt() * phi", "phi", "smooth", "plain", "terms"),
        (weights, "self.unit.sqrt() * phi", "self.unit * phi", "smooth", "plain", "predictions"),
        (model, "else block.fixed_noise + missing", "else block.fixed_noise", "fitc", "uneven", "likelihood"),
        (statistics, "(model.noise / noise_diag).sqrt()", "(model.noise / noise_diag)", "smooth", "uneven", "terms"),
        (statistics, "matrix.diagonal().add_(1)", "matrix.diagonal().add_(2)", "smooth", "plain", "predictions"),
        (passes, "+ solution.weights.square().sum(0) @ each", "", "smooth", "plain", "likelihood"),
        (passes, "+ totals.logs + bound", "+ totals.logs", "vfe", "plain", "likelihood"),
        (passes, "0.5 * spread / model.variances", "0.5 * spread", "smooth", "plain", "likelihood"),
        (passes, "+ totals.in_residual + bound", "+ bound", "fitc", "plain", "likelihood"),
        (passes, "out -= 2 * rates", "out += 2 * rates", "vfe", "plain", "likelihood"),
        (passes, "slope = slope + bound_slope", "pass", "fitc + vfe", "plain", "likelihood"),
        (passes, "beta=-float(k)", "beta=float(k)", "smooth", "plain", "likelihood"),
        (passes, "(used - len(model.rows))", "used", "smooth", "plain", "likelihood"),
        (passes, "+ k * leverage)", "- k * leverage)", "smooth", "uneven", "likelihood"),
        (passes, "left = 1 - root", "left = 1 + root", "smooth", "plain", "left out"),
        (passes, "once = 1 - 1 / block.counts()", "once = 1", "fitc", "uneven", "left out"),
        (passes, "+ model.bound_shares @ missing\n", "\n", "vfe", "plain", "left out"),
        (weight_posterior, "+ self._residual.residual_variance(inputs, projected)", "", "fitc", "plain", "predictions"),
        (
            weight_posterior,
            "known + self._residual.residual_cov",
            "known - self._residual.residual_cov",
            "vfe",
            "plain",
            "predictions",
        ),
        (
            weight_posterior,
            "known + residual.residual_cov",
            "known - residual.residual_cov",
            "fitc + linear",
            "plain",
            "terms",
        ),
        (covariance, "root if left is right else self.root(right)", "root", "smooth + linear", "plain", "terms"),
        (
            covariance,
            "solve_triangular(self.factor.mT, standard, upper=True)",
            "solve_triangular(self.factor, standard, upper=False)",
            "smooth",
            "plain",
            "draws",
        ),
        (
            passes,
            "model.completed(block, phi).noise_diag(model.noise)\n    root",
            "model.noise\n    root",
            "fitc",
            "plain",
            "derivatives",
        ),
    ],
    "dense": [
        (blocks, "-0.5 * self.each.sum()", "-0.5 * self.num_outputs", "exact", "signs", "likelihood"),
        (dense, "beta=-float(each.sum())", "beta=float(each.sum())", "exact", "plain", "likelihood"),
        (dense, "self._coefficients * each\n", "self._coefficients\n", "exact", "signs", "likelihood"),
        (dense, "in_covariance.diagonal().clone()", "0 * in_covariance.diagonal()", "walks", "plain", "likelihood"),
        (dense, "self._residual) + self._repeated", "self._residual)", "exact", "uneven", "likelihood"),
        (dense, "len(y) * _LOG_2PI", "_LOG_2PI", "exact", "plain", "likelihood"),
        (dense, "return noise * shares", "return shares", "exact", "uneven", "rows"),
        (dense, " - self._noise.detach().log().sum()", "", "exact", "plain", "rows"),
        (dense, "self._kernel.detach() @ self._coefficients", "self._coefficients", "exact", "plain", "rows"),
        (dense, "(kernel * inverse).sum(1)", "(1 - kernel * inverse).sum(1)", "exact", "plain", "targets"),
        (dense, ", 1 / self._precisions\n", ", 1 / self._precisions - self._noise\n", "exact", "plain", "left out"),
        (dense, "torch.equal(other._noise, self._noise)", "True", "exact", "plain", "targets"),
        (dense, ".double() - solved.mT @ solved", ".double() + solved.mT @ solved", "exact", "plain", "predictions"),
        (dense, "diagonal(inputs).double() - explained", "diagonal(inputs).double()", "exact", "plain", "predictions"),
        (dense, "prior - left.mT @ right", "prior + left.mT @ right", "exact + walks", "plain", "terms"),
        (dense, "phi.mT @ coefficients", "phi.mT @ self._residual", "wide", "plain", "predictions"),
        (dense, "noise_diag.sqrt()[:, None] * noise", "noise_diag[:, None] * noise", "walks", "plain", "draws"),
        (dense, "            factor = self._factorized()\n", "", "exact", "plain", "derivatives"),
        (covariance, "phi.square().sum(1) - explained", "phi.square().sum(1)", "wide", "plain", "predictions"),
        (covariance, "right.mT - (left @ self", "right.mT + (left @ self", "wide + linear", "plain", "terms"),
        (covariance, "self.rows @ z + e", "self.rows @ z", "wide", "plain", "draws"),
    ],
    "bordered": [
        (solver, "[found.in_border, ", "[0 * found.in_border, ", "smooth + field", "plain", "likelihood"),
        (
            system,
            "counted @ self.weights.mT - k",
            "counted @ self.weights.mT + k",
            "smooth + field",
            "plain",
            "likelihood",
        ),
        (
            system,
            "torch.cat([left, k * self.half",
            "torch.cat([left, 0 * self.half",
            "smooth + field",
            "plain",
            "likelihood",
        ),
        (system, "math.log(latent.variance) - prior", "math.log(latent.variance)", "field", "plain", "likelihood"),
        (system, "_size(latent) * math.log(latent.variance)", "0", "groups", "plain", "rows"),
        (
            system,
            "entries(latent.values) / latent.variance",
            "entries(latent.values)",
            "groups",
            "plain",
            "predictions",
        ),
        (system, "float(own @ prior) - k", "float(own @ prior) + k", "groups", "plain", "likelihood"),
        (
            system,
            "pull_back(latent.values, own) / latent.variance",
            "pull_back(latent.values, own)",
            "field",
            "plain",
            "likelihood",
        ),
        (system, "squares + (self.values * self._pulled).sum(0)", "squares", "field", "plain", "likelihood"),
        (
            system,
            "left, right = self.values * self.each,",
            "left, right = self.values,",
            "field",
            "signs",
            "likelihood",
        ),
        (system, "self.border - self.read(self.coupling)", "self.border", "smooth + field", "plain", "predictions"),
        (system, "torch.equal(noise, self.noise)", "True", "field + groups", "plain", "targets"),
        (system, "out[some] = np.square", "out[some] = np.abs", "field + groups", "plain", "predictions"),
        (system, "[self.reads, reads]", "[self.reads, 0 * reads]", "field + groups", "plain", "operator"),
        (pattern, "out[places] += part", "out[places] += 2 * part", "field + groups", "plain", "predictions"),
        (reads, "for block in prior.kernels", "for block in ()", "exact + field", "plain", "predictions"),
        (operator, "scaled - torch", "scaled + torch", "field", "plain", "operator"),
        (
            solver,
            "noise - self.system.row_variances",
            "noise + self.system.row_variances",
            "field",
            "plain",
            "left out",
        ),
        (solver, "variance + self._missing.detach()", "variance", "fitc + groups", "uneven", "left out"),
        (solver, "fixed_noise=noisy if", "fixed_noise=0 * noisy if", "fitc + groups", "plain", "likelihood"),
        (solver, "self._repeated + self._bound", "self._repeated", "vfe + groups", "plain", "likelihood"),
        (solver, "rows.each.sum() * (counts", "rows.num_outputs * (counts", "vfe + groups", "signs", "likelihood"),
        (posterior, "known + self._residual", "known + 0 * self._residual", "fitc + groups", "plain", "predictions"),
        (posterior, "self.dense - torch", "self.dense + torch", "smooth + field", "plain", "predictions"),
        (
            posterior,
            "out = out + torch.from_numpy(products",
            "out = out - torch.from_numpy(products",
            "field + groups",
            "plain",
            "terms",
        ),
        (posterior, "dense * self.weights.of(self.terms)", "dense", "smooth + groups", "plain", "terms"),
        (
            posterior,
            "self._between(left, right) + residual",
            "self._between(left, right) - residual",
            "fitc + groups",
            "plain",
            "terms",
        ),
        (
            posterior,
            "repeat(1, count) - system.coupling",
            "repeat(1, count) + system.coupling",
            "smooth + field",
            "plain",
            "draws",
        ),
        (posterior, "self.system if not self._moves else None", "self.system", "refined field", "plain", "terms"),
    ],
}


def is_found(name, terms, kind, check):
    return fails(CHECKS[check], *solved(name, terms.split(" + "), kind))


@pytest.mark.parametrize("name", PRIORS)
def test_planted_errors_are_found(name):
    survivors = []
    for module, right, wrong, *case in PLANTED[name]:
        assert not is_found(name, *case), case
        with planted(module, right, wrong):
            survivors += [] if is_found(name, *case) else [f"{module.__name__}: {right} -> {wrong}"]
    assert survivors == []
