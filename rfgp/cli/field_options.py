"""Options of `rfgp mesh` and `rfgp traffic`."""

from pathlib import Path
from typing import Annotated

import typer

from rfgp.cli.choices import FIELD

MeshAlpha = Annotated[int | None, typer.Option(help=f"The smoothness of {FIELD}, from 1 (roughest) to 6. [default: 2]")]
RoadAlpha = Annotated[int | None, typer.Option(help=f"The smoothness of {FIELD}: 1 (rough) or 2. [default: 1]")]
Features = Annotated[
    str | None,
    typer.Option(
        help="For a kernel of a graph: exact, precision, rational, walks, chebyshev, taylor, spectrum, or auto, which "
        "is exact if that is cheap. [default: auto]"
    ),
]
Walkers = Annotated[int, typer.Option(help="For a kernel of a graph with walks: the number of walkers per node.")]
Halt = Annotated[
    float, typer.Option(help="For a kernel of a graph with walks: the probability that a walker halts at a step.")
]
_GRAPH_KERNELS = "a kernel of the graph of {}: diffusion, regularized-laplacian or matern;"
Values = Annotated[
    Path | None, typer.Option(help="A table of values: columns x, y, z or face or vertex, and columns of values.")
]
MeshTarget = Annotated[
    list[str] | None,
    typer.Option(
        help="The column of --values to interpolate, or without it a property of the mesh's file; repeatable. "
        "[default: the only column of numbers that do not identify rows; without --values the z component of the "
        "normals]"
    ),
]
RoadTarget = Annotated[
    list[str] | None,
    typer.Option(help="GeoJSON: the sensors' property to interpolate; repeatable. [default: value]"),
]
Nodes = Annotated[
    str | None, typer.Option(help="Where the field lies: faces or vertices. [default: as the values say, else faces]")
]
Reach = Annotated[
    float | None,
    typer.Option(help="How far from the surface a place may lie, in the mesh's units. [default: a tenth of its size]"),
]
MeshKernel = Annotated[
    str,
    typer.Option(
        help=f"{FIELD}: on the surface, exactly; {_GRAPH_KERNELS.format('faces or vertices')} or a sum of terms, as "
        '"Mesh() + Linear(thickness)", of columns x, y, z, and others that are known on the whole surface.',
    ),
]
RoadKernel = Annotated[
    str,
    typer.Option(
        help=f"{FIELD}: along the roads, exactly; {_GRAPH_KERNELS.format('their segments')} or a sum of terms, as "
        '"Roads() + Linear(maxspeed) + Group(highway)", of properties of the roads.',
    ),
]
Boundary = Annotated[
    str,
    typer.Option(
        help=f"The condition of {FIELD} at the free ends of roads: neumann (a derivative of zero), stationary (as if "
        "the road continued without an end) or open (none)."
    ),
]
MinLength = Annotated[
    float,
    typer.Option(
        help="For a kernel of a graph: the smallest length of a road segment, in mean lengths of segments. Shorter "
        "segments count as this long. The weight of an edge is one over its length."
    ),
]
Snap = Annotated[
    float,
    typer.Option(help="Join points of roads that are at most this far apart, in meters or the units of the plane."),
]
TestShare = Annotated[float, typer.Option(help="The share of the observations that are held out to score the fit.")]
Compare = Annotated[
    bool | None,
    typer.Option(
        "--compare/--no-compare",
        help=f"Compare {FIELD} with random walks on the graph, and features of a graph's kernel with its exact "
        f"process. [default: --no-compare for {FIELD}, else --compare]",
    ),
]
WithData = Annotated[bool, typer.Option("--with-data", help="Save the observed values with the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results. [default: NAME-field]")]
