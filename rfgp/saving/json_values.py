"""Options, reports of fits and of selections as JSON, and back. Only names and numbers are stored, no code."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import torch

from rfgp import likelihoods, priors
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods import Likelihood
from rfgp.models import FitReport, SelectionReport
from rfgp.models.report import ERROR, LOG_DENSITY
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


def as_json(value: Any) -> Any:
    """Return numbers, arrays and texts as JSON values.

    Args:
        value: The value, possibly a nested list or tuple of values.

    Raises:
        InvalidArgumentError: If the value is something else.
    """
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgumentError(f"A saved value must be a number, an array, a text or None, got {value!r}.")


def encode_priors(priors_by_name: Mapping[str, Hyperprior | None]) -> dict[str, Any]:
    """Return priors of torch or of `rfgp.priors` as JSON.

    Args:
        priors_by_name: The priors by the names of hyperparameters.

    Raises:
        InvalidArgumentError: If a prior has another class.
    """
    return {name: _encode_prior(name, prior) for name, prior in priors_by_name.items()}


def decode_priors(content: Mapping[str, Any]) -> dict[str, Hyperprior | None]:
    """Return the priors that `encode_priors` wrote.

    Args:
        content: The JSON.

    Raises:
        InvalidArgumentError: If a distribution is unknown.
    """
    return {name: _decode_prior(entry) for name, entry in content.items()}


def _encode_prior(name: str, prior: Any) -> dict[str, Any] | None:
    if prior is None:
        return None
    kind = type(prior).__name__
    if type(prior) is priors.OWN.get(kind):
        return {"distribution": kind, "arguments": asdict(prior)}
    if kind not in _PRIORS or type(prior) is not getattr(torch.distributions, kind):
        raise InvalidArgumentError(
            f"The prior of {name} is a {kind}, which cannot be saved; the distributions {', '.join(_PRIORS)} of "
            "torch.distributions can."
        )
    values = {key: torch.as_tensor(getattr(prior, key)) for key in prior.arg_constraints}
    arguments = {key: {"value": as_json(value), "dtype": encode_dtype(value.dtype)} for key, value in values.items()}
    return {"distribution": kind, "arguments": arguments}


def _decode_prior(entry: Mapping[str, Any] | None) -> Hyperprior | None:
    if entry is None:
        return None
    kind = entry["distribution"]
    if kind in priors.OWN:
        hyperprior: Hyperprior = priors.OWN[kind](**entry["arguments"])
        return hyperprior
    if kind not in _PRIORS:
        raise InvalidArgumentError(f"A prior must be one of {', '.join(_PRIORS)}, got {kind!r}.")
    values = {
        key: torch.as_tensor(argument["value"], dtype=decode_dtype(argument["dtype"]))
        for key, argument in entry["arguments"].items()
    }
    prior: Hyperprior = getattr(torch.distributions, kind)(**values)
    return prior


def encode_likelihood(likelihood: Likelihood, encode: Callable[[Any], Any] = as_json) -> dict[str, Any] | None:
    """Return a likelihood as JSON, or None if it is Gaussian.

    Args:
        likelihood: The likelihood.
        encode: A function that returns a parameter as JSON. The default is `as_json`.
    """
    if isinstance(likelihood, likelihoods.Gaussian):
        return None
    chosen = {key: encode(value) for key, value in vars(likelihood).items() if value is not None}
    return {"name": likelihoods.REGISTRY.name_of(likelihood), **chosen}


def decode_likelihood(entry: Mapping[str, Any] | None) -> Likelihood:
    """Return the likelihood that `encode_likelihood` wrote.

    Args:
        entry: The JSON. If None, the likelihood is Gaussian.

    Raises:
        InvalidArgumentError: If the name or a parameter is unknown.
    """
    return likelihoods.Gaussian() if entry is None else likelihoods.REGISTRY.make(**entry)


def encode_dtype(dtype: torch.dtype | None) -> str | None:
    """Return the name of a dtype, or None for None.

    Args:
        dtype: The dtype.
    """
    return None if dtype is None else str(dtype).removeprefix("torch.")


def decode_dtype(name: str) -> torch.dtype:
    """Return the dtype with a name.

    Args:
        name: The name.

    Raises:
        InvalidArgumentError: If the name is unknown.
    """
    if name not in _DTYPES:
        raise InvalidArgumentError(f"The dtype in a file must be one of {', '.join(_DTYPES)}, got {name!r}.")
    return _DTYPES[name]


_ROUNDING = 1e-6


def encode_report(report: FitReport | None) -> dict[str, Any] | None:
    """Return a report of a fit as JSON, without the selection.

    Args:
        report: The report. If None, so is the result.
    """
    if report is None:
        return None
    left_out = {"selection"} | ({"hyperparameter_posterior"} if report.hyperparameter_posterior is None else set())
    return {name: value for name, value in asdict(report).items() if name not in left_out}


def decode_report(content: Mapping[str, Any] | None) -> FitReport | None:
    """Return the report that `encode_report` wrote.

    Args:
        content: The JSON. If None, so is the result.

    Raises:
        ValueError: If it has invalid values.
    """
    report: FitReport | None = _decode(FitReport | None, content)
    if report is not None and report.frequencies not in ("fixed", "learned", "rejected"):
        raise ValueError("the report of the fit must have valid values")
    posterior = None if report is None else report.hyperparameter_posterior
    if posterior is not None and not posterior.is_consistent:
        raise ValueError("the posterior of the hyperparameters must have a value for each name")
    return report


def encode_selection(report: FitReport | None) -> dict[str, Any] | None:
    """Return the selection of a report of a fit as JSON, or None if there is none.

    Args:
        report: The report of the fit, or None.
    """
    return None if report is None or report.selection is None else asdict(report.selection)


def decode_selection(content: Mapping[str, Any] | None) -> SelectionReport | None:
    """Return the selection that `encode_selection` wrote.

    Args:
        content: The JSON. If None, so is the result.

    Raises:
        ValueError: If it has invalid values.
    """
    selection: SelectionReport | None = _decode(SelectionReport | None, content)
    if selection is None:
        return None
    known = selection.measure in (LOG_DENSITY, ERROR) and 0 <= selection.best < len(selection.trials)
    if not known or (selection.weights and not _are_weights(selection)):
        raise ValueError("the report of the selection must have valid values")
    return selection


def _are_weights(selection: SelectionReport) -> bool:
    weights = selection.weights
    known = len(weights) == len(selection.trials) and all(0 <= weight <= 1 for weight in weights)
    return known and abs(sum(weights) - 1) < _ROUNDING and 0 < weights[selection.best] == max(weights)


def _decode(kind: Any, content: Any) -> Any:
    """Return a JSON value converted to a type hint: a plain value, None, a tuple, a mapping, or a dataclass.

    Raises:
        ValueError: If the value has another type.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return content
    if origin is UnionType:
        return None if content is None else _decode(parts[0], content)
    if origin is tuple:
        return tuple(_decode(parts[0], entry) for entry in content)
    if origin is Mapping:
        return {name: _decode(parts[1], value) for name, value in content.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _decode(hints[name], value) for name, value in content.items()})
    if type(content) is not kind:
        raise ValueError(f"a value of a report must have type {kind.__name__}, got {content!r}")
    return content
