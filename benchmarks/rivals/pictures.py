"""Pictures of scores against seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rivals.races import RACES, Race, is_ours, name_of
from benchmarks.rivals.scores import Score, read

_MARKERS = "osD^vP*X<>hp"


def draw(folder: Path) -> None:
    """Draw the score against the seconds of each race as folder/NAME.svg."""
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for name, (scores, _) in read().items():
        if not RACES[name].has_picture:
            continue
        figure = picture(scores, RACES[name])
        figure.savefig(folder / f"{name}.svg", bbox_inches="tight")
        plt.close(figure)


def picture(scores: Sequence[Score], race: Race) -> Any:
    """Return a figure with a panel for each data set: NLPD against seconds, ours as a curve over budgets."""
    from matplotlib import pyplot as plt

    datasets = list(dict.fromkeys(s.dataset for s in scores))
    rivals = list(dict.fromkeys(s.racer for s in scores if not is_ours(s.racer)))
    columns = min(4, len(datasets))
    lines = -(-len(datasets) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(3.2 * columns, 2.4 * lines + 0.6), squeeze=False, sharex=True)
    for axis, dataset in zip(axes.flat, datasets, strict=False):
        known = [s for s in scores if s.dataset == dataset and not s.failed]
        repeats = {s.repeat for s in known if s.racer == race.ours}
        compared = [s for s in known if s.repeat in repeats]
        for i, racer in enumerate(rivals):
            _mark(axis, compared, [racer], marker=_MARKERS[i % len(_MARKERS)], color=f"C{i + 1}", label=name_of(racer))
        for kind in dict.fromkeys(racer.split("-")[0] for racer in race.budgets):
            curve = [racer for racer in race.budgets if racer.startswith(kind)]
            style = "-" if kind == "features" else "--"
            _mark(axis, compared, curve, marker=".", linestyle=style, color="0.3", label=f"rfgp, {kind}")
        _mark(axis, compared, [race.ours], marker="*", markersize=13, color="black", label=name_of(race.ours))
        axis.set(xscale="log", title=dataset)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.margins(0.12)
    for axis in axes.flat[len(datasets) :]:
        axis.set_visible(False)
    figure.supxlabel(race.clock)
    figure.supylabel("NLPD, lower is better")
    found = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(found.values(), found.keys(), loc="lower center", ncols=4, bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.tight_layout()
    return figure


def _mark(axis: Any, scores: Sequence[Score], racers: Sequence[str], **style: Any) -> None:
    """Draw the means of racers over their repeats, in this order."""
    points = []
    for racer in racers:
        repeats = [(s.seconds, s.nlpd) for s in scores if s.racer == racer]
        if repeats:
            points.append(np.mean(repeats, axis=0))
    if points:
        axis.plot(*np.transpose(points), **({"linestyle": "none"} | style))
