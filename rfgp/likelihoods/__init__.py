"""Likelihoods: distributions of an observation given the latent function."""

from graphs.checks import Registry
from rfgp.errors import InvalidArgumentError
from rfgp.likelihoods.censored import LogNormal as LogNormal
from rfgp.likelihoods.censored import Tobit as Tobit
from rfgp.likelihoods.censored import Weibull as Weibull
from rfgp.likelihoods.exponential import Gamma as Gamma
from rfgp.likelihoods.exponential import NegativeBinomial as NegativeBinomial
from rfgp.likelihoods.exponential import Poisson as Poisson
from rfgp.likelihoods.labels import Bernoulli as Bernoulli
from rfgp.likelihoods.labels import Categorical as Categorical
from rfgp.likelihoods.labels import Ordinal as Ordinal
from rfgp.likelihoods.real import Gaussian as Gaussian
from rfgp.likelihoods.real import Heteroscedastic as Heteroscedastic
from rfgp.likelihoods.real import StudentT as StudentT
from rfgp.likelihoods.role import Expected as Expected
from rfgp.likelihoods.role import InitialMoments as InitialMoments
from rfgp.likelihoods.role import Likelihood as Likelihood
from rfgp.likelihoods.role import LogProbDerivatives as LogProbDerivatives
from rfgp.likelihoods.role import Parameter as Parameter
from rfgp.likelihoods.shares import Beta as Beta
from rfgp.likelihoods.shares import Binomial as Binomial
from rfgp.likelihoods.zeros import HurdlePoisson as HurdlePoisson
from rfgp.likelihoods.zeros import ZeroInflatedNegativeBinomial as ZeroInflatedNegativeBinomial
from rfgp.likelihoods.zeros import ZeroInflatedPoisson as ZeroInflatedPoisson
from rfgp.names import LIKELIHOODS

REGISTRY: Registry[Likelihood] = Registry(
    "likelihood",
    dict(
        zip(
            LIKELIHOODS,
            (
                *(Gaussian, Bernoulli, Categorical, Poisson, NegativeBinomial, StudentT, Heteroscedastic, Gamma),
                *(ZeroInflatedPoisson, ZeroInflatedNegativeBinomial, HurdlePoisson, Ordinal, Beta, Binomial),
                *(Weibull, Tobit, LogNormal),
            ),
            strict=True,
        )
    ),
)


def names() -> tuple[str, ...]:
    """Return the names of all likelihoods.

    Examples:
        >>> import rfgp
        >>> "poisson" in rfgp.likelihoods.names()
        True
    """
    return REGISTRY.names


def register(name: str, likelihood: type[Likelihood]) -> None:
    """Give a likelihood of your own a name, so that models with it can be saved and loaded.

    Files have the name and the parameters, and no code. `rfgp.load` needs the same registration.

    Args:
        name: The name.
        likelihood: The class.

    Raises:
        InvalidArgumentError: If the name is no text or belongs to another class, or the class is no likelihood.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.register("poisson", rfgp.likelihoods.Poisson)  # a name keeps its class
    """
    if not isinstance(name, str) or not (isinstance(likelihood, type) and issubclass(likelihood, Likelihood)):
        raise InvalidArgumentError(
            f"register requires a name and a class of likelihoods, got {name!r} and {likelihood!r}."
        )
    REGISTRY.add(name, likelihood)


def by_name(likelihood: "str | Likelihood") -> Likelihood:
    """Return a likelihood by its name.

    A likelihood is returned unchanged.

    Args:
        likelihood: One of `names()`, or a likelihood.

    Raises:
        InvalidArgumentError: If the name is unknown.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.by_name("student-t")
        StudentT()
    """
    return likelihood if isinstance(likelihood, Likelihood) else REGISTRY.make(likelihood)
