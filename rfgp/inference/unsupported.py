"""Error messages for operations that a distribution does not support."""

from functools import partial
from typing import Any, NoReturn

from rfgp.errors import InvalidArgumentError

NO_EXPOSURE = "exposure requires a likelihood of counts, or of positive values around e^f."
NO_LOGARITHM = (
    "Observations under this likelihood are not exponentials of Gaussian values. Use predict(X).observed() instead."
)
NO_COVARIANCE = (
    "Observations under this likelihood have no covariance in closed form. Use that of many samples, or that of the "
    "latent function, predict(X).covariance."
)
NO_SUMS = "Sums of observations under this likelihood have no distribution in closed form. Use many samples instead."


def check_closed_form(has_closed_form: bool, message: str) -> None:
    """Raise unless sums, exponentials and covariances of values have a closed form.

    Args:
        has_closed_form: Whether they have one.
        message: The error message.

    Raises:
        InvalidArgumentError: If they have none.
    """
    if not has_closed_form:
        raise InvalidArgumentError(message)


def _raise_unsupported(message: str, prediction: Any) -> NoReturn:
    """Raise an error for the observations of a prediction."""
    raise InvalidArgumentError(message)


raise_unsupported_functionals = partial(
    _raise_unsupported,
    "Functionals of the latent function have no observations under this likelihood. Use observations at the points, "
    "predict(X).observed().sample(...), instead.",
)
raise_unsupported_terms = partial(
    _raise_unsupported,
    "A term has no observations of its own under a likelihood that is not Gaussian. Use the latent distribution, or "
    "predict(X).observed() of all terms.",
)
raise_unsupported_derivative = partial(
    _raise_unsupported, "A derivative has no observations. Use its latent distribution."
)
raise_unsupported_integrals = partial(
    _raise_unsupported, "An integral has no observations. Use its latent distribution."
)
