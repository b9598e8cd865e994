"""The density of rows under random Fourier features, and its gradient in the frequencies."""

import math

import pytest
import torch
from planting import planted
from torch import Tensor

import rfgp
from rfgp import kernels as k
from rfgp.blocks import Weights
from rfgp.regression.spec import learnable_basis
from rfgp.rows import Block
from rfgp.solvers.lowrank import LinearModel, fourier, fourier_log_likelihood, has_fourier_features

F64 = torch.float64
KERNELS = {
    "RBF": k.RBF(),
    "isotropic Matern": k.Matern(ard=False),
    "columns": k.RBF((2, 0)),
    "product": k.RBF((0, 1)) * k.Matern((1, 2), nu=0.5),
}


def rows_of(outputs, number=24):
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(number, size, generator=generator, dtype=F64) for size in (3, outputs))
    return Block(x, y)


def model_of(kernel, rows, dtype=F64) -> tuple[LinearModel, dict[str, Tensor]]:
    """Return the model of rows, and the leaves that its density depends on, by path."""
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(5, learn_frequencies=True), seed=0)
    gp.condition(rows.inputs.numpy(), rows.targets[:, 0].numpy())
    spec = gp.spec
    leaves = {path: draw.detach().double().requires_grad_() for path, draw in learnable_basis(spec).items()}
    values = gp.state.hyperparameters.detached()
    names = [name for name in values.raw if name not in ("noise", "mean")]
    values = values.leaves(names)
    weights = spec.prior(values.with_extra_tensors(leaves, {})).dense
    noise, mean = torch.tensor(0.3, dtype=F64), torch.full((rows.num_outputs,), 0.2, dtype=F64)
    leaves |= {"noise": noise.requires_grad_(), "mean": mean.requires_grad_(), **{n: values.raw[n] for n in names}}
    return LinearModel(weights, Block(rows.inputs.to(dtype), rows.targets), mean, noise), leaves


def dense_density(model: LinearModel) -> Tensor:
    """Return the log density of all outputs by the (n, n) covariance, through autograd."""
    phi = model.weights.features(model.rows.inputs.double())
    C = model.variances[0] * phi @ phi.mT + model.noise * torch.eye(len(phi), dtype=F64)
    residual, outputs = model.rows.targets - model.mean, model.rows.num_outputs
    quadratic = (residual * torch.linalg.solve(C, residual)).sum()
    return -0.5 * (quadratic + outputs * (torch.logdet(C) + len(phi) * math.log(2 * math.pi)))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_gradient_matches_dense_algebra(kernel, outputs):
    model, leaves = model_of(kernel, rows_of(outputs))
    assert has_fourier_features(model)
    found, expected = fourier_log_likelihood(model, slice(0, 24)), dense_density(model)
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)
    pairs = zip(
        *(torch.autograd.grad(one, list(leaves.values()), retain_graph=True) for one in (found, expected)), strict=True
    )
    for name, (own, other) in zip(leaves, pairs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-9, msg=name)


def test_trace_rows_give_an_unbiased_gradient():
    """Each part alone has another gradient of the log determinant. The rest is that of all rows."""
    model, leaves = model_of(KERNELS["product"], rows_of(2))
    (path,) = (name for name in leaves if name.endswith("frequencies"))

    def gradient(part):
        return torch.autograd.grad(fourier_log_likelihood(model, part), leaves[path], retain_graph=True)[0]

    parts = [gradient(slice(first, first + 8)) for first in (0, 8, 16)]
    whole = gradient(slice(0, 24))
    torch.testing.assert_close(sum(parts) / 3, whole, rtol=1e-9, atol=1e-10)
    assert (parts[0] - whole).norm() > 0.01 * whole.norm()


def test_single_precision_is_close_unless_noise_is_small():
    model, leaves = model_of(KERNELS["RBF"], rows_of(1), torch.float32)
    expected, found = dense_density(model), fourier_log_likelihood(model, slice(0, 24))
    assert 0 < abs(found.item() - expected.item()) < 1e-4
    leaves["noise"].data.fill_(1e-8)
    small = LinearModel(model.weights, model.rows, model.mean, leaves["noise"])
    assert small.needs_float64
    assert fourier_log_likelihood(small, slice(0, 24)).item() == pytest.approx(dense_density(small).item(), rel=1e-8)


def test_other_terms_and_rows_are_not_fourier():
    model, _ = model_of(KERNELS["RBF"], rows_of(1))
    block = model.weights.blocks[0]
    with_noise = Block(model.rows.inputs, model.rows.targets, fixed_noise=torch.ones(24, dtype=F64))
    others = [
        LinearModel(Weights((block, block)), model.rows, model.mean, model.noise),
        LinearModel(model.weights, with_noise, model.mean, model.noise),
    ]
    assert not any(map(has_fourier_features, others))
    gp = rfgp.GP(k.RBF(0) * k.Group(1), approximation=rfgp.RandomFeatures(4), seed=0)
    x = rows_of(1).inputs.numpy()
    x[:, 1] = x[:, 1].round()
    gp.condition(x, x[:, 0])
    assert gp.state.prior().weights[0].fourier is None


FAULTS = {
    "trace": ("subset @ inverse", "0 * subset @ inverse"),
    "amplitudes": ("(phi.mT @ (r", "(2 * phi.mT @ (r"),
    "outputs": ("residual.mT, weights.mT.reshape(-1, 2, m)", "residual.mT[:1], weights.mT.reshape(-1, 2, m)[:1]"),
}


@pytest.mark.parametrize(("right", "wrong"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(right, wrong):
    with planted(fourier, right, wrong), pytest.raises(AssertionError):
        test_gradient_matches_dense_algebra(KERNELS["RBF"], 3)
