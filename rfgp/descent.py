"""L-BFGS within bounds, with restarts after a failed line search, and the steps of Adam."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Evaluate = Callable[[Floats], tuple[float, Floats]]

_ITERATIONS_RAN_OUT = 1
_ENDS = (  # parts of scipy's messages, and ours
    ("RELATIVE REDUCTION", "the last iteration changed almost nothing"),
    ("PROJECTED GRADIENT", "the gradient is almost zero"),
    ("NO. OF ITERATIONS", "the iterations ran out"),
    ("EVALUATIONS", "the evaluations ran out"),
    ("CALLBACK", "the last iterations changed next to nothing"),
    ("ABNORMAL", "the line search found no better point"),
)


_ENOUGH = dict(_ENDS)["CALLBACK"]


class Descent(NamedTuple):
    """The end of a search."""

    point: Floats  # (p,)
    converged: bool
    message: str
    iterations: int
    evaluations: int


def descend(
    evaluate: Evaluate,
    start: Floats,  # (p,)
    bounds: Sequence[tuple[float | None, float | None]],
    *,
    most: int,
    tolerance: float,
    gradient_tolerance: float,
    restarts: float,
    rounding: float,
    after: Callable[[float], None],
    **options: Any,
) -> Descent:
    """Minimize a function by L-BFGS within bounds.

    A failed line search ends scipy's run, even if only rounding or a curved valley stopped it. So the search starts
    again from there.

    Args:
        evaluate: Returns value and gradient at a point (p,).
        start: The first point (p,).
        bounds: The lower and upper bound of each entry. If None, the entry has no such bound.
        most: The maximum number of iterations.
        tolerance: The tolerance of the relative change of the value in one iteration.
        gradient_tolerance: The tolerance of the gradient's largest entry.
        restarts: The most further starts after failed line searches.
        rounding: The smallest gain of a further start. With a smaller gain the search has converged at this precision.
        after: Called with the value after each iteration. It raises `StopIteration` to end the search.
        **options: Further options of scipy's method "L-BFGS-B".

    Returns:
        The last point, whether the search converged, why it ended, and the numbers of iterations and evaluations.

    Examples:
        >>> settings = {"tolerance": 1e-12, "gradient_tolerance": 1e-8, "restarts": 1, "rounding": 0}
        >>> def square(x):
        ...     return float((x**2).sum()), 2 * x
        >>> end = descend(square, np.array([3.0]), [(1, None)], most=20, after=lambda value: None, **settings)
        >>> end.point, end.converged
        (array([1.]), True)
    """
    if most <= 0:  # scipy would do one iteration
        return Descent(start, False, "no iterations were allowed", 0, 0)
    point, iterations, evaluations, before, done = start, 0, 0, np.inf, 0

    def report(intermediate_result: Any) -> None:  # scipy requires the argument's name
        after(float(intermediate_result.fun))

    while True:
        result = minimize(
            evaluate,
            point,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": most - iterations, "ftol": tolerance, "gtol": gradient_tolerance, **options},
            callback=report,
        )
        point, message = np.asarray(result.x), _readable(str(result.message))
        converged = bool(result.success) or message == _ENOUGH
        iterations, evaluations = iterations + int(result.nit), evaluations + int(result.nfev)
        if converged or iterations >= most or result.status == _ITERATIONS_RAN_OUT:
            return Descent(point, converged, message, iterations, evaluations)
        if before - float(result.fun) < rounding:
            return Descent(point, True, "no further progress at this precision", iterations, evaluations)
        if done >= restarts:
            return Descent(point, False, message, iterations, evaluations)
        before, done = float(result.fun), done + 1


def _readable(message: str) -> str:
    """Return scipy's message at the end of a search in plain English."""
    upper = message.upper().replace("_", " ")
    return next((words for sign, words in _ENDS if sign in upper), message.lower().rstrip(".: "))


def adam(
    gradient: Any, moments: tuple[Any, Any], count: int, rate: float, epsilon: float = 1e-300
) -> tuple[Any, tuple[Any, Any]]:
    """Return the size of a step of Adam against the gradient, and the new moments.

    Args:
        gradient: The gradient, a numpy array or a tensor.
        moments: The means of the gradients and of their squares before this step, 0 at first.
        count: The number of this step, from 1.
        rate: The learning rate of this step.
        epsilon: The number that is added to the root of the second moment.

    Source: Kingma and Ba (2015), Algorithm 1. The first step of `torch.optim.Adam` imports a compiler, in a second.

    Examples:
        >>> adam(np.array([3.0, -5.0]), (0.0, 0.0), 1, rate=0.1)[0].round(6).tolist()  # the first step: the rate
        [0.1, -0.1]
    """
    first, second = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
    mean, square = first / (1 - 0.9**count), second / (1 - 0.999**count)
    return rate * mean / (square**0.5 + epsilon), (first, second)
