"""The page of the demo: four inputs with fits, terms and comparisons with the exact processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rfgp import kernels as k
from rfgp import metrics
from rfgp.approximations import RandomFeatures
from rfgp.compare import Comparison
from rfgp.effects.variables import input_frame, variables_of
from rfgp.fields import Field, NodePosterior
from rfgp.gp import GP
from rfgp.messages import counted
from rfgp.palette import COLOR_MAPS
from rfgp.report import figures, glance, making, terms, words
from rfgp.report.fields import view, views
from rfgp.report.page import Block, Command, Plot, Section, Text, render
from rfgp.tables import Table, read_table

_FREQUENCIES = 64
"""The frequencies of each term of the table's sum."""
_POINTS = 100
"""The rows at which the sum is compared with its exact process."""


@dataclass(frozen=True)
class _Words:
    """The title of an input, its description, and the command for such a file."""

    title: str
    content: str
    command: str


_INPUTS = {
    "table": _Words(
        "A table",
        "Four columns of different units, numbered from 0. The target, yield, is a curve in the angle plus an "
        "interaction of temperature and thickness, with noise. The column idle has no effect.",
        "rfgp fit your-table.csv --target COLUMN --out results",
    ),
    "mesh": _Words(
        "A mesh",
        "A bumpy sphere. The field is the z component of the normals of the faces.",
        "rfgp mesh your-mesh.stl --values your-values.csv --out results",
    ),
    "roads": _Words(
        "Roads",
        "The roads of a town with sensors of speed, in mph.",
        "rfgp traffic your-roads.geojson --target PROPERTY --out results",
    ),
    "terrain": _Words(
        "A terrain",
        "Hills on a square. The field is the z component of the normals of the faces. The exact process has a sparse "
        "precision.",
        "rfgp mesh your-terrain.ply --kernel regularized-laplacian --out results",
    ),
}


@dataclass(frozen=True, eq=False)
class DemoCase:
    """One input of the demo with its comparison.

    Attributes:
        path: The file of the input.
        comparison: The comparison of `rfgp.compare.compare_file`.
        fields: The field and its exact posterior at all nodes. If None, the input is a table.
    """

    path: Path
    comparison: Comparison
    fields: tuple[Field, NodePosterior] | None = None

    @property
    def closest(self) -> tuple[str, int]:
        """The method and the size with the smallest KL from the exact process."""
        comparison = self.comparison
        return min(comparison.groups(), key=lambda pair: comparison.estimate("kl", *pair).mean)

    @property
    def card(self) -> tuple[str, str, str]:
        """The title, the KL per held-out point of the method with the smallest KL, and a remark."""
        comparison, (method, size) = self.comparison, self.closest
        count = len(comparison.example.observed)
        errors = [
            words.number(value) for value in (comparison.estimate("rmse", method, size).mean, comparison.exact[0].rmse)
        ]
        remark = (
            f"nats per held-out point: KL from the exact process of {method}, m = {size}, the closest. Its RMSE is "
            f"{errors[0]}, that of the exact process {errors[1]}"
        )
        return _INPUTS[self.path.stem].title, f"{comparison.estimate('kl', method, size).mean / count:.2g}", remark


def demo_page(cases: Sequence[DemoCase]) -> str:
    """Return the page of the demo as one HTML file.

    Args:
        cases: The inputs. Their files are named table, mesh, roads or terrain.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets
        >>> from rfgp.compare import Plan, compare_file
        >>> from rfgp.report.demo import DemoCase, demo_page
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     roads = datasets.write_all(folder)[2]
        ...     comparison, posterior = compare_file(roads, sizes=(4,), methods=("iid",), plan=Plan(1, 1, 0))
        ...     "<h2>Roads</h2>" in demo_page([DemoCase(roads, comparison, posterior())])
        True
    """
    lead = (
        "rfgp demo wrote four inputs with fixed seeds. It fitted the exact Gaussian process to a part of each and "
        "approximated it by random features, at the same hyperparameters. The numbers below are distances from the "
        "exact process; 0 is exact."
    )
    return render("rfgp demo", lead, [case.card for case in cases], [_section(case) for case in cases])


def _section(case: DemoCase) -> Section:
    """Return the section on one input."""
    texts, comparison = _INPUTS[case.path.stem], case.comparison
    blocks: list[Block] = [
        Text(f"{case.path.name}: {texts.content}"),
        Text(f"The exact process was fitted, and features approximate it: {comparison.protocol}."),
    ]
    if case.fields is None:
        table = read_table(case.path)
        blocks += [_columns(table), *_fitted(case), *words.distances(comparison), *_sum_of_terms(table)]
    else:
        term, parameters = _fitted(case)
        blocks += [_input(*case.fields), parameters, *views(*case.fields), term, *words.distances(comparison)]
    return Section(texts.title, [*blocks, Text("For a file of your own:"), Command(texts.command)])


def _fitted(case: DemoCase) -> tuple[Block, Block]:
    """Return the tables of the terms and of the hyperparameters of the exact process."""
    process = case.comparison.example.process
    assert isinstance(process, GP)
    return terms.grid(process), replace(making.hyperparameters(process), wide=False)


def _input(field: Field, posterior: NodePosterior) -> Block:
    """Return a view of a field with values at all nodes, or of its observed values."""
    nodes = field.graph.index(field.nodes)
    if len(np.unique(nodes)) < field.graph.num_nodes:
        return Plot(figures.histogram(field.values, field.quantity), "The input: values of the sensors.")
    values = np.empty(len(nodes))
    values[nodes] = field.values
    shown = f"The input. {posterior.num_observed:,} of {counted(len(values), 'node')} are given to the process"
    return view(field, values, "input", shown, COLOR_MAPS["mean"])


def _columns(table: Table) -> Block:
    """Return the plot of the target of a table against all of its columns."""
    frame = table.frame()
    drawn = glance.small_multiples(table, variables_of(table, GP(k.RBF(), seed=0), frame), frame)
    return Plot(drawn, f"The target, {table.target}, against each column.", height=500, wide=True)


def _sum_of_terms(table: Table) -> list[Block]:
    """Return the effects of a sum of three terms that is fitted to a table of four columns."""
    x1, x2, x3, x4 = table.columns
    kernel = k.RBF(x1) + k.RBF((x2, x3)) + k.RBF(x4)
    gp = GP(kernel, approximation=RandomFeatures(_FREQUENCIES), seed=0).fit(table.frame(), table.y)
    rows = input_frame(table, gp).iloc[:_POINTS]
    divergence = metrics.kl_divergence(gp.exact().predict(rows), gp.predict(rows), per_point=True)
    text = (
        f"A second model is a sum of three terms, each with {_FREQUENCIES} frequencies. It was fitted to all rows. "
        "Each term has a share of the variance and an effect with a 95 % band. The KL from its exact process is "
        f"{divergence:.2g} nats per row, at {counted(len(rows), 'row')}. A similar fit, which holds rows out:"
    )
    formula = f"RBF({x1}) + RBF({x2}, {x3}) + RBF({x4})"
    command = f'rfgp fit table.csv --kernel "{formula}" --approximation "RandomFeatures({_FREQUENCIES})" --out results'
    return [Text(text), Command(command), *terms.section(gp, table).blocks]
