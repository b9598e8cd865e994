"""Functions drawn from a posterior."""

from collections.abc import Callable
from typing import Any

import torch

from rfgp import random
from rfgp.counts import check_count
from rfgp.models.process import Process, predictor_of


def draw_functions(model: Process, num_samples: int, seed: int | None) -> Callable[[Any], Any]:
    """Draw functions from a model's posterior, to be evaluated wherever it is asked for.

    Returns:
        A function that maps inputs, (n, d) or n labels, to values (s, n), or (s, n, k) for k outputs.

    Raises:
        NotFittedError: there are no data yet.
        InvalidArgumentError: s is not a positive integer, or the model has no functions to draw.
    """
    num_samples = check_count("num_samples", num_samples)
    predictor, state = predictor_of(model), model._known()
    generator = random.generator(random.resolve_seed(seed), random.Role.FUNCTIONS)
    with torch.no_grad():
        drawn = predictor.sample_functions(int(num_samples), generator)
        mean, scale = state.hyperparameters.mean.double(), state.scaling.targets.scale.double()

    def functions(X: Any) -> Any:
        inputs, source = state.read_new(model._inputs, X)
        with torch.set_grad_enabled(torch.is_grad_enabled() and inputs.requires_grad):
            values = mean + scale * drawn(inputs)
        values = (values if mean.ndim else values[..., 0]).to(source.template)
        return values.cpu().numpy() if source.is_numpy else values

    return functions
