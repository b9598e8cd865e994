"""The section on the noise: the noises that were compared, and the scale of an observation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.gp import GP
from rfgp.models.state import predicted
from rfgp.palette import COLORS
from rfgp.report import figures
from rfgp.report.page import Block, Grid, Plot, Section, Text
from rfgp.rows import gathered, is_read_in_blocks
from rfgp.rows.sources import OutputFormat

_POINTS = 800
"""The maximum number of rows of a picture."""
_NUM_COLUMNS, _MIN_SHARE = 3, 0.1
"""The maximum number of columns that are drawn, and the share of the variance of log scales that each must explain."""


def sections(model: GP) -> list[Section]:
    """Return the section on the choice of the noise, if there was one.

    Args:
        model: The model.
    """
    selection = model.selection
    if selection is None or selection.noise is None:
        return []
    noise = selection.noise
    rows = [
        [trial.name, f"{last.value:.4g}", f"{last.error:.2g}", f"{last.difference:.2g}", f"{last.difference_error:.2g}"]
        for trial in noise.trials
        if (last := trial.last) is not None
    ]
    caption = (
        f"Log density over {noise.num_validation:,} rows ({noise.validation}). The difference is that of the chosen "
        "noise from this one, with its standard error."
    )
    grid = Grid(["noise", "score", "standard error", "difference", "its standard error"], rows, caption)
    return [Section("Noise", [Text(figures.plain(noise.reason, 600)), *_pictures(model), grid])]


def _pictures(model: GP) -> Iterator[Block]:
    """Yield the standard deviation of an observation against the mean and the columns that matter."""
    state = model.state
    if state.scale_model is None or state.rows is None or is_read_in_blocks(state.rows):
        return
    inputs = gathered(state.rows).inputs
    inputs = inputs[torch.from_numpy(figures.thin(len(inputs), _POINTS))]
    observed: Any = predicted(state, inputs, OutputFormat(True, torch.empty(0, dtype=torch.float64))).observed()
    deviations, maps, keys = np.asarray(observed.std), state.scaling.inputs, state.spec.numeric_columns
    arguments = {"the predicted mean": np.asarray(observed.mean)}
    if maps is not None:
        columns = maps.inverse(inputs.detach()).double().cpu().numpy()
        arguments |= {str(key): columns[:, index] for index, key in keys.items()}
    logs = np.log(deviations)
    shares = {name: explained(values, logs) for name, values in arguments.items()}
    drawn = [
        "the predicted mean",
        *sorted((name for name in arguments if name != "the predicted mean"), key=lambda n: -shares[n]),
    ]
    for name in [drawn[0], *(name for name in drawn[1 : 1 + _NUM_COLUMNS] if shares[name] >= _MIN_SHARE)]:
        points = figures.scatter(arguments[name], deviations, marker={"color": COLORS[0], "size": 4, "opacity": 0.5})
        figure = figures.figure_of([points], figures.label(name, 44), "sd of an observation").update_yaxes(
            figures.log_axis(deviations.tolist())
        )
        yield Plot(
            figure, f"The standard deviation of an observation at training rows, against {figures.plain(name, 60)}."
        )


def explained(
    values: NDArray[np.float64],  # (n,)
    logs: NDArray[np.float64],  # (n,)
    bins: int = 10,
) -> float:
    """Return the share of the variance of log scales that means in bins of equal size explain (correlation ratio).

    Args:
        values: The values that divide the rows into bins.
        logs: The log scales.
        bins: The number of bins.

    Examples:
        >>> x = np.linspace(0, 1, 1000)
        >>> explained(x, x) > 0.98, explained(x, np.tile([0.0, 1.0], 500)) < 0.01
        (True, True)
    """
    parts = np.array_split(logs[np.argsort(values, kind="stable")], bins)
    within = sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))
    total = float(((logs - logs.mean()) ** 2).sum())
    return 1 - within / total if total > 0 else 0.0
