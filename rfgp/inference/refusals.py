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


def check_closed_form(is_known: bool, refusal: str) -> None:
    """Raise unless sums, exponentials and covariances of values have a closed form.

    Args:
        is_known: Whether they have one.
        refusal: The message.

    Raises:
        InvalidArgumentError: If they have none.
    """
    if not is_known:
        raise InvalidArgumentError(refusal)


def _refuse(refusal: str, prediction: Any) -> NoReturn:
    """Raise an error for the observations of a prediction."""
    raise InvalidArgumentError(refusal)


refuse_functionals = partial(
    _refuse,
    "Functionals of the latent function have no observations under this likelihood. Use observations at the points, "
    "predict(X).observed().sample(...), instead.",
)
refuse_terms = partial(
    _refuse,
    "A term has no observations of its own under a likelihood that is not Gaussian. Use the latent distribution, or "
    "predict(X).observed() of all terms.",
)
refuse_slopes = partial(_refuse, "A derivative has no observations. Use its latent distribution.")
refuse_integrals = partial(_refuse, "An integral has no observations. Use its latent distribution.")
