"""The reports on a table and on a field, and the page of the demo, each as one HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rfgp import curves, metrics
from rfgp import kernels as k
from rfgp.approximations import RandomFeatures
from rfgp.compare import Comparison
from rfgp.effects.variables import input_frame, variables_of
from rfgp.fields import Field, NodePosterior
from rfgp.fields.field import check_field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, nodes_kernel
from rfgp.messages import counted, plain
from rfgp.palette import COLOR_MAPS
from rfgp.report import sections
from rfgp.report.comparing import describe_process
from rfgp.report.page import Block, Command, Picture, Plot, Section, Text, number, render, sentence
from rfgp.report.study import Study
from rfgp.tables import Table, read_table

_MAX_NAMED = 4
"""The maximum number of terms that the first paragraph names."""
UNEVEN = 20.0
"""The ratio of the largest to the smallest degree above which the report explains its effect on the prior."""
MAX_FACES = 100_000
"""Larger meshes are shown as pictures only."""
_FREQUENCIES, _POINTS = 64, 100
"""The frequencies of each term of the demo's sum, and the rows at which it is compared with its exact process."""


def table_report(
    study: Study, table: Table, *, settings: Mapping[str, object] | None = None, command: str | None = None
) -> str:
    """Return the report on a table as one HTML page.

    Args:
        study: The result of `study_table`.
        table: The table of the study.
        settings: Settings by name to list under "How it was made". If None, there are none.
        command: The command that made the report, to list there. If None, there is none.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.report import study_table, table_report
        >>> from rfgp.tables import Table
        >>> table = Table(np.arange(60.0)[:, None], np.sin(np.arange(60.0) / 9), ("t",), "y")
        >>> study = study_table(table, rfgp.GP(k.RBF("t"), seed=0), compare=False)
        >>> table_report(study, table).startswith("<!doctype html>")
        True
    """
    model = study.model
    frame = input_frame(table, model)
    variables = variables_of(table, model, frame)
    parts = [
        sections.glance(table, model, variables, frame),
        *sections.selections(model),
        *sections.noises(model),
        sections.terms(model, table),
        sections.fit(study),
        sections.accuracy(study),
        sections.cost(study),
        sections.making(study, settings or {}, command),
    ]
    named = [f"{plain(name)} ({type(term.approximation).__name__})" for name, term in model.terms.items()]
    others = len(named) - _MAX_NAMED
    named = [*named[:_MAX_NAMED], counted(others, "other")] if others > 0 else named
    given = {"members": len(model.members), "target": table.target, "num_columns": len(variables), "names": named}
    lead = sentence("table_lead", **given, num_train=len(study.train), num_test=len(study.test))
    return render(study.title, lead, sections.cards(study, "rows"), parts)


# --- Fields ----------------------------------------------------------------------------------------------------------


def field_report(
    study: Study,
    field: Field,
    posterior: NodePosterior,
    *,
    settings: Mapping[str, object] | None = None,
    command: str | None = None,
) -> str:
    """Return the report on a field as one HTML page.

    Args:
        study: The result of `study_field`.
        field: The field of the study.
        posterior: The posterior at all nodes, given all observations.
        settings: Further settings by name to list under "How it was made". If None, there are none.
        command: The command that made the report, to list there. If None, there is none.

    Examples:
        >>> import graphs
        >>> from rfgp import datasets
        >>> from rfgp.fields import posterior_at_nodes
        >>> from rfgp.report import field_report, study_field
        >>> mesh = datasets.make_mesh(subdivisions=1)
        >>> graph = graphs.Graph.from_mesh(mesh, nodes="vertices")
        >>> field = Field(graph, np.arange(42), graph.coordinates[:, 2], "height", mesh=mesh)
        >>> study = study_field(field, GraphGP(graph, features="exact", seed=0), compare=False)
        >>> page = field_report(study, field, posterior_at_nodes(study.model, field))
        >>> page.startswith("<!doctype html>")
        True
    """
    model, num_observed = study.model, len(check_field(field).values)
    process = describe_process(model)
    parts = [
        Section("The field", views(field, posterior)),
        _nodes(field, posterior),
        sections.fit(study),
        sections.accuracy(study),
        sections.cost(study),
        sections.making(study, {**(settings or {}), **_settings(model)}, command),
    ]
    counts = {"count": num_observed, "num_train": len(study.train), "num_test": len(study.test)}
    lead = sentence("field_lead", field=field, process=process, **counts)
    return render(study.title, lead, sections.cards(study, "observations"), parts)


