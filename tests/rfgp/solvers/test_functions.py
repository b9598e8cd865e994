"""Functions drawn from posteriors, their derivatives, and covariances that are never formed."""

from functools import partial

import pytest
import torch
from solver_cases import PRIORS, solved
from solver_checks import check_derivatives, check_draws, check_operator
from terms import table

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
        ("iterative", ("smooth", "field", "walks")),
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


def test_functions_of_point_processes_are_refused():
    for name, terms, part in (
        ("low-rank", ("fitc",), ("fitc",)),
        ("dense", ("exact",), ("exact",)),
        ("dense", ("walks", "smooth"), ("walks", "smooth")),
        ("dense", ("walks", "smooth"), ("walks",)),
        ("bordered", ("refined field",), ("refined field",)),
        ("bordered", ("exact", "field"), ("exact", "field")),
        ("bordered", ("neighbors",), ("neighbors",)),
        ("whitened", ("neighbors",), ("neighbors",)),
        ("latent", ("neighbors",), ("neighbors",)),
        ("iterative", ("fitc", "walks"), ("fitc",)),
    ):
        posterior = solved(name, terms)[0].posterior().of(part)
        with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
            posterior.sample_functions(2, torch.Generator())


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


def test_bordered_predictions_are_differentiable_in_inputs():
    for terms in (("smooth",), ("smooth", "linear", "groups"), ("fitc", "exact", "field")):
        found, problem = solved("bordered", terms, "outputs")
        check_derivatives(found.posterior(), problem, NEW, {})


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("bordered", ("field",)),
        ("bordered", ("refined field",)),
        ("bordered", ("field", "groups")),
        ("iterative", ("smooth", "field", "groups", "walks")),
    ],
)
def test_operator_matches_dense_covariance(name, terms):
    found, problem = solved(name, terms, "uneven")
    check_operator(found.posterior(), problem, NEW)


def test_covariances_that_are_formed_have_no_operator():
    for name, terms in (
        ("low-rank", ("smooth",)),
        ("dense", ("exact",)),
        ("bordered", ("smooth", "field")),
        ("bordered", ("neighbors",)),
        ("whitened", ("neighbors",)),
        ("latent", ("neighbors",)),
        ("iterative", ("fitc", "walks")),
    ):
        assert solved(name, terms)[0].posterior().operator(NEW) is None


def test_unknown_and_missing_terms_are_named():
    for name, cases in PRIORS.items():
        terms = cases[0]
        posterior = solved(name, terms)[0].posterior()
        for call in (posterior.of, partial(posterior.cross_covariance, NEW, terms)):
            with pytest.raises(rfgp.InvalidArgumentError, match="There is no term one, two"):
                call(["two", "one"])
            with pytest.raises(rfgp.InvalidArgumentError, match="At least one term"):
                call([])


def test_joint_covariance_is_limited():
    posterior = solved("bordered", ("field",))[0].posterior()
    many = table(2001, seed=9)
    with pytest.raises(rfgp.InvalidArgumentError, match="got 2001"):
        posterior.covariance(many, posterior.project(many))
