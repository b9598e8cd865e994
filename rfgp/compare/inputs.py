"""Comparisons on files. The protocol depends on the ending of the name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.builders.mesh_files import MESH_SUFFIXES
from graphs.checks import printable
from rfgp.compare.plan import Plan
from rfgp.compare.protocol import Report, compare_nodes, compare_table
from rfgp.compare.results import Comparison
from rfgp.errors import InvalidArgumentError
from rfgp.fields import Field, NodePosterior, posterior_at_nodes, read_field, read_mesh_field
from rfgp.kernels import Kernel
from rfgp.tables import TABLE_SUFFIXES, read_table


def compare_file(
    file: str | Path,
    *,
    target: str | None = None,
    table_options: Mapping[str, Any] | None = None,
    metric: str | None = None,
    methods: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    features: str = "fourier",
    ard: bool = False,
    kernel: str | Kernel | None = None,
    p_halt: float = 0.1,
    num_train: int | None = None,
    num_test: int | None = None,
    plan: Plan | None = None,
    report: Report | None = None,
) -> tuple[Comparison, Callable[[], tuple[Field, NodePosterior]] | None]:
    """Compare approximations on a table, a mesh, or roads with sensors.

    On a mesh the target is the z component of the normals of its faces, unless a property is given.

    Args:
        file: The file of a table, a mesh or roads.
        target: A column of a table, a property of the sensors in GeoJSON, or a property of a mesh file. If None, the
            last column, "value", or the z component of the normals.
        table_options: Options of `rfgp.tables.read_table`.
        metric: The metric of roads, as for `rfgp.fields.read_road_field`.
        methods: As for `compare_table` or `compare_nodes`. If None, their default.
        sizes: As for `compare_table` or `compare_nodes`. If None, their default.
        features: As for `compare_table`.
        ard: As for `compare_table`.
        kernel: The name of a graph kernel, or for a table a kernel as for `compare_table`, with options of the table
            that read its columns. If None, diffusion or an RBF kernel of all columns.
        p_halt: As for `compare_nodes`.
        num_train: The number of training rows or nodes per split. If None, 256 rows of a table, or three quarters of
            fewer than 512 rows, at most 256. For graphs the fraction `train_share` of the field.
        num_test: The number of test rows or nodes per split. If None, 256 rows of a table, or a quarter of fewer than
            512 rows. For graphs all other nodes.
        plan: The splits, draws and seed. If None, as for `compare_table`.
        report: As for `compare_table`.

    Returns:
        The comparison, and None for tables. For graphs the second result is a function that returns the field and the
        exact posterior at all nodes, given the training set of the first split.

    Raises:
        InvalidArgumentError: If it is not a path, the ending of the file's name is unknown, or the kernel of a table is
            a name.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets
        >>> from rfgp.compare import Plan, compare_file
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     comparison, _ = compare_file(datasets.write_all(folder)[0], **few)
        >>> comparison.title
        'table.csv, target yield'
    """
    if not isinstance(file, str | Path):
        raise InvalidArgumentError(f"file must be the path of a file, got {type(file).__name__}. Use compare_nodes.")
    file = Path(file)
    named: dict[str, Any] = {"plan": plan, "report": report} | ({} if methods is None else {"methods": methods})
    if file.suffix.lower() in TABLE_SUFFIXES:
        table = read_table(file, target, **(table_options or {}))
        table.check_numeric_target()
        if isinstance(kernel, str):
            raise InvalidArgumentError(
                f"kernel must be a kernel of columns for a table, got {kernel!r}. Use rfgp.kernels."
            )
        num_train, num_test = _usual_parts(len(table.y), num_train, num_test)
        comparison = compare_table(
            table.X if kernel is None else table.frame(),
            table.y,
            title=printable(f"{file.name}, target {table.target}"),
            **named,
            sizes=sizes,
            features=features,
            ard=ard,
            kernel=kernel,
            num_train=num_train,
            num_test=num_test,
        )
        return comparison, None
    if target is not None and file.suffix.lower() in MESH_SUFFIXES:
        field = read_mesh_field(file, target=target)
    else:
        field = read_field(file, "value" if target is None else target, metric)
    usual = round(field.train_share * len(field.values))
    comparison = compare_nodes(
        field.graph,
        field.nodes,
        field.values,
        title=printable(file.name),
        **named,
        sizes=sizes or (16, 64),
        kernel="diffusion" if kernel is None else str(kernel),
        p_halt=p_halt,
        num_train=usual if num_train is None else num_train,
        num_test=num_test,
    )
    return comparison, lambda: (field, posterior_at_nodes(comparison.example.process, field))


_PART = 256


def _usual_parts(count: int, train: int | None, test: int | None) -> tuple[int, int]:
    """Return default numbers of rows to train on and to hold out."""
    if test is None:
        left = count - _PART if train is None else count - train
        test = _PART if left >= _PART else max(1, count // 4 if train is None else left)
    return (min(_PART, max(2, count - test)) if train is None else train), test