def _settings(model: GP) -> dict[str, object]:
    """Return the options of the model, and of its features if they are in use."""
    if not isinstance(model, GraphGP):
        limit = {"farthest point from the surface": number(model.within)} if isinstance(model, MeshGP) else {}
        return {"process": describe_process(model), **limit, "seed": model.seed}
    start = nodes_kernel(model).graph_kernel
    out: dict[str, object] = {"kernel, at the start": repr(start), "features": model.features}
    if model.selection is not None:
        out["features"] = f"{model.features} (selected)"
    if model.features == "walks":
        out |= {name: value for name, value in model.walk_options.options.items() if value is not None}
    return {**out, **model.feature_size, "seed": model.seed}


def views(field: Field, posterior: NodePosterior) -> list[Block]:
    """Return the views of the posterior mean and standard deviation.

    Args:
        field: The field.
        posterior: The posterior at all nodes.
    """
    sd = "standard deviation"
    shown = f"Posterior {sd} of the field, without the noise"
    along = (None, None) if posterior.segment_figures is None else posterior.segment_figures
    return [
        view(field, posterior.mean, "mean", "Posterior mean", COLOR_MAPS["mean"], along[0]),
        view(field, posterior.std, sd, shown, COLOR_MAPS["sd"], along[1]),
    ]


def view(
    field: Field,
    values: NDArray[np.float64],  # (N,)
    name: str,
    shown: str,
    colors: str,
    along: NDArray[np.float64] | None = None,  # (S,)
) -> Block:
    """Return a view of values at all nodes.

    Args:
        field: The field, for its mesh or roads.
        values: The values (N,).
        name: The name of the values on the color bar.
        shown: The name of the values in the caption.
        colors: The color map.
        along: The values (S,) of road segments. If None, averages of their ends.
    """
    title = f"{field.quantity}: {name}"
    if field.mesh is None:
        plot = curves.road_view(field, values, title, colors, along)
        return Plot(plot, sentence("view", shown=shown, kind="roads"), 520)
    from rfgp.plotting import plot_mesh_field, to_png

    still = to_png(plot_mesh_field(field, values, title=title, colors=colors).figure)
    if len(field.mesh.faces) > MAX_FACES:
        return Picture(still, sentence("view", shown=shown, kind="picture"))
    caption = sentence("view", shown=shown, kind="mesh")
    shape = np.asarray(field.mesh.vertices), np.asarray(field.mesh.faces)
    return Plot(curves.mesh_view(*shape, values, title, colors, on_faces=field.on_faces), caption, 460, still)


def _nodes(field: Field, posterior: NodePosterior) -> Section:
    """Return the section on the data of a field."""
    graph, components = field.graph, int(field.component.max()) + 1
    degrees = graph.degrees[graph.degrees > 0]
    ends: tuple[float, ...] = ()
    if len(degrees) and degrees.max() > UNEVEN * degrees.min() and graph.laplacian == "normalized":
        ends = (degrees.min(), degrees.max())
    roads = (0, 0) if field.roads is None else (field.roads.num_one_way, len(field.roads.lines))
    text = sentence(
        "nodes",
        graph=graph,
        components=components,
        count=len(field.values),
        seen=len(set(graph.index(field.nodes).tolist())),
        degrees=ends,
        one_way=roads[0],
        roads=roads[1],
        described=field.describe_components() if components > 1 else "",
    )
    columns = np.column_stack([posterior.mean, posterior.std])
    blocks: list[Block] = [
        Text(text),
        Plot(curves.histogram(field.values, field.quantity), "The observed values."),
        Plot(curves.histogram(posterior.std, "standard deviation"), "The posterior sd over all nodes."),
        sections.statistics([field.quantity], field.values[:, None], "observation"),
        sections.statistics(["posterior mean", "posterior sd"], columns, "node"),
    ]
    return Section("The data at a glance", blocks)


# --- The demo --------------------------------------------------------------------------------------------------------

