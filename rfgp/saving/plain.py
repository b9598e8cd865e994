"""Constructor options as JSON, and back; names and numbers only, nothing that could execute."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rfgp import couplings, likelihoods, spectra
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods import Likelihood
from rfgp.parameters import Hyperprior

_PRIORS = (
    "Beta",
    "Cauchy",
    "Exponential",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "Pareto",
    "StudentT",
    "Uniform",
    "Weibull",
)
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def plain(value: Any) -> Any:
    """Return numbers, arrays and texts as JSON has them.

    Raises:
        InvalidArgumentError: anything else.
    """
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgumentError(f"{value!r} cannot be saved; numbers, arrays, texts and None can.")


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values as JSON has them.

    Raises:
        InvalidArgumentError: a value that it does not have.
    """
    return {name: plain(value) for name, value in values.items()}


def encode(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a model on tables as JSON.

    Raises:
        InvalidArgumentError: a spectrum, coupling or prior that is not known by name.
    """
    out = {name: _ENCODE.get(name, plain)(value) for name, value in options.items()}
    return {name: value for name, value in out.items() if value is not None}


def decode(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `encode` wrote.

    Raises:
        InvalidArgumentError: an unknown name.
    """
    return {name: _DECODE[name](value) if name in _DECODE else value for name, value in options.items()}


def encode_priors(priors: Mapping[str, Hyperprior | None] | None) -> Any:
    """Return priors as JSON: distributions of torch with one parameterisation, by name; None stays None.

    Raises:
        InvalidArgumentError: another prior.
    """
    return None if priors is None else {name: _encode_prior(name, prior) for name, prior in priors.items()}


def decode_priors(content: Mapping[str, Any]) -> dict[str, Hyperprior | None]:
    """Return the priors that `encode_priors` wrote.

    Raises:
        InvalidArgumentError: an unknown distribution.
    """
    return {name: _decode_prior(entry) for name, entry in content.items()}


def _encode_prior(name: str, prior: Any) -> dict[str, Any] | None:
    if prior is None:
        return None
    kind = type(prior).__name__
    if kind not in _PRIORS or type(prior) is not getattr(torch.distributions, kind):
        raise InvalidArgumentError(
            f"The prior of {name} is a {kind}, which cannot be saved; the distributions {', '.join(_PRIORS)} of "
            "torch.distributions can."
        )
    values = {key: torch.as_tensor(getattr(prior, key)) for key in prior.arg_constraints}
    arguments = {key: {"value": plain(value), "dtype": encode_dtype(value.dtype)} for key, value in values.items()}
    return {"distribution": kind, "arguments": arguments}


def _decode_prior(entry: Mapping[str, Any] | None) -> Hyperprior | None:
    if entry is None:
        return None
    kind = entry["distribution"]
    if kind not in _PRIORS:
        raise InvalidArgumentError(f"There is no prior {kind!r}; known are {', '.join(_PRIORS)}.")
    values = {
        key: torch.as_tensor(argument["value"], dtype=decode_dtype(argument["dtype"]))
        for key, argument in entry["arguments"].items()
    }
    prior: Hyperprior = getattr(torch.distributions, kind)(**values)
    return prior


def _encode_spectrum(spectrum: spectra.Spectrum) -> dict[str, Any]:
    return {"name": spectra.name_of(spectrum), **{key: plain(value) for key, value in vars(spectrum).items()}}


def _encode_coupling(coupling: couplings.Coupling) -> dict[str, Any]:
    return {"name": couplings.name_of(coupling), **plain_values(couplings.options_of(coupling))}


def encode_likelihood(likelihood: Likelihood) -> dict[str, Any] | None:
    """Return a likelihood as JSON, with the parameters that were given; the normal one is None."""
    if isinstance(likelihood, likelihoods.Normal):
        return None
    chosen = {key: plain(value) for key, value in vars(likelihood).items() if value is not None}
    return {"name": likelihoods.REGISTRY.name_of(likelihood), **chosen}


def decode_likelihood(entry: Mapping[str, Any] | None) -> Likelihood:
    """Return the likelihood that `encode_likelihood` wrote.

    Raises:
        InvalidArgumentError: an unknown name, or parameters that it does not have.
    """
    return likelihoods.Normal() if entry is None else likelihoods.REGISTRY.make(**entry)


def encode_dtype(dtype: torch.dtype | None) -> str | None:
    """Return the name of a type of numbers; None stays None."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


def decode_dtype(name: str) -> torch.dtype:
    """Return the type of numbers of a name.

    Raises:
        InvalidArgumentError: there is none of that name.
    """
    if name not in _DTYPES:
        raise InvalidArgumentError(f"There is no dtype {name!r}; known are {', '.join(_DTYPES)}.")
    return _DTYPES[name]


_ENCODE: dict[str, Any] = {
    "spectrum": _encode_spectrum,
    "coupling": _encode_coupling,
    "priors": encode_priors,
    "dtype": encode_dtype,
    "likelihood": encode_likelihood,
}
_DECODE: dict[str, Any] = {
    "spectrum": lambda entry: spectra.by_name(**entry),
    "coupling": lambda entry: couplings.by_name(**entry),
    "priors": decode_priors,
    "dtype": decode_dtype,
    "likelihood": decode_likelihood,
}
