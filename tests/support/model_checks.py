"""Checks of models: gradients by central differences."""

import pytest
import torch


def assert_gradients(gp, *, step=1e-5, rel=1e-5, abs=1e-5):
    """The gradient in each raw hyperparameter is that of central differences."""
    names, parameters = zip(*gp.hyperparameters.named_parameters(), strict=True)
    slopes = torch.autograd.grad(gp.log_marginal_likelihood(), parameters, allow_unused=True)
    for name, raw, slope in zip(names, parameters, slopes, strict=True):
        found = torch.zeros_like(raw) if slope is None else slope
        for place in range(raw.numel()):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    raw.view(-1)[place] += sign * step
                    ends.append(gp.log_marginal_likelihood().item())
                    raw.view(-1)[place] -= sign * step
            expected = pytest.approx((ends[0] - ends[1]) / (2 * step), rel=rel, abs=abs)
            assert found.reshape(-1)[place].item() == expected, name
