"""The selection of an approximation for each term, and approximations from text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import graphs
from graphs.advice import MAX_EIGENVECTOR_ENTRIES, Candidate, sparse_factor_candidate
from rfgp.approximations.exact import MAX_FEATURES, Exact, SparsePrecision, fields_of, is_markov, is_matern_chain
from rfgp.approximations.fourier import MAX_COLUMNS, EquispacedFourier, RandomFeatures, column_indices_of
from rfgp.approximations.inducing_points import InducingPoints, Vecchia
from rfgp.approximations.nodes import (
    NONZEROS_PER_WALKER,
    Chebyshev,
    RandomWalks,
    RationalPrecision,
    Taylor,
    TruncatedSpectrum,
    nodes_of,
    sample_of,
)
from rfgp.approximations.role import Approximation, TermData
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.expressions import Call, Name, Reader, bound, check_known, constant, made
from rfgp.limits import limits
from rfgp.messages import quoted, short_repr
from rfgp.names import APPROXIMATIONS as NAMES

# --- Selection of an approximation for each term ---------------------------------------------------------------------

AUTO = "auto"
"""The option of an automatic approximation."""
MIN_FREQUENCIES = 4
"""The minimum number of frequencies of a term that shares a budget."""
MAX_LEVELS = 200
"""The maximum number of functions of levels with dense weights. Above it, a sparse precision is the default."""

MAX_EXACT_OBSERVED = 1000
"""The number of rows above which equispaced frequencies replace an exact kernel of one column, if the likelihood is not
Gaussian.

Its posterior takes many factors of an n x n matrix. At 1,500 rows of two or three classes, counts and Student's t,
equispaced frequencies took 0.5 to 2.2 s of a processor instead of 6 to 13 s, at equal held-out scores. With four
columns, 512 random features lost up to 0.02 nats a row of two classes and 0.17 of counts, and 512 inducing points took
more time than exact kernels."""
MAX_LATENT = 300_000
"""The maximum number of latent values of an automatic product of fields with more than 2,000 rows."""
MAX_LATENT_PER_ROW = 20
"""The maximum number of latent values per row of an automatic product of fields with at most 2,000 rows.

With more latent values per row, the exact covariance costs less."""
MAX_MARKOV = 10_000
"""The maximum number of rows of a sum of terms in which processes of one column are Markov processes by default.

With more rows, equispaced frequencies are faster, because they need one pass over the rows. A process of one column
with nu = 3/2 plus groups with 124 levels takes 5 s instead of 127 s for 100,000 rows on one core, and 3 s instead of
7 s for 20,000 rows."""
AVOIDS_COVARIANCE_MATRIX = (Vecchia, SparsePrecision, InducingPoints, EquispacedFourier)
"""The approximations that avoid the covariance matrix of all rows."""
MIN_EQUISPACED = 1500
"""The limit of the features of the automatic grid of a single stationary term, for up to 15,000 rows.

Neighbors take less time than more features: 2.9 s instead of 6.7 s for 5,000 rows of the `cube` of
`benchmarks/races/low_dimensions.py`, at an NLPD that is 0.0005 higher."""
ROWS_PER_EQUISPACED = 10
"""The minimum number of rows per feature of this grid, for more rows."""
MAX_IN_MEMORY = 2_000_000
"""The maximum number of rows in memory for nearest neighbors, and for sums with a Matern process of one column.

Features of more rows are read in blocks."""
MAX_ALONE = 50_000_000
"""The maximum number of rows in memory for a Matern process of one column as the only term, with Gaussian likelihood.

