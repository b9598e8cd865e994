"""The priors that families give, for a model of each kind."""

import pickle

import pytest
import torch

from rfgp.regression.base_spec import Member
from tests.golden.models import MODELS

SEARCHED = ("features-streamed", "features-dask")
GIVEN = [name for name in MODELS if name not in SEARCHED]


def prior_and_inputs(name):
    case = MODELS[name]()
    state = case.model.state
    inputs, _ = state.points(case.inputs)
    return state.prior(), inputs


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.filterwarnings("ignore")
def test_blocks_survive_pickling(name):
    prior, inputs = prior_and_inputs(name)
    with torch.no_grad():
        again = pickle.loads(pickle.dumps(prior))
        assert [block.name for block in again.blocks] == [block.name for block in prior.blocks]
        assert torch.equal(again.kernel(inputs, inputs), prior.kernel(inputs, inputs))
        assert torch.equal(again.detached().diagonal(inputs), prior.diagonal(inputs))


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.filterwarnings("ignore")
def test_covariance_is_symmetric_with_the_diagonal(name):
    prior, inputs = prior_and_inputs(name)
    with torch.no_grad():
        covariance = prior.kernel(inputs, inputs)
        torch.testing.assert_close(covariance, covariance.mT, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(covariance.diagonal(), prior.diagonal(inputs), rtol=1e-7, atol=1e-7)


def test_a_spec_is_its_only_member_unless_it_is_an_average():
    state = MODELS["exact"]().model.state
    (member,) = state.spec.members(state.hyperparameters)
    assert isinstance(member, Member)
    assert member.weight == 1
    assert torch.equal(member.noise, state.hyperparameters.standardized("noise").double())
