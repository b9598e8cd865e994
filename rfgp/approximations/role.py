"""The base class of approximations, which turn a term of a kernel into latent blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.grams import Gram
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import OUTPUTSCALE, BoundTerm, constants_of
from rfgp.values import changed_arguments

MIN_NOISE = 1e-6
"""The minimum noise with other approximations, in variances of the target.

With 64 inducing points and a noise of 1e-8, gradients in the lengthscale were 85 % too small."""
MIN_NOISE_OF_LATENT_NEIGHBORS = 1e-8
"""The minimum noise with neighbors of latent values, in variances of the target. Their jitter is 1e-11."""
MIN_NOISE_OF_MATRICES = 1e-10
"""The minimum noise with factorized matrices of rows, features or neighbors, in variances of the target."""
BLOCK_ROWS = 2**16
"""The approximate number of rows whose features are in memory at once."""


@dataclass(frozen=True, eq=False)
class TermData:
    """A term, and the summary of the training rows that approximations use.

    Attributes:
        term: The term.
        columns: The summary of all columns (n, D) of the rows, with a sample of them.
        num_rows: The number n of rows.
        values: The starting hyperparameters in standardized units, by path.
        is_gaussian: Whether the likelihood is Gaussian.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> data.term.name, data.num_rows
        ('rbf', 3)
    """

    term: BoundTerm
    columns: ColumnSummary
    num_rows: int
    values: Values
    is_gaussian: bool = True

    @property
    def constants(self) -> dict[str, Tensor]:
        """The constants of the term by path, (...) each."""
        return constants_of([self.term], self.columns)


@dataclass(frozen=True)
class TermCost:
    """The predicted cost of a term under an approximation.

    Attributes:
        num_features: The number of latent values or weights.
        memory: Bytes of the largest array.
        note: A phrase that describes the computation.
        has_weights: Whether the term has latent values or weights. Otherwise its covariance matrix is formed.

    Examples:
        >>> from rfgp.approximations import TermCost
        >>> TermCost(num_features=512, memory=4e6, note="features of 1,000 rows").num_features
        512
    """

    num_features: int
    memory: float
    note: str
    has_weights: bool = True


def weights_memory(size: int, num_rows: int) -> float:
    """Return the bytes of the features of a block of rows and of their products.

    Args:
        size: The number of features.
        num_rows: The number of rows.
    """
    return 8.0 * size * (min(num_rows, BLOCK_ROWS) + size)


class TermGram(NamedTuple):
    """The covariance of rows as a function of hyperparameters, with its gradient.

    Attributes:
        names: The paths of the hyperparameters with a gradient, in the order of the tensors of a `Gram`.
        at: The map of values by path to the covariance, or None if there is no closed form at these values.
    """

    names: tuple[str, ...]
    at: Callable[[Values], Gram | None]


class TermPrior(ABC):
    """Interface: a term with fixed random draws, as a function of the hyperparameters.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> prior = rfgp.RandomFeatures(8).build(data, seed=0)
        >>> isinstance(prior, TermPrior), prior.has_basis_of(prior)
        (True, True)
    """

    @abstractmethod
    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior of the term.

        Args:
            values: The hyperparameters by path, in standardized units, and learnable draws by path if they differ from
                those of the term.
            columns: The summary of all columns, with all present levels.
        """

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows as a function of the hyperparameters.

        Args:
            inputs: The rows, (n, D).
            columns: The summary of all columns.

        Returns:
            The function, or None if its gradient has no closed form.
        """
        return None

    def has_basis_of(self, other: "TermPrior") -> bool:
        """Return whether another prior of the same term has the same draws.

        Args:
            other: Another prior of the same term.
        """
        return self is other

    @property
    def learnable(self) -> Values:
        """The draws (...) that a fit may change, by path."""
        return {}

    def with_learned(self, values: Values) -> Self:
        """Return the term with other draws (...) by path.

        Args:
            values: The draws (...) by path. Other paths have no effect.
        """
        return self


@dataclass(frozen=True, repr=False)
class Approximation(ABC):
    """An approximation of a term. Approximations are immutable values.

    Attributes:
        seed: The seed of its random draws. If None, that of the model.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> data = gp.state.spec.term_data(gp.state.hyperparameters, 3)[0]
        >>> rfgp.RandomFeatures(8).cost(data).num_features, rfgp.RandomFeatures(8).check(data)
        (16, None)
    """

    seed: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.seed is not None:
            random.resolve_seed(self.seed)

    @abstractmethod
    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None.

        The result is a clause after "because".

        Args:
            data: The term and the rows.
        """

    @abstractmethod
    def cost(self, data: TermData) -> TermCost:
        """Return the predicted cost without allocating anything.

        Args:
            data: The term and the rows.
        """

    def cost_of(self, data: TermData, prior: TermPrior) -> TermCost:
        """Return the cost of a built term.

        Its features may differ from those of a new one.

        Args:
            data: The term and the rows.
            prior: The term from `build`.
        """
        return self.cost(data)

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise for accurate means, in variances of the target.

        Args:
            data: The term and the rows.
        """
        return MIN_NOISE

    def depends_on_hyperparameters(self, data: TermData) -> bool:
        """Return whether the result of `build` depends on the hyperparameters.

        Args:
            data: The term and the rows.
        """
        return False

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term for other hyperparameters.

        It is the same term if nothing changes.

        Args:
            data: The term and the rows, at the other hyperparameters.
            seed: The seed for the term.
            prior: The term from `build`.
        """
        return self.build(data, seed) if self.depends_on_hyperparameters(data) else prior

    @abstractmethod
    def build(self, data: TermData, seed: int) -> TermPrior:
        """Build the prior of a term with its random draws.

        Args:
            data: The term and the rows.
            seed: The seed of the draws. Each term has its own.

        Returns:
            The term with fixed draws.
        """

    def vfe_counterpart(self, term: TermPrior) -> TermPrior | None:
        """Return the term with a VFE residual, for evidence bounds.

        The residual k - phi phi^T of the kernel k and the features phi must be positive semidefinite. Such terms
        bound the exact log marginal likelihood (`rfgp.solvers.lowrank.bounds`).

        Args:
            term: A term from `build`.

        Returns:
            The term, or None if the residual cannot be computed or may be indefinite.
        """
        return None

    def check(self, data: TermData) -> None:
        """Raise if the approximation does not support a term.

        Args:
            data: The term and the rows.

        Raises:
            InvalidArgumentError: If it does not. The message states the reason and a remedy.
        """
        reason = self.unsupported_reason(data)
        if reason is not None:
            raise InvalidArgumentError(f"{self!r} cannot be used for the term {data.term.name!r}, because {reason}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed_arguments(self))})"

    def checked_cost(self, data: TermData) -> TermCost:
        """Return the predicted cost, after checking that the term is supported.

        Args:
            data: The term and the rows.

        Raises:
            InvalidArgumentError: If the approximation does not support the term.
        """
        self.check(data)
        return self.cost(data)


def num_weights(data: TermData, prior: TermPrior) -> int:
    """Return the number of weights of a built term.

    Args:
        data: The term.
        prior: The term from `Approximation.build`.
    """
    return prior.at(data.values, data.columns).num_features


def scale_name(term: BoundTerm, values: Values) -> str | None:
    """Return the path of the one variance of a term, or None.

    It is the output scale, or the only variance of a factor.

    Args:
        term: The term.
        values: The hyperparameters by path.
    """
    if term.outputscale is not None:
        return term.outputscale
    paths = [f"{prefix}variance" for factor, _, prefix in term.parts() if factor.has_own_variance]
    return paths[0] if len(paths) == 1 and values[paths[0]].numel() == 1 else None


def parameter_names(data: TermData, *, with_scale: bool) -> tuple[str, ...]:
    """Return the paths of the hyperparameters of the covariance of a term.

    Args:
        data: The term.
        with_scale: Whether the term's own variance is among them.
    """
    term = data.term
    names = [path for path in data.values if any(path.startswith(prefix) for prefix in term.prefixes)]
    of_factors = [path for path in names if "." not in _rest(path, term.prefixes)]
    scale = scale_name(term, data.values)
    others = [path for path in of_factors if path != scale and not path.endswith(f".{OUTPUTSCALE}")]
    return (*others, *([scale] if with_scale and scale is not None else []))


def _rest(path: str, prefixes: tuple[str, ...]) -> str:
    return min((path[len(prefix) :] for prefix in prefixes if path.startswith(prefix)), key=len)
