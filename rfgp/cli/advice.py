"""`rfgp advise`: candidates with their scores and predicted costs, and the command that fits the best."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import checks, choices, options
from rfgp.cli.common import is_field, known_input, open_table, print_json, progress, resolve, say
from rfgp.cli.models import ModelRequest, as_text
from rfgp.cli.tables import check_likelihood, in_logarithms, suggest_logarithm
from rfgp.errors import InvalidArgumentError


def advise(
    file: Annotated[
        Path, typer.Argument(help="A table, a mesh, roads, a graph (.gml), or the name of a public data set.")
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Tables: the target column, by name or position. [default: the last] Roads: the sensors' property. "
            "[default: value]"
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Meshes, roads, graphs: diffusion, regularized-laplacian or matern. [default: diffusion] The kernel "
            "of a table is selected."
        ),
    ] = None,
    max_nonzeros: Annotated[
        int, typer.Option(help="Meshes, roads, graphs: the largest number of features of a node.")
    ] = 64,
    approximation: options.Approximation = "auto",
    likelihood: options.Likelihood = None,
    inference: options.Inference = None,
    log: options.Log = False,
    time_limit: options.TimeLimit = None,
    validate: options.Validate = None,
    memory: options.Memory = None,
    seed: options.Seed = 0,
    missing: options.Missing = "error",
    drop: options.Drop = None,
    as_category: options.AsCategory = None,
    numbers: options.Numbers = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare candidates on a sample, with their predicted costs, and print the command that fits the best.

    Candidates for a table are compared by the log density of left-out or held-out rows. Features of meshes, roads and
    graphs are compared by the error of the kernel on some nodes.
    """
    request = ModelRequest("auto", approximation, likelihood, inference, time_limit, validate, memory, seed)
    if is_field(file, ".gml"):
        report = _of_graph(file, target, kernel or "diffusion", max_nonzeros, request, visible=not as_json)
    else:
        reading = options.reading(missing, drop, as_category, numbers)
        reading |= options.spelling(decimal, thousands, comment, encoding, missing_mark)
        _check_table(file, target, kernel, reading, request)
        report = _of_table(file, target, reading, request, log, visible=not as_json)
    _show(*report, as_json)


def _show(selection: Any, command: str, as_json: bool) -> None:
    """Print a selection, and the command that fits the best."""
    if as_json:
        print_json({**_figures(selection), "command": command})
        return
    if (baseline := selection.unbeaten_baseline) is not None:
        say(f"No candidate beat {baseline}. The inputs may not be informative.")
    say(selection.reason)
    for line in selection.table():
        say(line)
    say("Seconds are those of a fit to all rows, as predicted for one core.")
    if selection.weights:
        say("The command selects again, since the best is an average.")
    say(f"Type: {command}")


def _check_table(
    file: Path, target: str | None, kernel: str | None, reading: Mapping[str, Any], request: ModelRequest
) -> None:
    """Check that options are valid for a table, before torch is loaded."""
    if kernel is not None:
        raise InvalidArgumentError(
            f"--kernel must be left out for a table, whose kernel is selected, got {kernel!r}. Use `rfgp fit --kernel` "
            "to fit a kernel of your own."
        )
    request.check()
    checks.check_table(file, target, reading, "advise")


def _of_table(
    file: Path, target: str | None, reading: Mapping[str, Any], request: ModelRequest, log: bool, *, visible: bool
) -> tuple[Any, str]:
    """Return the selection for a table, and the command that fits the best."""
    model = request.build()
    gp = model.gp()
    check_likelihood(gp, log)
    with progress(visible=visible) as report:
        report("Reading", 0, 0)
        table = open_table(file, target, reading, report, model.reading)
        table.check_numeric_target(2 if request.likelihood == "bernoulli" else 0)
        if log:
            table = in_logarithms(table)
        else:
            suggest_logarithm(table, model)

        def show(now: Any) -> None:
            report(now.stage, now.iteration, now.iterations)

        selection = gp.select(table.frame(), table.y, progress=show)
    words = ["rfgp", "fit", str(file), *([] if target is None else ["--target", target]), *_typed(reading)]
    return selection, shlex.join([*words, *["--log"] * log, *_of_model(selection, request)])


_PLAIN = {"decimal": ".", "encoding": "utf-8"}
"""Options of tables that need not be typed."""


