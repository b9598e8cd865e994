"""Gradients in closed form."""

import pytest
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.errors import NotDifferentiableError


def _log_sum(a: Tensor, b: Tensor) -> Tensor:
    """Return sum_i log(a_i + b), whose derivatives are 1 / (a_i + b), by `with_gradient`."""
    asked: list[Needs] = []

    def compute(needs: Needs) -> tuple[Tensor, Gradients]:
        asked.append(needs)
        total = a.detach() + b.detach()
        found = (1 / total, (1 / total).sum())
        return total.log().sum(), lambda: [x if need else None for x, need in zip(found, needs, strict=True)]

    out = with_gradient(compute, a, b)
    assert asked == [tuple(torch.is_grad_enabled() and t.requires_grad for t in (a, b))]
    return out


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_match_autograd_where_needed(wanted: tuple[bool, bool]) -> None:
    a, b = torch.tensor([1.0, 2.0, 0.5]).double(), torch.tensor(0.7).double()
    a, b = a.requires_grad_(wanted[0]), b.requires_grad_(wanted[1])
    value = 3 * _log_sum(a, b)
    assert value.requires_grad == any(wanted)
    if any(wanted):
        inputs = [t for t in (a, b) if t.requires_grad]
        expected = torch.autograd.grad(3 * (a + b).log().sum(), inputs)
        for found, own in zip(torch.autograd.grad(value, inputs), expected, strict=True):
            torch.testing.assert_close(found, own)


def test_nothing_is_needed_without_gradients() -> None:
    a = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        assert not _log_sum(a, a[0]).requires_grad


def test_gradient_has_the_type_of_its_input() -> None:
    a = torch.ones(2, requires_grad=True)
    (found,) = torch.autograd.grad(
        with_gradient(lambda _: (a.detach().double().sum(), lambda: [2 * torch.ones(2).double()]), a), a
    )
    assert found.dtype == torch.float32


def test_second_derivative_is_refused() -> None:
    a = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(_log_sum(a, torch.zeros(()).double()), a, create_graph=True)
    with pytest.raises(NotDifferentiableError, match="once"):
        torch.autograd.grad(first.sum(), a)