It takes 110 bytes per row."""


def read_approximation(value: Any) -> Any:
    """Check an approximation argument.

    Args:
        value: The argument.

    Returns:
        "auto", an approximation, or a dict of approximations by the names of terms.

    Raises:
        InvalidArgumentError: If the value is none of these.
    """
    if isinstance(value, Mapping):
        wrong = [name for name, approximation in value.items() if not isinstance(approximation, Approximation)]
        if wrong:
            raise InvalidArgumentError(
                f"The approximation of {wrong[0]!r} must be a value such as rfgp.Exact(), got {value[wrong[0]]!r}."
            )
        return dict(value)
    if value == AUTO or isinstance(value, Approximation):
        return value
    raise InvalidArgumentError(
        f'approximation must be "auto", a value such as rfgp.RandomFeatures(512), or a dict of values by the names of '
        f"terms, got {value!r}."
    )


def assign(
    approximation: Any,
    terms: Sequence[TermData],
    others: Mapping[str, Approximation] | None = None,
    *,
    in_blocks: bool = False,
    max_nonzeros: int | None = None,
) -> dict[str, Approximation]:
    """Return the approximation of each term by its name.

    A single value applies to every term that it supports. Each value of a dict must support its term.

    Args:
        approximation: "auto", an approximation, or a dict by the names of terms.
        terms: The terms and the rows.
        others: The approximations of the other terms by name. If None, they are automatic.
        in_blocks: Whether rows are read in blocks, so that automatic approximations have weights only.
        max_nonzeros: The budget of features of a node of a large graph, for an automatic approximation. If None, 256.

    Raises:
        InvalidArgumentError: If a name is unknown, or an approximation does not support its term, or any term.
    """
    chosen: dict[str, Approximation] = {}
    names = [data.term.name for data in terms]
    if isinstance(approximation, Mapping):
        unknown = [name for name in approximation if name not in names]
        if unknown:
            raise InvalidArgumentError(f"There is no term {unknown[0]!r}. The terms are {', '.join(map(repr, names))}.")
        for data in terms:
            if data.term.name in approximation:
                approximation[data.term.name].check(data)
                chosen[data.term.name] = approximation[data.term.name]
    elif isinstance(approximation, Approximation):
        supported = [data for data in terms if approximation.unsupported_reason(data) is None]
        if not supported:
            approximation.check(terms[0])
        chosen = {data.term.name: approximation for data in supported}
        if isinstance(approximation, SparsePrecision):
            own = {data.term.name: approximation for data in supported if is_markov(data.term, data.columns)}
            chosen = dict.fromkeys(_filtered(terms, own) or chosen, approximation)
    assigned = {**(others or {}), **chosen}
    automatic = [data for data in terms if data.term.name not in assigned]
    if any(data.is_averaged for data in terms):
        return {name: assigned.get(name) or _of_areas(data) for name, data in zip(names, terms, strict=True)}
    has_neighbors = _has_neighbors(assigned)
    if automatic and not in_blocks and is_advised(terms):
        assigned[names[0]] = advised(terms[0], max_nonzeros)
    elif in_blocks:
        assigned |= {data.term.name: _by_weights(data) for data in automatic}
    else:
        if filtered := _filtered(terms, assigned):
            most = MAX_FEATURES // max(len(automatic) - len(filtered), 1)
            beside = {data.term.name: _by_weights(data, most) for data in automatic}
            assigned = {**beside, **dict.fromkeys(filtered, SparsePrecision()), **assigned}
        is_alone = len(terms) == 1 and not others and terms[0].is_gaussian
        sparse = [data.term.name for data in automatic if _is_sparse(data, has_neighbors, is_alone=is_alone)]
        assigned = {**dict.fromkeys(sparse, SparsePrecision()), **assigned}
        needs_weights = any(isinstance(used, AVOIDS_COVARIANCE_MATRIX) for used in assigned.values())
        defaults = {data.term.name: _default(data, needs_weights, has_neighbors) for data in automatic}
        assigned = {**defaults, **assigned}
    used = {name: assigned[name] for name in names}
    _check_filtered(used, terms)
    return {**used, **_faster_stationary(used, terms, [data.term.name for data in automatic], in_blocks=in_blocks)}


def _of_areas(data: TermData) -> Approximation:
    """Return the approximation of a term of rows that are means over areas."""
    exact, points = Exact(), InducingPoints()
    is_small = data.num_rows <= limits().max_exact_rows or exact.cost(data).has_weights
    return exact if is_small or points.unsupported_reason(data) else points


def _faster_stationary(
    chosen: Mapping[str, Approximation], terms: Sequence[TermData], automatic: Sequence[str], *, in_blocks: bool
) -> dict[str, Approximation]:
    """Return equispaced frequencies, or neighbors, of stationary terms for which they are faster.

    Equispaced frequencies also replace Markov processes of sums. This requires many rows, other terms with few
    functions, and lattices on the same columns or on at most three columns in total. A Markov process without other
    terms is unchanged. If the lattice of a single stationary term is truncated, rows in memory use nearest neighbors.

    Under a likelihood that is not Gaussian, only exact kernels of one column are replaced.

    Args:
        chosen: The approximations of all terms by name.
        terms: The terms.
        automatic: The names of terms whose approximations are not given.
        in_blocks: Whether rows are read in blocks.
    """
    stationary = [data for data in terms if any(factor.measure is not None for factor in data.term.term.factors)]
    names = [data.term.name for data in stationary]
    if not stationary or not {*names} <= {*automatic}:
        return {}
    columns = {column_indices_of(data.term) for data in stationary}
    num_rows, equispaced = terms[0].num_rows, EquispacedFourier()
    if not terms[0].is_gaussian:
        few = replace(equispaced, max_features=max(1, num_rows // ROWS_PER_EQUISPACED))
        are_replaced = (
            not in_blocks
            and num_rows > MAX_EXACT_OBSERVED
            and [len(indices) for indices in columns] == [1]
            and all(isinstance(chosen[name], Exact) for name in names)
            and all(chosen[data.term.name].cost(data).has_weights for data in terms if data.term.name not in names)
            and all(few.unsupported_reason(data) is None for data in stationary)
        )
        return dict.fromkeys(names, equispaced) if are_replaced else {}
    kept = {**chosen}
    if len(terms) > 1 and num_rows > MAX_MARKOV:
        kept = {name: approximation for name, approximation in chosen.items() if name not in names}
    exact = [data for data in terms if isinstance(chosen[data.term.name], Exact)]
    if (
        num_rows <= limits().max_exact_rows
        or not all(isinstance(use, RandomFeatures | Exact) for use in kept.values())
        or not all(chosen[data.term.name].cost(data).has_weights for data in exact)
    ):
        return {}
    if len(stationary) == 1 and not in_blocks:
        max_features = max(MIN_EQUISPACED, num_rows // ROWS_PER_EQUISPACED)
        equispaced = replace(equispaced, max_features=min(max_features, equispaced.max_features))
        if num_rows <= MAX_IN_MEMORY and equispaced.is_truncated(stationary[0]):
            return {names[0]: Vecchia()} if isinstance(chosen[names[0]], RandomFeatures) else {}
    pairs = [(set(a), set(b)) for a in columns for b in columns if a != b]
    if any(a & b or len(a | b) > MAX_COLUMNS for a, b in pairs):
        return {}
    are_supported = all(equispaced.unsupported_reason(data) is None for data in stationary)
    return dict.fromkeys(names, equispaced) if are_supported else {}


def _filtered(terms: Sequence[TermData], known: Mapping[str, Approximation]) -> list[str]:
    """Return the names of the Markov processes of one column that a filter computes, or none.

    One of them has no other form than that of a filter, such as a Wiener process. The other terms have dense weights:
    few functions, or features if there are too many rows for covariances or the filter is requested.

    Args:
        terms: All terms of the model.
        known: The approximations of some terms by name.
    """
    sparse = [data for data in terms if isinstance(known.get(data.term.name, SparsePrecision()), SparsePrecision)]
    has_weights = {data.term.name: Exact().cost(data).has_weights for data in terms}
    open_ones = [data for data in sparse if data.term.name in known or not has_weights[data.term.name]]
    markov = [data for data in open_ones if is_markov(data.term, data.columns)]
    columns = {tuple(data.term.columns) for data in [one for one in markov if one.term.name in known] or markov}
    chains = [data for data in open_ones if tuple(data.term.columns) in columns and _is_process(data)]
    others = [data for data in terms if data not in chains]
    are_features = any(data.term.name in known for data in chains) or terms[0].num_rows > limits().max_exact_rows
    are_weights = all(
        _has_dense_weights(data, known[data.term.name])
        if data.term.name in known
        else are_features or has_weights[data.term.name]
        for data in others
    )
    return [data.term.name for data in chains] if len(columns) == 1 and are_weights else []


def _is_process(data: TermData) -> bool:
    """Return whether a term is a Markov process of one column that can be filtered."""
    return is_markov(data.term, data.columns) or is_matern_chain(data.term, data.columns)


def _has_dense_weights(data: TermData, used: Approximation) -> bool:
    """Return whether an approximation of a term has dense weights."""
    is_dense = isinstance(used, RandomFeatures | EquispacedFourier | InducingPoints | Exact)
    return is_dense and used.cost(data).has_weights and not getattr(used, "residual", None)


def _check_filtered(chosen: Mapping[str, Approximation], terms: Sequence[TermData]) -> None:
    """Raise if a term is filtered along its column, and another one cannot be.

    Raises:
        InvalidArgumentError: If another term is neither a process of this column nor has dense weights, or there are
            too many weights.
    """
    sparse = [data for data in terms if isinstance(chosen[data.term.name], SparsePrecision)]
    filtered, size = [data.term for data in sparse if is_markov(data.term, data.columns)], 0
    for data in terms if filtered else ():
        name, other, used = filtered[0].name, data.term.name, chosen[data.term.name]
        is_chain = data in sparse and data.term.columns == filtered[0].columns and _is_process(data)
        if not is_chain and (data in sparse or not _has_dense_weights(data, used)):
            raise InvalidArgumentError(
                f"The term {name!r} is filtered along its column, so that other terms must be processes of the same "
                f"column or have dense weights, got the term {other!r} with {used!r}. Use Exact() for {name!r}, or "
                f"{_by_weights(data)!r} for {other!r}."
            )
        size += 0 if is_chain else used.cost(data).num_features
    if size > MAX_FEATURES:
        raise InvalidArgumentError(
            f"At most {MAX_FEATURES:,} weights may stand beside the term {filtered[0].name!r}, which is filtered along "
            f"its column, got {size:,}. Use fewer features, or Exact() for this term."
        )


def _has_neighbors(known: Mapping[str, Approximation]) -> bool:
    """Return whether some of the approximations by name have nearest neighbors.

    Raises:
        InvalidArgumentError: If several have different neighbors, or one has them for a residual of inducing points.
    """
    full = {name: approximation for name, approximation in known.items() if isinstance(approximation, Vecchia)}
    points = {name: approximation for name, approximation in known.items() if isinstance(approximation, InducingPoints)}
    residual = [name for name, approximation in points.items() if approximation.residual is not None]
    if residual and len(full) + len(residual) > 1:
        raise InvalidArgumentError(
            f"Only one term may have neighbors if they approximate a residual, as those of {residual[0]!r} do, got "
            f"{', '.join(map(repr, [*residual, *full]))}. Name the term in a dict, and use InducingPoints() without a "
            "residual for others."
        )
    if len(set(full.values())) > 1:
        raise InvalidArgumentError(
            f"Terms with nearest neighbors must share one value, because their sum is approximated, got several for "
            f"{', '.join(map(repr, full))}. Use one rfgp.Vecchia for all of them."
        )
    return bool(full or residual)


# --- Kernels on the nodes of a large graph: what `graphs.advise` proposes --------------------------------------------

MAX_NONZEROS = NONZEROS_PER_WALKER * RandomWalks().num_walkers
"""The default budget of features of a node."""
SWITCH_ERROR_RATIO = 2.0
"""The ratio of the present to the best error above which a fit changes its features."""
_OF_NODES = {kind.kind: kind for kind in (RandomWalks, Chebyshev, Taylor, TruncatedSpectrum)}


def is_advised(terms: Sequence[TermData]) -> bool:
    """Return whether the automatic approximation of the terms is that of `graphs.advise`.

    It is for one kernel on the nodes of a graph that is too large for the exact kernel.

    Args:
        terms: All terms of the model.
    """
    if len(terms) != 1 or RandomWalks().unsupported_reason(terms[0]) is not None:
        return False
    graph: graphs.Graph = nodes_of(terms[0])[0]
    return graph.num_nodes > limits().max_exact_nodes


def advised(data: TermData, max_nonzeros: int | None = None, present: Approximation | None = None) -> Approximation:
    """Return the approximation that `graphs.advise` proposes at the hyperparameters of a term.

    Args:
        data: The term, of one kernel on nodes.
        max_nonzeros: The budget of features of a node. If None, 256.
        present: The approximation in use. It is kept unless its error is more than twice that of the best one. If None,
            none is in use.

    Returns:
        The approximation. If no series converges to the kernel, few eigenvectors have its variance. They are proposed
        if they have at most 2,500,000 entries.

    Raises:
        graphs.InvalidArgumentError: If no series converges, the eigenvectors have more entries, and no approximation is
            in use.
    """
    graph, kernel, _ = nodes_of(data)
    sparse = sparse_factor_candidate(graph, kernel)
    if sparse is not None:
        return _of_candidate(sparse)
    try:
        advice = graphs.advise(graph, kernel, max_nonzeros or MAX_NONZEROS, num_nodes=len(sample_of(graph)))
    except graphs.InvalidArgumentError:
        rank = min(max_nonzeros or MAX_NONZEROS, graph.num_nodes)
        if rank * graph.num_nodes <= MAX_EIGENVECTOR_ENTRIES:
            return TruncatedSpectrum(rank)
        if present is None:
            raise
        return present
    best = advice.candidates[0]  # all are within the budget, of the sample or of the whole graph
    error = min((one.error for one in advice.candidates if _is_alike(_of_candidate(one), present)), default=math.inf)
    return present if present is not None and error <= SWITCH_ERROR_RATIO * best.error else _of_candidate(best)


def _is_alike(first: Approximation, second: Approximation | None) -> bool:
    """Return whether approximations are equal but for options of walks, which follow the kernel."""
    return first == second or (isinstance(first, RandomWalks) and isinstance(second, RandomWalks))


def _of_candidate(candidate: Candidate) -> Approximation:
    """Return the approximation of a candidate. Fields with sparse precisions follow the hyperparameters."""
    if candidate.features == "precision":
        return SparsePrecision()
    if candidate.features == "rational":
        return RationalPrecision()
    return _OF_NODES[candidate.features](**candidate.options)


def names_sharing_budget(given: Any, chosen: Mapping[str, Approximation]) -> list[str]:
    """Return the names of the terms that share a budget of features.

    Args:
        given: "auto", an approximation, or a dict by the names of terms. Terms of a dict do not share.
        chosen: The approximations of all terms by name.
    """
    named = given if isinstance(given, Mapping) else {}
    random = [name for name, approximation in chosen.items() if isinstance(approximation, RandomFeatures)]
    return [name for name in random if name not in named]


def with_budget(
    budget: int, chosen: Mapping[str, Approximation], terms: Sequence[TermData], effective_dof: Mapping[str, float]
) -> dict[str, Approximation]:
    """Return approximations with a total of about `budget` random features.

    For m_t frequencies of term t, E KL is about the sum over terms of V_t / (4 m_t). V_t is nearly proportional to the
    square of the effective degrees of freedom d_t. So the optimal m_t is proportional to d_t.

    Args:
        budget: The number of features.
        chosen: The approximations of all terms by name.
        terms: The terms.
        effective_dof: The effective degrees of freedom of the terms that share the budget, by name. Other terms are
            unchanged.
    """
    result, total = dict(chosen), sum(effective_dof.values())
    for data in terms:
        approximation, name = chosen[data.term.name], data.term.name
        if isinstance(approximation, RandomFeatures) and name in effective_dof:
            features_of_one = replace(approximation, num_frequencies=1).cost(data).num_features
            count = round(budget * effective_dof[name] / (total * features_of_one))
            result[name] = replace(approximation, num_frequencies=max(count, MIN_FREQUENCIES))
    return result


def _default(data: TermData, needs_weights: bool, has_neighbors: bool) -> Approximation:
    """Return the default approximation of a term for rows in memory, without measurements.

    Args:
        data: The term and the rows.
        needs_weights: Whether another term has neighbors, a sparse precision or inducing points. Covariance matrices of
            all rows are then avoided.
        has_neighbors: Whether another term has neighbors.
    """
    if _is_sparse(data, has_neighbors, needs_weights=needs_weights):
        return SparsePrecision()
    exact, features, walks = Exact(), RandomFeatures(), RandomWalks()
    graph = next((factor.nodes for factor in data.term.term.factors if factor.nodes is not None), None)
    if graph is not None and graph.num_nodes > limits().max_exact_nodes and walks.unsupported_reason(data) is None:
        return walks
    cost = exact.cost(data)
    is_finite = cost.has_weights and cost.num_features < data.num_rows
    is_small = data.num_rows <= limits().max_exact_rows
    if is_finite or (is_small and not needs_weights):
        return exact
    is_series = not any(factor.measure is not None for factor in data.term.term.factors)
    if features.unsupported_reason(data) is None and (is_series or not is_small):
        return features
    return exact if exact.has_grid(data) and not needs_weights else InducingPoints()


def _by_weights(data: TermData, most: int | None = None) -> Approximation:
    """Return the default approximation with dense weights, for rows in blocks or beside a filter.

    Args:
        data: The term and the rows.
        most: The maximum number of features. If None, any number.
    """
    if Exact().cost(data).has_weights:
        return Exact()
    features = RandomFeatures()
    if features.unsupported_reason(data) is not None:
        return InducingPoints()
    return features if most is None or features.cost(data).num_features <= most else InducingPoints()


def _is_sparse(data: TermData, has_neighbors: bool, *, needs_weights: bool = False, is_alone: bool = False) -> bool:
    """Return whether the default approximation of a term is its sparse precision.

    Such terms are fields on roads, surfaces and graphs, groups of many levels, and processes of one column. On few
    rows, processes of one column use a covariance matrix unless another term has weights.

    Args:
        data: The term and the rows.
        has_neighbors: Whether another term has neighbors.
        needs_weights: Whether another term has neighbors, a sparse precision or inducing points.
        is_alone: Whether there is no other term, and the likelihood is Gaussian.
    """
    sparse = SparsePrecision()
    if sparse.unsupported_reason(data) is not None:
        return False
    if is_markov(data.term, data.columns):  # `_filtered` decides
        return False
    fields, factors = fields_of(data.term, data.columns), data.term.term.factors
    is_small = data.num_rows <= limits().max_exact_rows
    is_chain = any(factor.kind is ColumnKind.NUMBER and factor.measure is not None for factor, _, _ in fields)
    if len(fields) > 1 or (is_chain and len(factors) > 1):
        max_latent = MAX_LATENT_PER_ROW * data.num_rows if is_small else MAX_LATENT
        if sparse.cost(data).num_features > max_latent:
            return False
    if {factor.kind for factor in factors} & {ColumnKind.COORDINATE, ColumnKind.NODE}:
        return True
    if is_chain:
        is_fastest = needs_weights or data.num_rows > limits().max_exact_rows
        max_rows = MAX_ALONE if is_alone and len(factors) == 1 else MAX_IN_MEMORY
        return not has_neighbors and is_fastest and data.num_rows <= max_rows
    cost = Exact().cost(data)
    return not cost.has_weights or cost.num_features > MAX_LEVELS


# --- Approximations from text, such as "RandomFeatures(256)", without running code -----------------------------------

APPROXIMATIONS: dict[str, type[Approximation]] = dict(
    zip(
        NAMES,
        (
            Exact,
            RandomFeatures,
            EquispacedFourier,
            InducingPoints,
            Vecchia,
            SparsePrecision,
            RandomWalks,
            Chebyshev,
            Taylor,
            TruncatedSpectrum,
            RationalPrecision,
        ),
        strict=True,
    )
)
"""The approximations by name."""
_EXAMPLE = '"RandomFeatures(256)" or "trend=Vecchia(30), local=RandomFeatures(128)"'


def parse(text: str) -> Any:
    """Return the approximation of a text, or approximations by names. No code is run.

    Args:
        text: "auto", a class with or without arguments, or approximations by the names of terms, such as
            `trend=Vecchia(30)`. Use a dict if a name is not a word: `{"group(store)": Exact()}`.

    Returns:
        "auto", an approximation, or a dict of approximations by the names of terms, as `rfgp.GP` takes them.

    Raises:
        InvalidArgumentError: If an approximation or argument is unknown, or the text has another form.

    Examples:
        >>> from rfgp import approximations
        >>> approximations.parse("RandomFeatures(256, learn_frequencies=True)")
        RandomFeatures(num_frequencies=256, learn_frequencies=True)
        >>> approximations.parse("trend=Vecchia, local=InducingPoints(64, residual=Vecchia(20))")["trend"]
        Vecchia()
    """
    call = Reader("approximation", _EXAMPLE).read_arguments(text)
    if call.options and not call.arguments:
        return _by_name(call.options)
    if call.options or len(call.arguments) != 1:
        raise InvalidArgumentError(
            f"The approximation must be one value, or values by the names of terms, got {quoted(text)}. Use "
            '"trend=Vecchia(30), local=RandomFeatures(128)".'
        )
    (value,) = call.arguments
    if isinstance(value, dict):
        return _by_name(value)
    return AUTO if value in (Name(AUTO), AUTO) else _value(value)


def _by_name(values: Mapping[str, Any]) -> dict[str, Approximation]:
    if not values:
        raise InvalidArgumentError('The approximations of terms must be at least one, got none. Use "auto".')
    return {name: _value(value) for name, value in values.items()}


def _value(node: Any) -> Approximation:
    """Return the approximation of a node."""
    call = Call(node.text, (), {}) if isinstance(node, Name) else node
    if not isinstance(call, Call) or not call.function.isidentifier():
        word = short_repr(node) if node is None or isinstance(node, bool | int | float | str) else "another expression"
        raise InvalidArgumentError(f"An approximation must be such as RandomFeatures(256) or Exact, got {word}.")
    check_known("approximation", call.function, APPROXIMATIONS)
    kind = APPROXIMATIONS[call.function]
    arguments = {name: _argument(name, value) for name, value in bound("approximation", call, kind).items()}
    approximation: Approximation = made("approximation", kind, arguments)
    return approximation


def _argument(name: str, value: Any) -> Any:
    """Return an argument, which is an approximation, a number or a text."""
    is_value = isinstance(value, Call) or (isinstance(value, Name) and value.text in APPROXIMATIONS)
    return _value(value) if is_value else constant(name, value)