def _typed(reading: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a table as words of a command line."""
    from rfgp.tables import MISSING_MARKS

    for name, value in reading.items():
        flag = {"as_categories": "--as-category", "missing_marks": "--missing-mark"}.get(name, f"--{name}")
        if isinstance(value, Mapping):
            yield from (f"{flag}={column}={example}" for column, example in value.items())
        elif isinstance(value, tuple):
            yield from (f"{flag}={entry}" for entry in value if name != "missing_marks" or entry not in MISSING_MARKS)
        elif value not in (None, "error", _PLAIN.get(name)):
            yield f"{flag}={value}"


def _of_model(selection: Any, request: ModelRequest) -> Iterator[str]:
    """Yield the options of the best model as words of a command line."""
    from rfgp import approximations

    if selection.weights:
        yield from () if request.likelihood is None else ("--likelihood", request.likelihood)
    elif request.likelihood != "gaussian":  # the default without --kernel
        yield from ("--likelihood", request.likelihood or "auto")
    yield from ("--inference", request.inference) if request.inference is not None else ()
    given: list[tuple[str, str | None]]
    if selection.weights:
        given = [("--approximation", request.approximation), ("--time-limit", request.time_limit)]
        given.append(("--validate", request.validate))
    else:
        chosen = selection.chosen.options
        text = as_text(approximations.parse(chosen.get("approximation", "auto")))
        given = [("--kernel", chosen["kernel"]), ("--approximation", text)]
    given += [("--memory", request.memory), ("--seed", str(request.seed) if request.seed else None)]
    for flag, value in given:
        yield from (flag, value) if value is not None and value != "auto" else ()


def _of_graph(
    file: Path, target: str | None, kernel: str, max_nonzeros: int, request: ModelRequest, *, visible: bool
) -> tuple[Any, str]:
    """Return the selection for a mesh, roads or a graph, and its command."""
    checks.check_choice("--kernel", kernel, choices.GRAPH_KERNELS)
    checks.check_least(1, max_nonzeros=max_nonzeros)
    request.check()
    known_input(file, "advise")
    import graphs
    from rfgp.models.graphs import advised_selection
    from rfgp.models.report import Budget

    with progress(visible=visible) as report:
        report("Reading", 0, 0)
        graph, command = _read_graph(file, target, report)
        report("Measuring", 0, 0)
        limits = (request.time_limit, request.memory)
        given = [] if limits == (None, None) else [Budget.of(*limits)]
        chosen = graphs.kernels.by_name(kernel)
        selection = advised_selection(graph, chosen, max_nonzeros, request.seed, *given)
    features = selection.chosen.options["features"]
    if command is None:
        line = f'rfgp.GraphGP(graph, kernel="{kernel}", features="{features}")'
        return selection, f"{line}  # in Python: it has no values"
    words = ["rfgp", command, str(file), *(["--target", target] if target is not None and command == "traffic" else [])]
    typed = shlex.join([*words, "--kernel", kernel, "--features", features])
    domain = "the surface" if command == "mesh" else "the roads"
    return selection, f"{typed}, or {shlex.join(words)}: a field on {domain}, exactly"


def _read_graph(file: Path, target: str | None, report: Any) -> tuple[Any, str | None]:
    """Return a graph, and the command that reads such a file, if one does."""
    import graphs
    from rfgp.datasets import CATALOG, fetch
    from rfgp.fields import read_field

    entry = None if file.exists() else CATALOG.get(str(file))
    if (entry.kind == "graph") if entry is not None else file.suffix.lower() == ".gml":
        path = fetch(str(file), progress=report) if entry is not None else file
        return graphs.Graph.from_gml(path), None
    is_mesh = entry.kind == "mesh" if entry is not None else file.suffix.lower() in choices.MESH_SUFFIXES
    command = "mesh" if is_mesh else "traffic"
    return read_field(resolve(file, command, report), "value" if target is None else target).graph, command


def _figures(selection: Any) -> dict[str, Any]:
    """Return a selection as values for JSON."""
    trials = [
        {
            "name": trial.name,
            "options": dict(trial.options),
            selection.measure.replace(" ", "_"): None if trial.last is None else trial.last.value,
            "standard_error": None if trial.last is None else trial.last.error,
            "rows": None if trial.last is None else trial.last.rows,
            "seconds": trial.seconds,
            "bytes": trial.memory,
            "status": trial.status,
        }
        for trial in selection.trials
    ]
    return {
        "best": selection.chosen.name,
        "weights": selection.parts,
        "reason": selection.reason,
        "candidates": trials,
        "baselines": {name: baseline.value for name, baseline in selection.baselines.items()},
    }
