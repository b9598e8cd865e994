"""`rfgp mesh` and `rfgp traffic`: a field on a surface or on roads, everywhere, with its uncertainty."""

import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from graphs.checks import non_negative
from rfgp import names
from rfgp.cli.common import check_input, say
from rfgp.cli.job import MODEL, REPORT, Job, Result, command_line
from rfgp.cli.models import advised, field_columns, is_expression
from rfgp.cli.options import (
    FIELD,
    Drop,
    Halt,
    Metric,
    Seed,
    Spelling,
    above_zero,
    among,
    at_least,
    up_to_one,
)
from rfgp.errors import InvalidArgumentError
from rfgp.messages import counted
from rfgp.progress import Bar

_OF_ALL = ("nodes.csv", MODEL, REPORT)


@dataclass(frozen=True, kw_only=True)
class _Field(Job):
    """How a field on a mesh or on roads is fitted, and what is written.

    Subclasses name what meshes and roads do not share: their command, the term of a kernel, the default of alpha and
    its range, and the columns of positions.

    Attributes:
        out: Folder for the results. [default: NAME-field]
        comparison: Compare whittle-matern with random walks on the graph, and features of a graph's kernel with its
            exact process. [default: --no-compare for whittle-matern, else --compare]
        dry_run: For a kernel of a graph: compare features by the error of the kernel on some nodes, print the command
            that uses the best, and write nothing.
        features: For a kernel of a graph: exact, precision, rational, walks, chebyshev, taylor, spectrum, or auto,
            which is exact if that is cheap. [default: auto]
        num_walkers: For a kernel of a graph with walks: the number of walkers per node.
    """

    features: Annotated[str | None, among(*names.GRAPH_FEATURES)] = None
    num_walkers: Annotated[int, at_least(1)] = 64
    halt: Halt = 0.1
    seed: Seed = 0
    kernel: str = FIELD
    alpha: int | None = None

    command: ClassVar[str]
    kind: ClassVar[str]
    term: ClassVar[str]
    usual_alpha: ClassVar[int]
    largest_alpha: ClassVar[int]
    positions: ClassVar[tuple[str, ...]]
    suffix, noun = "field", "observations"

    def of_domain(self) -> dict[str, Any]:
        """Return the options of the process on the surface or along the roads."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the settings that the report lists."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the kernel that are not positions."""
        read = field_columns(self.kernel, self.term) if is_expression(self.kernel) else ()
        return tuple(name for name in read if name not in self.positions)

    def check(self) -> None:
        """Check that the options are for the right kind of process, and the file for the domain."""
        kernel, alpha = self.kernel, self.alpha
        is_sum = is_expression(kernel)
        if not is_sum:
            among(FIELD, *names.GRAPH_KERNELS)("kernel", kernel)
        if alpha is not None and not 1 <= alpha <= self.largest_alpha:
            raise typer.BadParameter(f"--alpha must be from 1 to {self.largest_alpha}, got {alpha}.")
        if kernel != FIELD and alpha is not None:
            remedy = f"Write alpha={alpha} in its term." if is_sum else "Leave it out."
            raise typer.BadParameter(f"--alpha is for --kernel {FIELD}, got {kernel}. {remedy}")
        if (kernel == FIELD or is_sum) and (self.features is not None or self.dry_run):
            flag = "--dry-run" if self.dry_run else "--features"
            raise typer.BadParameter(
                f"{flag} is for approximations of the kernel of a graph, and {kernel} is exact. Name a kernel of a "
                "graph, such as --kernel diffusion, to use it."
            )
        if self.holdout == "last" and self.holdout_by is not None:
            raise InvalidArgumentError("--holdout last takes observations by their order. Leave out --holdout-by.")
        _ = self.columns  # which the kernel must name well
        self.source.check(self.command, self.kind)

    def process(self, field: Any) -> Any:
        """Return the process on a field's surface or roads, on its graph, or the model of a sum of terms."""
        import graphs
        import rfgp
        from rfgp import kernels
        from rfgp.fields import whittle_matern

        def term(alpha: int = self.usual_alpha, **options: Any) -> Any:
            given = {"alpha": alpha, **self.of_domain(), **options}
            if field.roads is None:
                return kernels.Mesh(field.mesh, **given)
            return kernels.Roads(graphs.RoadNetwork.from_roads(field.roads), **given)

        if is_expression(self.kernel):
            return rfgp.GP(kernels.parse(self.kernel, objects={self.term: term}), seed=self.seed)
        if self.kernel == FIELD:
            used = self.usual_alpha if self.alpha is None else self.alpha
            return whittle_matern(field, used, seed=self.seed, **self.of_domain())
        walks: dict[str, Any] = {"num_walkers": self.num_walkers, "p_halt": self.halt, "seed": self.seed}
        return rfgp.GraphGP(field.graph, kernel=self.kernel, features=self.features or "auto", **walks)

    def selected(self, data: Any, report: Bar) -> tuple[Any, dict[str, str | None]]:
        """Return the comparison of features of a graph's kernel, and the option that uses the best."""
        report("Measuring", 0, 0)
        selection = advised(data.graph, self.kernel, self.num_walkers, self.seed)
        return selection, {"features": selection.chosen.options["features"]}

    def fit(self, data: Any, folder: Path, report: Bar) -> Result:
        """Fit a model to a part of a field, score it, condition it on all observations, and write."""
        import graphs
        from rfgp import fields
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import field_report, study_field

        title = f"{self.file.name}, {data.quantity}"
        compare = self.kernel in names.GRAPH_KERNELS if self.comparison is None else self.comparison
        how: dict[str, Any] = {"test_share": self.test_share, "holdout": self.holdout, "compare": compare}
        with warnings.catch_warnings():
            for category in (graphs.DisconnectedWarning, graphs.DuplicateRoadsWarning):  # reading the field has warned
                warnings.simplefilter("ignore", category)
            model = self.process(data)
            study = study_field(data, model, title=title, seed=model.seed, **how, report=report)
            report("Predicting every node", 0, 0)
            final = copy(model).condition(fields.observed_inputs(model, data), data.values)
            posterior = fields.posterior_at_nodes(final, data)
            report("Writing", 0, 0)
            settings = {**self.settings(), "target": data.quantity}
            page = field_report(study, data, posterior, settings=settings, command=command_line())
            with made_folder(folder):
                final.save(folder / MODEL, data=self.with_data)
                write_atomically(folder / REPORT, page.encode())
                fields.write_nodes(folder / "nodes.csv", data, posterior)
            if data.mesh is not None:
                fields.write_mesh(folder, data, posterior)
            else:
                fields.write_roads(folder / "roads.geojson", data, posterior)
        words = f"Written to {folder}: {', '.join(self.files)}\nOpen {folder / REPORT} in a browser."
        return Result({**study.summary(), "files": {name: str(folder / name) for name in self.files}}, words, study)


