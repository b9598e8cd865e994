"""`rfgp fit --likelihood categorical`: a model of several classes, its scores, and its predictions."""

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rfgp.errors import DataError


@dataclass(frozen=True)
class ClassScores:
    """The scores of a model of several classes on held-out rows.

    Attributes:
        target: The name of the target.
        classes: The names of the classes.
        train: The number of training rows.
        test: The number of held-out rows.
        accuracy: The fraction of held-out rows whose most probable class is right.
        log_loss: The mean negative log probability of the right class, in nats.
        most_frequent: The accuracy of the most frequent class of the training rows.
    """

    target: str
    classes: tuple[str, ...]
    train: int
    test: int
    accuracy: float
    log_loss: float
    most_frequent: float

    def summary(self) -> dict[str, Any]:
        """Return the scores for JSON."""
        return asdict(self)

    def text(self) -> str:
        """Return the scores as lines of text."""
        return (
            f"{self.target}: {len(self.classes)} classes, fitted to {self.train:,} rows.\n"
            f"Right class on {self.test:,} held-out rows: {100 * self.accuracy:.1f} % (the most frequent class: "
            f"{100 * self.most_frequent:.1f} %)\nLog loss: {self.log_loss:.4g} nats a row"
        )


def codes_of(table: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the number of each row's class (n,), and the names of the classes.

    Args:
        table: The table. Its target has texts or integers.

    Raises:
        DataError: If a target is not an integer.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables import read_table
        >>> codes, names = codes_of(read_table(pd.DataFrame({"size": [1, 2, 4], "kind": ["b", "a", "b"]}), "kind"))
        >>> codes.tolist(), names
        ([1, 0, 1], ('a', 'b'))
    """
    import numpy as np

    if table.classes is None and (wrong := table.y[table.y != np.round(table.y)]).size:
        raise DataError(
            f"The target {table.target!r} must have classes as texts or integers, got {wrong[0]:.6g}. Choose another "
            "--target, or --likelihood gaussian for numbers."
        )
    values, codes = np.unique(table.y, return_inverse=True)
    names = map("{:g}".format, values) if table.classes is None else (table.classes[int(value)] for value in values)
    return codes.reshape(-1), tuple(names)


def fit_classes(table: Any, gp: Any, path: Path, validation: Mapping[str, Any], with_data: bool) -> ClassScores:
    """Fit a model to a part of a table, score it on the rest, and save it conditioned on all rows.

    Args:
        table: The table.
        gp: The model, before a fit.
        path: The file of the model.
        validation: `test_share`, `seed`, `holdout` and, if there are any, `groups` of held-out rows.
        with_data: Whether to save the rows even if the model does not need them.
    """
    import numpy as np

    from rfgp import metrics
    from rfgp.report.holdout import group_numbers, split
    from rfgp.rows import repeat_groups
    from rfgp.saving import row_terms

    codes, names = codes_of(table)
    groups = validation.get("groups")
    kinds = repeat_groups(table.X, table.y) if groups is None else group_numbers(groups, len(codes))
    train, test = split(len(codes), validation["test_share"], validation["seed"], kinds, validation["holdout"])
    frame = table.frame()
    gp.fit(frame.iloc[train], codes[train])
    prediction = gp.predict(frame.iloc[test])
    right = np.asarray(prediction.observed().labels) == codes[test]
    usual = np.bincount(codes[train]).argmax()
    final = copy(gp).condition(frame, codes)
    final.metadata = {"schema": table.schema.to_dict(), "log": False, "classes": list(names)}
    final.save(path, data=with_data or bool(row_terms(final.spec)))
    loss = float(metrics.nlpd(codes[test], prediction))
    shares = float(right.mean()), float((codes[test] == usual).mean())
    return ClassScores(table.target, names, len(train), len(test), shares[0], loss, shares[1])
