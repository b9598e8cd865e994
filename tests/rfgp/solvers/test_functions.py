"""Functions drawn from posteriors, their derivatives, and covariances that are never formed."""

import pytest
import torch
from priors import table
from solver_cases import solved
from solver_checks import check_derivatives, check_draws, check_operator

import rfgp

NEW = table(5, seed=9)


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("low-rank", ("smooth", "linear")),
        ("dense", ("wide",)),
        ("dense", ("walks",)),
        ("bordered", ("field",)),
        ("bordered", ("smooth", "linear", "field", "groups")),
    ],
)
def test_draws_have_posterior_moments(name, terms):
    found, problem = solved(name, terms, "signs")
    with torch.no_grad():
        check_draws(found.posterior(), problem, NEW)


@pytest.mark.parametrize(("name", "terms"), [("low-rank", ("smooth", "rough")), ("bordered", ("smooth", "groups"))])
def test_draws_of_one_term(name, terms):
    found, problem = solved(name, terms)
    with torch.no_grad():
        check_draws(found.posterior().of(terms[:1]), problem, NEW, terms[:1])


@pytest.mark.parametrize(
    ("name", "terms", "part"),
    [
        ("low-rank", ("fitc",), None),
        ("dense", ("exact",), None),
        ("dense", ("walks", "smooth"), None),
        ("dense", ("walks", "smooth"), ["walks"]),
        ("bordered", ("refined field",), None),
        ("bordered", ("exact", "field"), None),
    ],
)
def test_functions_known_at_points_are_refused(name, terms, part):
    posterior = solved(name, terms)[0].posterior()
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        (posterior.of(part) if part else posterior).sample_functions(2, torch.Generator())


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("low-rank", ("smooth", "rough", "linear")),
        ("low-rank", ("fitc", "vfe")),
        ("dense", ("wide", "linear")),
        ("dense", ("smooth", "exact", "walks")),
    ],
)
def test_predictions_are_differentiable(name, terms):
    found, problem = solved(name, terms, "outputs")
    check_derivatives(found.posterior(), problem, NEW, problem.theta)


@pytest.mark.parametrize("terms", [("smooth",), ("smooth", "linear", "groups"), ("fitc", "exact", "field")])
def test_bordered_predictions_are_differentiable_in_inputs(terms):
    found, problem = solved("bordered", terms, "outputs")
    check_derivatives(found.posterior(), problem, NEW, {})


@pytest.mark.parametrize("terms", [("field",), ("refined field",), ("field", "groups")])
def test_operator_matches_dense_covariance(terms):
    found, problem = solved("bordered", terms, "uneven")
    check_operator(found.posterior(), problem, NEW)
    assert solved("bordered", ("smooth", *terms))[0].posterior().operator(NEW) is None


@pytest.mark.parametrize("name", ["low-rank", "dense", "bordered"])
def test_unknown_terms_are_named(name):
    terms = {"low-rank": ("smooth",), "dense": ("exact",), "bordered": ("field",)}[name]
    posterior = solved(name, terms)[0].posterior()
    for call in (posterior.of, lambda names: posterior.cross_covariance(NEW, terms, names)):
        with pytest.raises(rfgp.InvalidArgumentError, match="There is no term rough, wide"):
            call(["wide", "rough"])


def test_joint_covariance_is_limited():
    posterior = solved("bordered", ("field",))[0].posterior()
    many = table(2001, seed=9)
    with pytest.raises(rfgp.InvalidArgumentError, match="2001 points"):
        posterior.covariance(many, posterior.project(many))