@dataclass(frozen=True, kw_only=True)
class Mesh(_Field, Spelling):
    """Interpolate values on a mesh: colored PLY and GLB, a table of nodes, a model and a report.

    Attributes:
        file: A mesh (.stl, .ply, .obj, .off, .glb, .vtk, .vtu, .msh) or a public mesh's name.
        values: A table of values: columns x, y, z or face or vertex, and columns of values.
        target: The column of --values to interpolate, or without it a property of the mesh's file; repeatable.
            [default: the only column of numbers that do not identify rows; without --values the z component of the
            normals]
        known: Without --values: the share of the normals that are given to the fit.
        nodes: Where the field lies: faces or vertices. [default: as the values say, else faces]
        weights: Weights of a mesh's edges: unit, edge-length, or cotangent (between vertices).
        within: How far from the surface a place may lie, in the mesh's units. [default: a tenth of its size]
        missing: Rows of values with a gap: error, or drop.
        kernel: whittle-matern: on the surface, exactly; a kernel of the graph of faces or vertices: diffusion,
            regularized-laplacian or matern; or a sum of terms, as "Mesh() + Linear(thickness)", of columns x, y, z, and
            others that are known on the whole surface.
        alpha: The smoothness of whittle-matern, from 1 (roughest) to 6. [default: 2]
    """

    values: Path | None = None
    target: list[str] | None = None
    known: Annotated[float, up_to_one] = 0.1
    nodes: Annotated[str | None, among(*names.NODES)] = None
    weights: Annotated[str, among(*names.WEIGHTS)] = "unit"
    within: Annotated[float | None, above_zero] = None
    missing: Annotated[str, among("error", "drop")] = "error"
    drop: Drop = None

    command = kind = "mesh"
    term, usual_alpha, largest_alpha, positions = "Mesh", 2, 6, ("x", "y", "z")
    files = ("mean.ply", "mean.glb", "sd.ply", "sd.glb", *_OF_ALL)

    @property
    def inputs(self) -> tuple[Path | None, ...]:
        """The mesh and the table of values."""
        return self.file, self.values

    def of_domain(self) -> dict[str, Any]:
        """Return the options of the process on the surface."""
        return {"within": self.within}

    def settings(self) -> dict[str, Any]:
        """Return the settings that the report lists."""
        stand_in = "properties of the file" if self.target else f"normals at a share of {self.known:g} of the nodes"
        weights = {"weights": self.weights} if self.kernel in names.GRAPH_KERNELS else {}
        return {"file": self.file, "values": self.values or stand_in, **weights}

    def check(self) -> None:
        """Check the files that are read."""
        if self.values is not None and not check_input(self.values).exists():
            raise InvalidArgumentError(f"There is no file {self.values}.")
        super().check()

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the fields of a mesh by their targets."""
        from rfgp.fields import read_mesh_fields

        values, targets = self.values, self.target and tuple(dict.fromkeys(self.target))
        table = {"missing": self.missing, "drop": tuple(self.drop or ()), **self.options()}
        how: dict[str, Any] = {
            "weights": self.weights,
            "nodes": self.nodes,
            "within": self.within,
            "group": self.holdout_by,
        }
        found = read_mesh_fields(path, values, targets=targets, table_options=table, columns=self.columns, **how)
        if values is not None and not targets and len(found) > 1:
            raise InvalidArgumentError(
                f"--target must name the columns of {values} to interpolate: {' or '.join(found)}. It is repeatable."
            )
        if values is not None or targets:
            return found
        ((quantity, field),) = found.items()
        field = _hide(field, self.known, self.seed)
        say(
            f"No --values: the z component of the normals is interpolated from a random {len(field.values):,} of "
            f"{field.graph.num_nodes:,} {'faces' if field.on_faces else 'vertices'}.",
            as_json=True,
        )
        return {quantity: field}


def _hide(field: Any, known: float, seed: int) -> Any:
    """Return a field with a random share of its values."""
    from dataclasses import replace

    from rfgp import random

    order = random.numpy_generator(seed, random.Role.DATA, 0).permutation(len(field.values))
    kept = order[: max(8, round(known * len(order)))]
    return replace(field, nodes=field.nodes[kept], values=field.values[kept])


@dataclass(frozen=True, kw_only=True)
class Traffic(_Field):
    """Interpolate sensors along roads: GeoJSON with predictions, a table of nodes, a model and a report.

    Attributes:
        file: Roads and sensors (.geojson, .rda), or pems.
        target: GeoJSON: the sensors' property to interpolate; repeatable. [default: value]
        min_length: For a kernel of a graph: the smallest length of a road segment, in mean lengths of segments. Shorter
            segments count as this long. The weight of an edge is one over its length.
        within: GeoJSON: the largest distance of a sensor from the nearest road. [default: 500 m; in a plane a tenth of
            the size of the roads]
        skip: GeoJSON: leave out features that are neither roads nor sensors, and sensors too far from a road. Sensors
            without a number are not observed. Numbers written as texts are read.
        snap: Join points of roads that are at most this far apart, in meters or the units of the plane.
        duplicates: Edges of roads that are drawn more than once: parallel roads, or merge.
        kernel: whittle-matern: along the roads, exactly; a kernel of the graph of their segments: diffusion,
            regularized-laplacian or matern; or a sum of terms, as "Roads() + Linear(maxspeed) + Group(highway)", of
            properties of the roads.
        alpha: The smoothness of whittle-matern: 1 (rough) or 2. [default: 1]
        boundary: The condition of whittle-matern at the free ends of roads: neumann (a derivative of zero), stationary
            (as if the road continued without an end) or open (none).
    """

    target: list[str] | None = None
    metric: Metric = None
    min_length: Annotated[float, non_negative] = 0.5
    within: Annotated[float | None, above_zero] = None
    skip: bool = False
    snap: Annotated[float, non_negative] = 0.0
    duplicates: Annotated[str, among(*names.ROAD_DUPLICATES)] = "parallel"
    boundary: Annotated[str, among(*names.BOUNDARIES)] = "neumann"

    command, kind, term, usual_alpha, largest_alpha = "traffic", "roads", "Roads", 1, 2
    positions = ("road", "fraction")
    files = ("roads.geojson", *_OF_ALL)

    def of_domain(self) -> dict[str, Any]:
        """Return the options of the process along the roads."""
        return {"boundary": self.boundary}

    def settings(self) -> dict[str, Any]:
        """Return the settings that the report lists."""
        return {"file": self.file, "metric": self.metric or "as the file says", **self._edges}

    @property
    def _edges(self) -> dict[str, Any]:
        return {"min_length": self.min_length, "snap": self.snap, "duplicates": self.duplicates}

    def check(self) -> None:
        """Check the file and the names of targets."""
        if clashing := [name for name in self.target or () if name in names.RESULTS]:
            raise typer.BadParameter(
                f"The sensors' property must not have the name of a result, got {clashing[0]}. Rename it."
            )
        super().check()

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the fields of roads by their targets."""
        from rfgp.fields import read_road_fields

        targets = tuple(dict.fromkeys(self.target or ("value",)))
        how: dict[str, Any] = {"within": self.within, "skip": self.skip, "group": self.holdout_by, **self._edges}
        found = read_road_fields(path, targets, self.metric, columns=self.columns, **how)
        roads: Any = next(iter(found.values())).roads
        if count := roads.num_one_way:
            say(
                f"{count:,} of {counted(len(roads.lines), 'road')} are one-way or roundabouts in the file. Their "
                "direction is ignored: the field is as similar against the traffic as with it.",
                as_json=True,
            )
        return found