_INPUTS = {
    "table": ("A table", "rfgp fit your-table.csv --target COLUMN --out results"),
    "mesh": ("A mesh", "rfgp mesh your-mesh.stl --values your-values.csv --out results"),
    "roads": ("Roads", "rfgp traffic your-roads.geojson --target PROPERTY --out results"),
    "terrain": ("A terrain", "rfgp mesh your-terrain.ply --kernel regularized-laplacian --out results"),
}
"""The title of each input, and the command for such a file."""


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

    def card(self) -> tuple[str, str, str]:
        """Return the title, the KL per held-out point of the method with the smallest KL, and a remark."""
        comparison = self.comparison
        best = min(comparison.groups(), key=lambda pair: comparison.estimate("kl", *pair).mean)
        rmse, exact = number(comparison.estimate("rmse", *best).mean), number(comparison.exact[0].rmse)
        share = comparison.estimate("kl", *best).mean / len(comparison.example.observed)
        remark = sentence("demo_card", method=best[0], size=best[1], rmse=rmse, exact=exact)
        return _INPUTS[self.path.stem][0], f"{share:.2g}", remark


def demo_page(cases: Sequence[DemoCase]) -> str:
    """Return the page of the demo as one HTML file.

    Args:
        cases: The inputs. Their files are named table, mesh, roads or terrain.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets
        >>> from rfgp.compare import Plan, compare_file
        >>> from rfgp.report.reports import DemoCase, demo_page
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     roads = datasets.write_all(folder)[2]
        ...     comparison, posterior = compare_file(roads, sizes=(4,), methods=("iid",), plan=Plan(1, 1, 0))
        ...     "<h2>Roads</h2>" in demo_page([DemoCase(roads, comparison, posterior())])
        True
    """
    return render("rfgp demo", sentence("demo"), [case.card() for case in cases], [_section(case) for case in cases])


def _section(case: DemoCase) -> Section:
    """Return the section on one input."""
    (title, command), comparison = _INPUTS[case.path.stem], case.comparison
    process = comparison.example.process
    fitted = [sections.terms_grid(process), sections.hyperparameters(process, wide=False)]
    blocks: list[Block] = [
        Text(f"{case.path.name}: {sentence('demo_input', name=case.path.stem)}"),
        Text(f"The exact process was fitted, and features approximate it: {comparison.protocol}."),
    ]
    if case.fields is None:
        table = read_table(case.path)
        blocks += [_columns(table), *fitted, *sections.distances(comparison), *_sum_of_terms(table)]
    else:
        blocks += [_input(*case.fields), fitted[1], *views(*case.fields), fitted[0], *sections.distances(comparison)]
    return Section(title, [*blocks, Text("For a file of your own:"), Command(command)])


def _input(field: Field, posterior: NodePosterior) -> Block:
    """Return a view of a field with values at all nodes, or of its observed values."""
    nodes = field.graph.index(field.nodes)
    if len(np.unique(nodes)) < field.graph.num_nodes:
        return Plot(curves.histogram(field.values, field.quantity), "The input: values of the sensors.")
    values = np.empty(len(nodes))
    values[nodes] = field.values
    shown = f"The input. {posterior.num_observed:,} of {counted(len(values), 'node')} are given to the process"
    return view(field, values, "input", shown, COLOR_MAPS["mean"])


def _columns(table: Table) -> Block:
    """Return the plot of the target of a table against all of its columns."""
    frame = table.frame()
    drawn = curves.small_multiples(table, variables_of(table, GP(k.RBF(), seed=0), frame), frame)
    return Plot(drawn, f"The target, {table.target}, against each column.", height=500, wide=True)


def _sum_of_terms(table: Table) -> list[Block]:
    """Return the effects of a sum of three terms that is fitted to a table of four columns."""
    x1, x2, x3, x4 = table.columns
    kernel = k.RBF(x1) + k.RBF((x2, x3)) + k.RBF(x4)
    gp = GP(kernel, approximation=RandomFeatures(_FREQUENCIES), seed=0).fit(table.frame(), table.y)
    rows = input_frame(table, gp).iloc[:_POINTS]
    divergence = metrics.kl_divergence(gp.exact().predict(rows), gp.predict(rows), per_point=True)
    text = sentence("demo_sum", frequencies=_FREQUENCIES, divergence=float(divergence), rows=len(rows))
    formula = f"RBF({x1}) + RBF({x2}, {x3}) + RBF({x4})"
    command = f'rfgp fit table.csv --kernel "{formula}" --approximation "RandomFeatures({_FREQUENCIES})" --out results'
    return [Text(text), Command(command), *sections.terms(gp, table).blocks]
