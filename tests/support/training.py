"""Steps of Adam."""

import torch


def descend(loss, parameters, steps, rate=0.1):
    """Return the values of a loss before each of some steps of Adam."""
    optimizer, values = torch.optim.Adam(parameters, lr=rate), []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        values.append(value.item())
    return values
