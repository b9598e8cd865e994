"""The report on a field: a mesh or a road network."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rfgp.fields import Field, NodePosterior
from rfgp.fields.field import check_field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, nodes_kernel
from rfgp.messages import counted
from rfgp.palette import COLOR_MAPS
from rfgp.report import figures, making, words
from rfgp.report.page import Block, Picture, Plot, Section, Text, render
from rfgp.report.processes import describe_process, memory_of
from rfgp.report.study import Study

UNEVEN = 20.0
"""The ratio of the largest to the smallest degree above which the report explains its effect on the prior."""

MAX_FACES = 100_000
"""Larger meshes are shown as pictures only."""


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
    model, graph = study.model, check_field(field).graph
    kind = "a mesh" if field.mesh is not None else "roads"
    how, exactly = describe_process(model), not isinstance(model, GraphGP) or model.is_exact
    lead = (
        f"A Gaussian process for {field.quantity} on {kind} with {counted(graph.num_nodes, 'node')}: "
        f"{how}. It was fitted to {len(study.train):,} of {counted(len(field.values), 'observation')} and evaluated on "
        f"the other {len(study.test):,}. The views show the posterior given all observations."
    )
    noun = "process" if exactly else "features"
    cost = [(noun, how), (f"memory of the {noun}", words.mebibytes(memory_of(model)))]
    sections = [
        Section("The field", views(field, posterior)),
        Section("The data at a glance", _glance(field, posterior)),
        Section("The fit", words.diagnostics(study)),
        words.accuracy(study),
        making.cost(study, cost),
        making.making(study, {**(settings or {}), **_settings(model)}, command),
    ]
    return render(study.title, lead, words.cards(study, "observations"), sections)


def _settings(model: GP) -> dict[str, object]:
    """Return the options of the model, and of its features if they are in use."""
    if not isinstance(model, GraphGP):
        limit = {"farthest point from the surface": words.number(model.within)} if isinstance(model, MeshGP) else {}
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
    words = f"Posterior {sd} of the field, without the noise"
    along = (None, None) if posterior.segment_figures is None else posterior.segment_figures
    return [
        view(field, posterior.mean, "mean", "Posterior mean", COLOR_MAPS["mean"], along[0]),
        view(field, posterior.std, sd, words, COLOR_MAPS["sd"], along[1]),
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
    title, scale = f"{field.quantity}: {name}", "Colors span the 1 % to 99 % quantiles."
    if field.mesh is None:
        caption = f"{shown}. Drag to move, scroll or pinch to zoom, touch a point for its value. {scale}"
        return Plot(figures.road_view(field, values, title, colors, along), caption, 520)
    if len(field.mesh.faces) > MAX_FACES:
        return Picture(_still(field, values, title, colors), f"{shown}. {scale}")
    caption = f"{shown}. Turn with the mouse or a finger, zoom with the wheel or two fingers. {scale}"
    return Plot(figures.mesh_view(field, values, title, colors), caption, 460, _still(field, values, title, colors))


def _still(field: Field, values: NDArray[np.float64], title: str, colors: str) -> bytes:
    from rfgp.plotting import plot_mesh_field, to_png

    return to_png(plot_mesh_field(field, values, title=title, colors=colors).figure)


def _glance(field: Field, posterior: NodePosterior) -> list[Block]:
    num_components = int(field.component.max()) + 1
    seen = len(set(field.graph.index(field.nodes).tolist()))
    text = (
        f"{counted(field.graph.num_nodes, 'node')}, {counted(field.graph.num_edges, 'edge')}, "
        f"{counted(num_components, 'connected component')}; {counted(len(field.values), 'observation')} at "
        f"{counted(seen, 'node')} ({100 * seen / field.graph.num_nodes:.1f} %)."
    )
    degrees = field.graph.degrees[field.graph.degrees > 0]
    uneven = len(degrees) > 0 and degrees.max() > UNEVEN * degrees.min()
    if uneven and field.graph.laplacian == "normalized":
        text += (
            f" The nodes' degrees are between {words.number(degrees.min())} and {words.number(degrees.max())}. The "
            "kernel is one of the normalized Laplacian, whose prior variance grows with the degree. Therefore nodes at "
            "very short edges are smoothed less than others."
        )
    text += f" {field.describe_components()}" if num_components > 1 else ""
    if field.roads is not None and (one_way := field.roads.num_one_way):
        text += (
            f" {one_way:,} of {counted(len(field.roads.lines), 'road')} are one-way or roundabouts in the file. "
            "Directions are ignored."
        )
    columns = np.column_stack([posterior.mean, posterior.std])
    return [
        Text(text),
        Plot(figures.histogram(field.values, field.quantity), "The observed values."),
        Plot(figures.histogram(posterior.std, "standard deviation"), "The posterior sd over all nodes."),
        words.statistics([field.quantity], field.values[:, None], "observation"),
        words.statistics(["posterior mean", "posterior sd"], columns, "node"),
    ]
