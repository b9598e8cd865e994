"""No approximation: the exact covariance, by functions where there are finitely many."""

from dataclasses import dataclass

from rfgp.approximations.node_features import ExactFeatures
from rfgp.approximations.nodes import node_term, nodes_of
from rfgp.approximations.parts import FinitePart, TermCovariance
from rfgp.approximations.role import Approximation, Cost, TermData, TermPrior, parameter_names, weights_memory
from rfgp.approximations.weights import WeightTerm
from rfgp.blocks import KernelBlock, Prior
from rfgp.columns import Kind
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, constants_of

MOST_FUNCTIONS = 1000
"""The most functions of a term that is computed by their weights. Beyond, its covariance matrix is formed."""


@dataclass(frozen=True, repr=False)
class Exact(Approximation):
    """The exact covariance of a term.

    A term of finitely many functions, such as a linear one or a group, is computed by their weights, which is exact and
    costs less. Other terms take a matrix (n, n) of the n rows, and n^3 operations.

    Attributes:
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Exact()
        Exact()
    """

    def refusal(self, data: TermData) -> str | None:
        """Return None: all terms have a covariance."""
        return None

    def cost(self, data: TermData) -> Cost:
        """Return the cost of a covariance matrix, or of weights."""
        size = _num_functions(data)
        if size is not None:
            return Cost(size, weights_memory(size, data.num_rows), f"{size} functions, exactly")
        return Cost(data.num_rows, 16.0 * data.num_rows**2, f"a covariance matrix of {data.num_rows} rows", False)

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term. Nothing is random."""
        if [factor.kind for factor in data.term.term.factors] == [Kind.NODE]:
            graph, kernel, _ = nodes_of(data)
            return node_term(data, ExactFeatures(graph, kernel))
        if _num_functions(data) is None:
            return KernelTerm(data.term, parameter_names(data, with_scale=True))
        return WeightTerm.of(data, [FinitePart(*factor) for factor in data.term.parts()])


def _num_functions(data: TermData) -> int | None:
    """Return the number of functions of a term if its factors have finitely many and not too many. Else None."""
    product = 1
    for factor, places, _ in data.term.parts():
        functions = factor.functions(data.columns.select(places))
        if functions is None or product * functions.size > MOST_FUNCTIONS:
            return None
        product *= functions.size
    return product


@dataclass(frozen=True, eq=False)
class KernelTerm(TermPrior):
    """A term with its covariance.

    Attributes:
        term: The term.
        names: The paths of its hyperparameters.
    """

    term: BoundTerm
    names: tuple[str, ...]

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        function = TermCovariance(self.term, self.names, constants_of([self.term], columns))
        parameters = tuple(values[name] for name in self.names)
        return Prior(kernels=(KernelBlock(function, function.variances, parameters, name=self.term.name),))
