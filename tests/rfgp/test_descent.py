"""Steps of Adam."""

import numpy as np
import pytest
import torch
from checks import fails

from rfgp import descent


def check_adam(epsilon):
    """Compare ten steps to torch.optim.Adam with falling rates."""
    target, ours = torch.tensor([1.0, -2.0, 30.0], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    theirs, moments = torch.zeros(3, dtype=torch.float64, requires_grad=True), (0.0, 0.0)
    optimizer = torch.optim.Adam([theirs], eps=epsilon)
    for count in range(1, 11):
        rate = 0.3 / count
        change, moments = descent.adam(ours - target, moments, count, rate, epsilon)
        ours = ours - change
        theirs.grad, optimizer.param_groups[0]["lr"] = theirs.detach() - target, rate
        optimizer.step()
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-8, 0.5])
def test_adam_agrees_with_torch(epsilon):
    check_adam(epsilon)


def test_planted_adam_without_its_first_bias_correction(monkeypatch):
    adam = descent.adam
    monkeypatch.setattr(descent, "adam", lambda g, moments, count, *rest: adam(g, moments, count + 1, *rest))
    assert fails(check_adam, 1e-8)
