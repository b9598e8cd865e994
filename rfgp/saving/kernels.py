"""Sums of kernels in files: each leaf once, and terms as indices of their factors."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rfgp.approximations import Approximation
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum, Term
from rfgp.kernels.role import label_of
from rfgp.saving.container import Json
from rfgp.saving.values import Decoder, Encoder


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Name the owner of a value in errors about values that cannot be saved.

    Args:
        owner: The owner, such as "The term 'rbf'".

    Raises:
        InvalidArgumentError: If a value cannot be saved.
    """
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{owner} cannot be saved: {error}") from error


def encode_kernel(kernel: Kernel, encoder: Encoder) -> Json:
    """Return a kernel as JSON.

    Args:
        kernel: The kernel.
        encoder: The encoder of values.

    Raises:
        InvalidArgumentError: If a leaf cannot be saved. The message names its term.
    """
    if type(kernel) is not Sum:
        return {"leaves": [_encoded(kernel, kernel.name or label_of(kernel), encoder)], "terms": None}
    leaves: dict[int, tuple[int, Any]] = {}
    terms = []
    for term, named in zip(kernel.summands, kernel.terms(), strict=True):
        for factor in term.factors:
            if id(factor) not in leaves:
                leaves[id(factor)] = (len(leaves), _encoded(factor, str(named.name), encoder))
        factors = [leaves[id(factor)][0] for factor in term.factors]
        variance = None if term.variance is None else float(term.variance)
        terms.append({"factors": factors, "name": term.name, "variance": variance, "given": list(term.given)})
    return {"leaves": [leaf for _, leaf in leaves.values()], "terms": terms}


def _encoded(factor: Kernel, name: str, encoder: Encoder) -> Any:
    with naming(f"The term {name!r}"):
        return encoder.encode(factor)


def decode_kernel(content: Mapping[str, Any], decoder: Decoder) -> Kernel:
    """Return the kernel that `encode_kernel` wrote.

    Args:
        content: The JSON.
        decoder: The decoder of values.

    Raises:
        InvalidArgumentError: If a class is unknown, or a term is invalid.
    """
    leaves: list[Kernel] = [decoder.decode(leaf) for leaf in content["leaves"]]
    if not leaves or not all(isinstance(leaf, Kernel) for leaf in leaves):
        raise InvalidArgumentError("A leaf must be a kernel, got another object.")
    if content["terms"] is None:
        if len(leaves) > 1:
            raise InvalidArgumentError("A kernel must use all its leaves, got others.")
        return leaves[0]
    kernel = Sum(tuple(_term(term, leaves) for term in content["terms"]))
    if not kernel.summands:
        raise InvalidArgumentError("A kernel must have terms, got none.")
    kernel.terms()  # checks unique names
    return kernel


def _term(content: Mapping[str, Any], leaves: list[Kernel]) -> Term:
    factors, name, variance, given = (content[key] for key in ("factors", "name", "variance", "given"))
    is_right = type(factors) is list and bool(factors) and all(type(f) is int and f >= 0 for f in factors)
    is_right = is_right and type(given) is list and len(given) in (0, len(factors))
    is_right = is_right and all(
        given_name is None or (type(given_name) is str and bool(given_name.strip())) for given_name in (name, *given)
    )
    is_positive = variance is None or (type(variance) is float and 0 < variance < math.inf)
    if not is_right or not is_positive:
        raise InvalidArgumentError(f"A term must have valid factors, got {str(content)[:100]}.")
    return Term(tuple(leaves[factor] for factor in factors), name, variance, tuple(given))


def encode_approximations(chosen: Any, encoder: Encoder) -> Any:
    """Return approximations as JSON.

    Args:
        chosen: "auto", an approximation, or a dict by the names of terms.
        encoder: The encoder of values.

    Raises:
        InvalidArgumentError: If a class is not registered. The message names the term.
    """
    if not isinstance(chosen, Mapping):
        return encoder.encode(chosen)
    encoded = {}
    for name, approximation in chosen.items():
        with naming(f"The approximation of the term {name!r}"):
            encoded[name] = encoder.encode(approximation)
    return {"terms": encoded}


def decode_approximations(content: Any, decoder: Decoder) -> Any:
    """Return the approximations that `encode_approximations` wrote.

    Args:
        content: The JSON.
        decoder: The decoder of values.
    """
    if not isinstance(content, dict) or "terms" not in content:
        return decoder.decode(content)
    return {name: approximation_of(approximation, decoder) for name, approximation in content["terms"].items()}


def approximation_of(content: Any, decoder: Decoder) -> Approximation:
    """Return the approximation that JSON describes.

    Args:
        content: The JSON.
        decoder: The decoder of values.

    Raises:
        InvalidArgumentError: If the content is not an approximation.
    """
    approximation = decoder.decode(content)
    if not isinstance(approximation, Approximation):
        raise InvalidArgumentError(f"An approximation must be known, got {str(content)[:100]}.")
    return approximation
