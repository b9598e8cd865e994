"""Checks of the arguments of commands, before torch or scipy are loaded, so that errors are immediate."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rfgp.cli import choices
from rfgp.cli.common import check_input, known_input
from rfgp.errors import InvalidArgumentError, ModelFileError
from rfgp.messages import read_bytes, read_seconds

_MODEL_HEAD = 8
"""Bytes before the JSON with which a saved model begins."""


def check_choice(option: str, value: str | None, known: Iterable[str]) -> None:
    """Check that an option accepts a name.

    None is always accepted.

    Args:
        option: The option, such as "--weights".
        value: The name, or None.
        known: The accepted names.

    Raises:
        InvalidArgumentError: If the name is not accepted. The message lists the accepted names.

    Examples:
        >>> check_choice("--weights", "unit", ["unit", "cotangent"])
    """
    from rfgp.messages import did_you_mean

    known = tuple(known)
    if value is not None and value not in known:
        raise InvalidArgumentError(
            f"{option} must be one of {', '.join(known)}, got {value!r}.{did_you_mean(value, known)}"
        )


def check_least(least: int, **values: int | Iterable[int] | None) -> None:
    """Check that numbers of options are not below a limit.

    None is always accepted.

    Args:
        least: The limit.
        **values: Numbers by the names of their options.

    Raises:
        InvalidArgumentError: If a number is below the limit.

    Examples:
        >>> check_least(1, draws=10)
    """
    for name, given in values.items():
        for value in () if given is None else (given,) if isinstance(given, int) else given:
            if value < least:
                raise InvalidArgumentError(f"{_flag(name)} must be at least {least}, got {value}.")


def check_share(option: str, value: float) -> None:
    """Check that a fraction is strictly between 0 and 1.

    Args:
        option: The option.
        value: The fraction.

    Raises:
        InvalidArgumentError: If the number is outside this range.

    Examples:
        >>> check_share("--test-share", 0.2)
    """
    if not 0 < value < 1:
        raise InvalidArgumentError(f"{option} must lie strictly between 0 and 1, got {value}.")


def check_within(within: float | None) -> None:
    """Check that a limit of distances is positive, possibly infinite.

    Args:
        within: The limit. None is accepted.

    Raises:
        InvalidArgumentError: If the limit is not positive.

    Examples:
        >>> check_within(0.5)
    """
    if within is not None and not within > 0:
        raise InvalidArgumentError(f"--within must be positive, got {within}.")


def check_positive(option: str, value: float, *, or_zero: bool = False) -> None:
    """Check that a number is finite and positive, or zero if that is allowed.

    Args:
        option: The option.
        value: The number.
        or_zero: Whether zero is allowed.

    Raises:
        InvalidArgumentError: If the number is not finite, negative, or zero if that is not allowed.

    Examples:
        >>> check_positive("--time-limit", 60.0)
    """
    if not (math.isfinite(value) and (value > 0 or (or_zero and value == 0))):
        least = "not negative" if or_zero else "positive"
        raise InvalidArgumentError(f"{option} must be finite and {least}, got {value}.")


def check_limits(time_limit: str | None, memory: str | None) -> None:
    """Check that limits of time and memory can be read.

    Args:
        time_limit: The time, such as "5min", or None.
        memory: The memory, such as "4GB", or None.

    Raises:
        InvalidArgumentError: If a limit cannot be read. The message has the value.

    Examples:
        >>> check_limits("5min", "4GB")  # no error
    """
    if time_limit is not None:
        read_seconds("--time-limit", time_limit)
    if memory is not None:
        read_bytes("--memory", memory)


def check_validation(validation: Mapping[str, Any]) -> None:
    """Check the options of held-out rows.

    Args:
        validation: The values of `test_share`, `holdout` and `fit_rows`, by name.

    Raises:
        InvalidArgumentError: If the value is invalid. The message has the option, its valid values and the value.

    Examples:
        >>> check_validation({"test_share": 0.2, "holdout": "random", "fit_rows": 100})  # no error
    """
    check_share("--test-share", validation["test_share"])
    check_choice("--holdout", validation["holdout"], choices.HOLDOUTS)
    check_least(2, fit_rows=validation["fit_rows"])


def check_graph(kernel: str, features: str | None, halt: float, kernels: Iterable[str] = choices.GRAPH_KERNELS) -> None:
    """Check the kernel, the features and the halting probability of a process on a graph.

    Args:
        kernel: The name of the kernel.
        features: The name of the features, or None.
        halt: The halting probability.
        kernels: The accepted names of kernels.

    Raises:
        InvalidArgumentError: If the value is invalid. The message has the option, its valid values and the value.

    Examples:
        >>> check_graph("diffusion", None, 0.1)  # no error
    """
    check_choice("--kernel", kernel, kernels)
    check_choice("--features", features, choices.GRAPH_FEATURES)
    check_share("--halt", halt)


def check_field(file: Path, command: str, model: Mapping[str, Any], judging: tuple[float, str, str | None]) -> None:
    """Check the file and the options of a process on a mesh or on roads.

    Args:
        file: The file, or the name of a public data set.
        command: "mesh" or "traffic".
        model: The values of `kernel`, `features`, `num_walkers`, `p_halt` and `seed`, and for roads of `boundary`, by
            name.
        judging: The fraction of the observations to hold out, the kind of holdout, and the column or property of groups
            or None.

    Raises:
        InvalidArgumentError: If the value is invalid. The message has the option, its valid values and the value.
    """
    kernel = choices.FIELD if choices.is_expression(model["kernel"]) else model["kernel"]
    check_graph(kernel, model["features"], model["p_halt"], (choices.FIELD, *choices.GRAPH_KERNELS))
    check_choice("--boundary", model.get("boundary"), choices.BOUNDARIES)
    check_least(1, num_walkers=model["num_walkers"])
    check_least(0, seed=model["seed"])
    check_share("--test-share", judging[0])
    check_choice("--holdout", judging[1], choices.HOLDOUTS)
    if judging[1] == "last" and judging[2] is not None:
        raise InvalidArgumentError("--holdout last takes observations by their order. Leave out --holdout-by.")
    known_input(file, command)


def check_comparison(protocol: Mapping[str, Any], splits: int, draws: int, seed: int) -> None:
    """Check the arguments of a comparison of approximations.

    Args:
        protocol: The arguments of `compare_file` by name.
        splits: The number of splits.
        draws: The number of draws.
        seed: The seed.

    Raises:
        InvalidArgumentError: If the value is invalid. The message has the option, its valid values and the value.
    """
    check_choice("--features", protocol["features"], ("fourier", "laplace"))
    check_choice("--metric", protocol["metric"], choices.METRICS)
    check_graph(protocol["kernel"], None, protocol["p_halt"])
    check_least(1, splits=splits, draws=draws, size=protocol["sizes"], num_test=protocol["num_test"])
    check_least(2, num_train=protocol["num_train"])
    check_least(0, seed=seed)


def check_table(
    file: Path, target: str | None, reading: Mapping[str, Any], command: str = "fit", group: str | None = None
) -> tuple[str, ...] | None:
    """Return the names of the columns of a table, or None if the file must be read to find them.

    The options, the file and the names of columns are checked. Only the first lines of a text file or the footer of a
    Parquet file are read. Public data sets are not opened.

    Args:
        file: The file, or the name of a public data set.
        target: The target column. If None, the last.
        reading: Options of `read_table`.
        command: The command, for messages.
        group: The column of groups, or None.

    Raises:
        InvalidArgumentError: If an option is invalid, or the file or a column does not exist.
        DataError: If the file is missing, empty or something else.
    """
    from rfgp.tables.columns import find_column
    from rfgp.tables.options import ReadOptions

    request = ReadOptions(target, **reading)
    if not known_input(file, command):
        return None
    names = _names(file, request)
    for wanted in (target, group, *request.drop, *request.as_categories):
        if names is not None and wanted is not None:
            find_column(names, wanted)
    return names


def check_inputs(file: Path, missing: str | None, form: Mapping[str, Any]) -> None:
    """Check the file and the options of a table for predictions.

    Args:
        file: The file.
        missing: The policy for missing cells, or None.
        form: Options of `read_table` about the format of the file.

    Raises:
        InvalidArgumentError: If an option is invalid, or the ending of the name is not that of a table.
        DataError: If the file is missing, empty or something else.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _, _ = file.write("1,2"), file.flush()
        ...     check_inputs(Path(file.name), "drop", {})  # no error
    """
    from rfgp.messages import unquoted
    from rfgp.tables.options import TABLE_SUFFIXES, TextFormat
    from rfgp.tables.text import check_file

    check_choice("--missing", missing, ("error", "drop", "mean"))
    TextFormat(**form)
    check_file(file)
    if file.suffix.lower() not in TABLE_SUFFIXES:
        endings = ", ".join(TABLE_SUFFIXES)
        raise InvalidArgumentError(f"The ending of the file must be one of {endings}, got {unquoted(file.name)}.")


def _names(file: Path, form: Any) -> tuple[str, ...] | None:
    """Return the names in the header of a table, or None if the file must be read to find them."""
    from rfgp.tables.options import PARQUET_SUFFIXES, TEXT_SUFFIXES
    from rfgp.tables.text import peek_names

    suffix = file.suffix.lower()
    if suffix in PARQUET_SUFFIXES:
        from rfgp.tables.text import opened

        with opened(file) as parquet:
            return tuple(name.strip() for name in parquet.schema_arrow.names)
    return peek_names(file, form) if suffix in TEXT_SUFFIXES else None


def check_model_file(path: Path) -> None:
    """Check that a file begins like a saved model.

    Args:
        path: The file.

    Raises:
        ModelFileError: If the file is missing, a folder, or not a model.

    Examples:
        >>> check_model_file(Path("absent.safetensors"))
        Traceback (most recent call last):
            ...
        rfgp.errors.ModelFileError: There is no file absent.safetensors.
    """
    check_input(path)
    if path.is_dir():
        raise ModelFileError(
            f"The model must be a file, got the folder {path}. Name a file, such as {path / 'model.safetensors'}."
        )
    if not path.exists():
        raise ModelFileError(f"There is no file {path}.")
    with path.open("rb") as stream:
        begin = stream.read(_MODEL_HEAD + 1)
    if begin[_MODEL_HEAD:] != b"{":
        raise ModelFileError(f"{path} is not a saved model. Name the model.safetensors that `rfgp fit` wrote.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
