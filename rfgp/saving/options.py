"""The options of a model in files."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rfgp.kernels import Kernel
from rfgp.models.spec import ModelOptions
from rfgp.saving import json_values
from rfgp.saving.container import Json
from rfgp.saving.kernels import decode_approximations, decode_kernel, encode_approximations, encode_kernel, naming
from rfgp.saving.values import Decoder, Encoder

_CHOICES = ("inference", "mean", "standardize", "seed", "budget", "memory")
"""The options that JSON stores directly."""


def encode_options(options: ModelOptions, encoder: Encoder) -> Json:
    """Return the options of a model as JSON.

    Args:
        options: The options.
        encoder: The encoder of values.

    Raises:
        InvalidArgumentError: If the class of a part cannot be saved. The message names it.
    """
    described = {
        **{name: getattr(options, name) for name in _CHOICES},
        "kernel": encode_kernel(options.kernel, encoder),
        "likelihood": json_values.encode_likelihood(options.likelihood, partial(_encode_parameter, encoder=encoder)),
        "approximation": encode_approximations(options.approximations, encoder),
        "start": {name: _encode_start(name, value, encoder) for name, value in options.start.items()},
        "priors": json_values.encode_priors(options.priors),
        "dtype": json_values.encode_dtype(options.dtype),
    }
    described["selects_noise"] = options.selects_noise
    if options.hyperparameter_posterior != "point":  # the files of point fits have no such entry
        described["hyperparameter_posterior"] = options.hyperparameter_posterior
    described["indicators"] = [[key, list(levels)] for key, levels in options.indicators.items()]
    described["alternatives"] = {name: encode_kernel(kernel, encoder) for name, kernel in options.alternatives.items()}
    return described


def _encode_parameter(value: Any, encoder: Encoder) -> Any:
    """Return a parameter of a likelihood as JSON, which may be the kernel of the noise."""
    return encode_kernel(value, encoder) if isinstance(value, Kernel) else json_values.as_json(value)


def _encode_start(name: str, value: Any, encoder: Encoder) -> Any:
    with naming(f"The start of {name!r}"):
        return encoder.encode(value)


def decode_options(described: Mapping[str, Any], decoder: Decoder) -> ModelOptions:
    """Return the options that `encode_options` wrote.

    Args:
        described: The JSON.
        decoder: The decoder of values.

    Raises:
        InvalidArgumentError: If a class is unknown, or an option is invalid.
        ValueError: If an option has an invalid type.
    """
    chosen: dict[str, Any] = {name: described.get(name) for name in _CHOICES}
    if type(chosen["standardize"]) is not bool or type(chosen["seed"]) is not int:
        raise ValueError("all options must have valid types")
    dtype, likelihood = described["dtype"], described["likelihood"]
    if likelihood is not None and "kernel" in likelihood:
        likelihood = {**likelihood, "kernel": decode_kernel(likelihood["kernel"], decoder)}
    return ModelOptions(
        decode_kernel(described["kernel"], decoder),
        json_values.decode_likelihood(likelihood),
        decode_approximations(described["approximation"], decoder),
        start={name: decoder.decode(value) for name, value in described["start"].items()},
        priors=json_values.decode_priors(described["priors"]),
        dtype=None if dtype is None else json_values.decode_dtype(dtype),
        selects_noise=described["selects_noise"] is True,
        hyperparameter_posterior=described.get("hyperparameter_posterior", "point"),
        indicators=_decode_indicators(described["indicators"]),
        alternatives=_decode_alternatives(described["alternatives"], decoder),
        **chosen,
    )


def _decode_indicators(content: Any) -> dict[Any, tuple[Any, ...]]:
    """Return the levels of columns that are read as indicators.

    Raises:
        ValueError: If a key or a level has an invalid type.
    """
    indicators = {key: tuple(levels) for key, levels in content}
    if not all(type(value) in (str, int, bool) for key, levels in indicators.items() for value in (key, *levels)):
        raise ValueError("the levels of a column must have valid types")
    return indicators


def _decode_alternatives(content: Any, decoder: Decoder) -> dict[str, Kernel]:
    """Return the kernels that a fit selects from.

    Raises:
        ValueError: If a name is invalid.
    """
    if not all("=" in name for name in content):
        raise ValueError("the name of a kernel to select from must be an option and its value, such as alpha=2")
    return {name: decode_kernel(kernel, decoder) for name, kernel in content.items()}
