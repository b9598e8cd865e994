"""Maximising a marginal likelihood: L-BFGS over raw hyperparameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rfgp.parameters import Hyperparameters

Callback = Callable[[int, float], None]


@dataclass(frozen=True)
class FitReport:
    """How a fit went.

    Attributes:
        converged: Whether the optimiser's test was met.
        iterations: Of L-BFGS.
        evaluations: Of the likelihood and its gradient.
        log_marginal_likelihood: At the end, total nats in the user's units.
        message: The optimiser's own words.
        at_bounds: Names of hyperparameters with an entry at a bound, such as the lengthscale of a
            column without effect, or the noise of data without any.
        trace: The log marginal likelihood (plus log priors) after each iteration, the start first.
    """

    converged: bool
    iterations: int
    evaluations: int
    log_marginal_likelihood: float
    message: str
    at_bounds: tuple[str, ...] = ()
    trace: tuple[float, ...] = ()


def maximize(
    likelihood: Callable[[], Tensor],
    hyperparameters: Hyperparameters,
    fixed: tuple[str, ...],
    max_iterations: int,
    count: int,
    callback: Callback | None = None,
) -> FitReport:
    """Maximise likelihood() + log prior over the hyperparameters that are not fixed, in place.

    Args:
        likelihood: The log marginal likelihood, 0-d, at the present hyperparameters.
        hyperparameters: Changed in place.
        fixed: Names that stay.
        max_iterations: Of L-BFGS.
        count: The number of data, which scales the objective.
        callback: Called after every iteration with (iterations done, log marginal likelihood).
    """
    free = hyperparameters.free(fixed)
    if not free:
        return FitReport(True, 0, 0, likelihood().item(), "every hyperparameter is fixed")
    parameters = [parameter for _, parameter, _ in free]
    trace: list[float] = []
    bounds = [limits for _, _, entries in free for limits in entries]

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _write(parameters, point)
        with torch.enable_grad():
            value = -(likelihood() + hyperparameters.log_prior()) / count
            if not trace:
                trace.append(-value.item() * count)
            return value.item(), _flatten(torch.autograd.grad(value, parameters))

    def after_iteration(intermediate_result: Any) -> None:  # scipy goes by this name
        trace.append(-float(intermediate_result.fun) * count)
        if callback is not None:
            callback(len(trace) - 1, trace[-1])

    options = {"maxiter": max_iterations, "ftol": 1e-10, "gtol": 1e-6}
    result: Any = minimize(
        objective,
        _flatten(parameters),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=options,
        callback=after_iteration,
    )
    _write(parameters, result.x)
    with torch.no_grad():
        reached = likelihood().item()
    names = [name for name, _, entries in free for _ in entries]
    at_bounds = dict.fromkeys(
        name for name, value, limits in zip(names, result.x, bounds, strict=True) if value in limits
    )
    success, message = bool(result.success), str(result.message)
    return FitReport(success, int(result.nit), int(result.nfev), reached, message, tuple(at_bounds), tuple(trace))


def _flatten(tensors: Any) -> NDArray[np.float64]:
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    return np.asarray(flat.double().cpu().numpy())


def _write(parameters: list[torch.nn.Parameter], point: NDArray[np.float64]) -> None:
    first = 0
    with torch.no_grad():
        for parameter in parameters:
            part = torch.as_tensor(point[first : first + parameter.numel()])
            parameter.copy_(part.reshape(parameter.shape))
            first += parameter.numel()
