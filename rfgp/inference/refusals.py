"""Error messages for operations that a distribution does not support."""

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
NO_FUNCTIONALS = (
    "Functionals of the latent function have no observations under this likelihood. Use observations at the points, "
    "predict(X).observed().sample(...), instead."
)
NO_TERM_OBSERVATIONS = (
    "A term has no observations of its own under a likelihood that is not Gaussian. Use the latent distribution, or "
    "predict(X).observed() of all terms."
)
NO_SLOPE_OBSERVATIONS = "A derivative has no observations. Use its latent distribution."
NO_INTEGRAL_OBSERVATIONS = "An integral has no observations. Use its latent distribution."


def refuse_slopes(prediction: Any) -> NoReturn:
    """Raise for the observations of a derivative.

    Args:
        prediction: The prediction of a derivative.

    Raises:
        InvalidArgumentError: Always.
    """
    raise InvalidArgumentError(NO_SLOPE_OBSERVATIONS)


def refuse_integrals(prediction: Any) -> NoReturn:
    """Raise for the observations of an integral.

    Args:
        prediction: The prediction of an integral.

    Raises:
        InvalidArgumentError: Always.
    """
    raise InvalidArgumentError(NO_INTEGRAL_OBSERVATIONS)


def refuse_functionals(prediction: Any) -> NoReturn:
    """Raise for observations of functionals if the likelihood is not Gaussian.

    Args:
        prediction: The prediction of functionals.

    Raises:
        InvalidArgumentError: Always.
    """
    raise InvalidArgumentError(NO_FUNCTIONALS)


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


def refuse_terms(prediction: Any) -> NoReturn:
    """Raise for observations of some terms under a non-Gaussian likelihood.

    Args:
        prediction: The prediction of some terms.

    Raises:
        InvalidArgumentError: Always.
    """
    raise InvalidArgumentError(NO_TERM_OBSERVATIONS)
