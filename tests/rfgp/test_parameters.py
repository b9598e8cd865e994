import math

import numpy as np
import pytest
import torch

import rfgp
from rfgp.hyperparameters import Hyperparameters
from rfgp.parameters import Hyperparameter, ParameterSpace
from rfgp.scaling import Affine


def make(**options):
    one = torch.tensor(1.0, dtype=torch.float64)
    unit = torch.tensor([2.0, 10.0], dtype=torch.float64)
    quantities = {
        "lengthscale": Hyperparameter(torch.ones(2, dtype=torch.float64), unit, (1e-3 * one, 1e3 * one)),
        "shared": Hyperparameter(one, unit, (1e-3 * one, 1e3 * one)),
        "noise": Hyperparameter(0.1 * one, 4 * one, (1e-6 * one, 1e2 * one)),
    }
    space = ParameterSpace.of(quantities, Affine(5 * one, 2 * one), Affine(4 * one, 4 * one), **options)
    return Hyperparameters(space.start)


def test_values_are_in_the_users_units_and_differentiable():
    h = make()
    assert h.lengthscale.tolist() == pytest.approx([2, 10])
    assert h.noise.item() == pytest.approx(0.4)
    assert h.mean.item() == 5
    h.set(lengthscale=[4, 5], noise=0.8, mean=6.0)
    assert h.standardized("lengthscale").tolist() == pytest.approx([2, 0.5])
    assert h.raw["mean"].item() == 0.5
    assert h.standardized("mean").item() == 0.5  # (6 - 4) / 4
    h.noise.backward()
    assert h.raw["noise"].grad.item() == pytest.approx(0.8)  # d noise / d log noise
    assert "noise=0.8" in repr(h)


def test_assignment_sets_and_a_refused_set_changes_nothing():
    h = make()
    h.noise = 0.8
    assert h.standardized("noise").item() == pytest.approx(0.2)
    h.mean = 7.0
    assert h.raw["mean"].item() == 1.0
    for values in ({"lengthscale": 3.0, "noise": -1.0}, {"noise": 3.0, "mean": math.nan}):
        with pytest.raises(rfgp.InvalidArgumentError):
            h.set(**values)
    assert h.lengthscale.tolist() == pytest.approx([2, 10])
    assert h.noise.item() == pytest.approx(0.8)


def test_a_shared_quantity_round_trips_through_column_values():
    h = make()
    h.set(shared=3.0)
    assert h.shared.tolist() == pytest.approx([6, 30])
    h.set(shared=h.shared)
    assert h.standardized("shared").item() == pytest.approx(3)
    with pytest.raises(rfgp.InvalidArgumentError, match="all columns"):
        h.set(shared=[1.0, 1.0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": math.inf}, "noise must be positive"),
        ({"lengthscale": [1.0, 2.0, 3.0]}, r"shape \(\) or \(2,\)"),
        ({"nu": 1.0}, "lengthscale.* got 'nu'"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        make().set(**values)


def test_priors_see_the_users_units():
    prior = torch.distributions.LogNormal(0.0, 1.0)
    h = make(hyperpriors={"noise": prior})
    assert h.log_prior().item() == pytest.approx(prior.log_prob(torch.tensor(0.4)).item(), rel=1e-6)
    shared = make(hyperpriors={"shared": prior})  # one value, not one per column
    assert shared.log_prior().item() == pytest.approx(prior.log_prob(torch.tensor(1.0)).item(), rel=1e-6)
    with pytest.raises(rfgp.InvalidArgumentError, match="got 'nois'"):
        make(hyperpriors={"nois": prior})


def test_free_excludes_fixed_parameters():
    space = make().space
    assert space.free(["noise"]) == space.free("noise") == ["lengthscale", "shared", "mean"]
    assert space.bounds("lengthscale") == [pytest.approx((math.log(1e-3), math.log(1e3)))] * 2
    assert space.bounds("mean") == [(None, None)]
    with pytest.raises(rfgp.InvalidArgumentError, match="hyperparameter"):
        space.free(["nose"])


def test_values_are_moved_in_copies():
    start = make().values
    names = ("noise", "lengthscale")
    moved = start.moved(names, start.vector(names) + np.array([0.5, 1.0, 2.0]))
    assert start.raw["noise"].item() == pytest.approx(math.log(0.1))
    assert (moved.raw["noise"] - start.raw["noise"]).item() == pytest.approx(0.5)
    assert (moved.raw["lengthscale"] - start.raw["lengthscale"]).tolist() == pytest.approx([1.0, 2.0])
    assert start.shifted(noise=0.5).raw["noise"].item() == moved.raw["noise"].item()
    inside, was_outside = start.shifted(noise=100.0).clamped(("noise", "shared"))
    assert was_outside
    assert inside.standardized("noise").item() == pytest.approx(1e2)
    assert not start.clamped(("noise", "shared"))[1]
    leaves = start.leaves(("noise",))
    assert [name for name, raw in leaves.raw.items() if raw.requires_grad] == ["noise"]
    assert torch.equal(leaves.flat(), start.flat())
    assert leaves.flat().tolist() == pytest.approx([0, 0, 0, math.log(0.1), 0])


def test_scaling_standardises_and_leaves_constants_alone():
    x = torch.tensor([[1.0, 5.0, 1e12], [3.0, 5.0, 1e12 + 4], [5.0, 5.0, 1e12 + 8]], dtype=torch.float64)
    scaling = Affine.standardizing(x)
    z = scaling.forward(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3, dtype=torch.float64))
    assert z.std(0).tolist() == pytest.approx([1, 0, 1])
    assert scaling.log_jacobian(3) == pytest.approx(-3 * (math.log(2) + math.log(4)))
    assert torch.equal(Affine.identity(x).forward(x), x)


@pytest.mark.parametrize("name", ["outputscale", "noise"])
def test_values_for_a_wrong_number_of_outputs_are_named(name):
    gp = rfgp.ExactGP(**{name: [1.0, 1.0, 1.0]})
    X = np.arange(8.0).reshape(4, 2)
    with pytest.raises(rfgp.InvalidArgumentError, match=rf"{name} must have shape \(\) or \(2,\), got \(3,\)"):
        gp.condition(X, np.sin(X))
