"""`rfgp advise`: what each choice would cost and bring, and which command to type."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import checks, choices, options
from rfgp.cli.common import is_field, known_input, open_table, print_json, progress, resolve, say

_FLAGS = {
    "features",
    "spectrum",
    "num_frequencies",
    "frequencies",
    "num_inducing",
    "diagonal",
    "local",
    "num_neighbors",
}
"""Options of a candidate that `rfgp fit` has under the same names."""


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
    time_limit: options.TimeLimit = None,
    memory: options.Memory = None,
    likelihood: Annotated[str, typer.Option(help="Tables: as for `rfgp fit`.")] = "normal",
    kernel: Annotated[
        str, typer.Option(help="Meshes, roads, graphs: the kernel: diffusion, regularized-laplacian, matern.")
    ] = "diffusion",
    max_nonzeros: Annotated[int, typer.Option(help="Meshes, roads, graphs: the most features of a node.")] = 64,
    categories: options.Categories = "error",
    dates: options.Dates = "error",
    missing: options.Missing = "error",
    drop: options.Drop = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Say what each choice would cost and bring, measured on a sample, and which command to type.

    Of tables candidates are measured by the density of rows that are left out or kept out; of meshes, roads and graphs
    features are measured by the error of the kernel, on some nodes.
    """
    reading = {"categories": categories, "dates": dates, "missing": missing, "drop": tuple(drop or ())}
    checks.check_choice("--likelihood", likelihood, choices.LIKELIHOODS)
    checks.check_choice("--kernel", kernel, choices.GRAPH_KERNELS)
    checks.check_least(1, max_nonzeros=max_nonzeros)
    checks.check_least(0, seed=seed)
    checks.check_limits(time_limit, memory)
    is_graph = is_field(file, ".gml")
    if is_graph:
        known_input(file, "advise")
    else:
        checks.check_table(file, target, reading, "advise")
    with progress(visible=not as_json) as report:
        if is_graph:
            most = {"time_limit": time_limit, "memory": memory}
            choice, command = _of_graph(file, target, kernel, max_nonzeros, seed, most, report)
        else:
            limits = {"time_limit": time_limit, "memory": memory, "likelihood": likelihood, "seed": seed}
            choice, command = _of_table(file, target, reading, limits, report)
    if as_json:
        print_json({**_figures(choice), "command": command})
        return
    if (rule := choice.unbeaten_baseline) is not None:
        say(f"Nothing that was tried is better than {rule}.")
    say(choice.reason)
    for line in choice.table():
        say(line)
    say("Seconds are of a fit to everything, as predicted, on one core.")
    say(f"Type: {command}")


def _of_table(
    file: Path, target: str | None, reading: Mapping[str, Any], limits: Mapping[str, Any], report: Any
) -> tuple[Any, str]:
    """Return the choice for a table, and the command that fits it."""
    from rfgp import TableGP

    report("Reading", 0, 0)
    table = open_table(file, target, reading, report)
    table.check_numeric_target()

    def show(now: Any) -> None:
        report(now.stage, now.iteration, now.iterations)

    choice = TableGP(**limits).advise(table.X, table.y, progress=show)
    words = ["rfgp", "fit", str(file), *([] if target is None else ["--target", target])]
    given = {name: value for name, value in reading.items() if value not in ("error", ())}
    words += [f"--{name}={value}" for name, value in given.items() if name != "drop"]
    words += [f"--drop={name}" for name in given.get("drop", ())]
    words += [] if limits["likelihood"] == "normal" else ["--likelihood", str(limits["likelihood"])]
    words += [f"--{name.replace('_', '-')}={_text(value)}" for name, value in _named(choice).items()]
    if choice.weights:  # `rfgp fit` chooses again
        limiting = {name: limits[name] for name in ("time_limit", "memory") if limits[name] is not None}
        limiting |= {"seed": limits["seed"]} if limits["seed"] else {}
        words += [f"--{name}={value}" for name, value in limiting.items()]
    return choice, shlex.join(words)


def _named(choice: Any) -> dict[str, Any]:
    """Return the flags of what was chosen: of an average of exact kernels only that, so that the rest stays open."""
    options = choice.chosen.options
    return {name: options[name] for name in options if name in (("features",) if choice.weights else _FLAGS)}


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _of_graph(
    file: Path, target: str | None, kernel: str, max_nonzeros: int, seed: int, most: Mapping[str, Any], report: Any
) -> tuple[Any, str]:
    """Return the choice for a mesh, roads or a graph, and the command, or the line of Python, that goes with it."""
    import graphs
    from rfgp.regression.graph import advised_selection
    from rfgp.regression.selection_report import Limits

    report("Reading", 0, 0)
    graph, command = _read_graph(file, target, report)
    report("Measuring", 0, 0)
    chosen = graphs.kernels.by_name(kernel)
    given = (
        [] if most["time_limit"] is most["memory"] is None else [Limits.of(most["time_limit"], most["memory"], None)]
    )
    choice = advised_selection(graph, chosen, max_nonzeros, seed, *given)
    features = choice.chosen.options["features"]
    if command is None:
        return choice, f'rfgp.GraphGP(graph, kernel="{kernel}", features="{features}")  # in Python: it has no values'
    words = ["rfgp", command, str(file), *(["--target", target] if target is not None and command == "traffic" else [])]
    typed = shlex.join([*words, "--kernel", kernel, "--features", features])
    place = "the surface" if command == "mesh" else "the roads"
    return choice, f"{typed}, or {shlex.join(words)}: a field on {place}, exactly"


def _read_graph(file: Path, target: str | None, report: Any) -> tuple[Any, str | None]:
    """Return a graph, and the command that reads such a file, if one does; the target is a property of sensors."""
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


def _figures(choice: Any) -> dict[str, Any]:
    """Return a choice as JSON has it."""
    trials = [
        {
            "name": trial.name,
            "options": dict(trial.options),
            choice.measure.replace(" ", "_"): None if trial.last is None else trial.last.value,
            "standard_error": None if trial.last is None else trial.last.error,
            "rows": None if trial.last is None else trial.last.rows,
            "seconds": trial.seconds,
            "bytes": trial.memory,
            "remark": trial.status,
        }
        for trial in choice.trials
    ]
    rules = {name: rule.value for name, rule in choice.baselines.items()}
    return {
        "best": choice.chosen.name,
        "shares": choice.parts,
        "reason": choice.reason,
        "candidates": trials,
        "rules": rules,
    }
