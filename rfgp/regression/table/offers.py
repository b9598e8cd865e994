"""What a user leaves open of a process on a table, and the candidates that there are for it.

A named value is kept, and what names a part of a model asks for that part: with `num_frequencies` there are
frequencies, with `num_inducing` inducing points, with `num_neighbors` neighbours, unless `features` or `local` says
otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from rfgp import random
from rfgp.errors import InvalidArgumentError
from rfgp.local.kinds import kind_of, read_spectrum
from rfgp.parameters import Hyperprior
from rfgp.regression.family import read_likelihood
from rfgp.regression.selection_report import Limits
from rfgp.regression.table.kinds import options_of
from rfgp.regression.table.options import LOCAL_STARTS, RESIDUAL, FeatureOptions, KernelOptions

AUTO = "auto"
FEW_ROWS = 2000
"""Rows up to which the candidates are exact kernels, where these are allowed: nothing is approximated that need not.
Beyond, one exact kernel is behind what is local (2,700 rows of power-plant, held out: -.07 and -.22), and an average
dear."""
_STANDING: dict[str, Any] = {
    "features": "fourier",
    "spectrum": "gaussian",
    "num_frequencies": 512,
    "coupling": "energy",
    "frequencies": "fixed",
    "num_inducing": 512,
    "inducing": "k-means",
    "learn_inducing": False,
    "diagonal": None,
    "local": None,
    "num_neighbors": 30,
}
"""What options are where no candidate says anything else."""
_PARTS = {
    "num_frequencies": "fourier",
    "coupling": "fourier",
    "frequencies": "fourier",
    "num_inducing": "nystrom",
    "inducing": "nystrom",
    "learn_inducing": "nystrom",
}
"""The features that an option is of."""
_OF_LIMITS = ("time_limit", "memory")
Recipe = Mapping[str, Any]


def _exact(spectrum: str, local: str | None = None) -> Recipe:
    return {"features": "exact", "spectrum": spectrum, "local": local}


def _fourier(frequencies: str, m: int, local: str | None = None) -> Recipe:
    return {"features": "fourier", "frequencies": frequencies, "num_frequencies": m, "local": local}


def _points(spectrum: str, local: str | None, diagonal: str | None = None) -> Recipe:
    return {"features": "nystrom", "spectrum": spectrum, "local": local, "diagonal": diagonal}


def _near(local: str) -> Recipe:
    return {"features": None, "local": local}


RECIPES: tuple[tuple[Recipe, Recipe | None], ...] = (
    (_exact("gaussian"), None),
    (_exact("matern32"), None),
    (_exact("matern12"), None),
    (_exact("gaussian", "matern32"), None),
    (_exact("gaussian", "matern12"), None),
    (_near("matern32"), None),
    (_near("matern12"), _near("matern32")),
    (_near("matern52"), _near("matern32")),
    (_fourier("fixed", 128), None),
    (_fourier("fixed", 512), _fourier("fixed", 128)),
    (_fourier("learned", 128), None),
    (_fourier("learned", 64), _fourier("learned", 128)),
    (_fourier("learned", 256), _fourier("learned", 128)),
    (_fourier("learned", 512), _fourier("learned", 128)),
    (_fourier("fixed", 128, "matern32"), None),
    (_fourier("fixed", 128, "matern12"), _fourier("fixed", 128, "matern32")),
    (_fourier("learned", 128, "matern32"), _fourier("fixed", 128, "matern32")),
    (_points("matern32", RESIDUAL), _near("matern32")),
    (_points("gaussian", None, "fitc"), _points("matern32", RESIDUAL)),
    (_points("matern32", None, "fitc"), _points("matern32", RESIDUAL)),
)
"""The candidates, each with that of which it is a variant, tried only where that one goes further; None: of none."""
_READ_ONCE = [recipe for recipe, _ in RECIPES if recipe["features"] == "fourier" and recipe["local"] is None]


@dataclass(frozen=True)
class Offer:
    """A candidate.

    Attributes:
        options: All that it takes.
        head: The number in the menu of that of which it is a variant; None: it is none.
    """

    options: KernelOptions
    head: int | None = None


@dataclass(frozen=True)
class OpenOptions:
    """What a user chooses of a process on a table where he leaves some of it "auto"; see `rfgp.TableGP`.

    Raises:
        InvalidArgumentError: no candidate can take what is given.
    """

    features: Any = AUTO
    spectrum: Any = AUTO
    num_frequencies: Any = AUTO
    coupling: Any = AUTO
    frequencies: Any = AUTO
    num_inducing: Any = AUTO
    inducing: Any = AUTO
    learn_inducing: Any = AUTO
    diagonal: Any = AUTO
    local: Any = AUTO
    num_neighbors: Any = AUTO
    condition_on: str = "auto"
    ard: bool = True
    standardize: bool = True
    lengthscale: Any = None
    outputscale: float | None = None
    noise: float | None = None
    local_lengthscale: Any = None
    local_outputscale: float | None = None
    likelihood: Any = "normal"
    inference: str | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    seed: Any = None
    dtype: torch.dtype | None = None
    memory: Any = None
    time_limit: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", read_likelihood(self.likelihood, self.noise))
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))
        assert self.limits
        self.menu(FEW_ROWS + 1)

    @property
    def limits(self) -> Limits:
        """What choosing and the fit may cost."""
        return Limits.of(self.time_limit, self.memory)

    @property
    def given(self) -> dict[str, Any]:
        """What is not left open of the options of models."""
        return {
            name: value
            for name in (field.name for field in fields(self) if field.name not in _OF_LIMITS)
            if not isinstance(value := getattr(self, name), str) or value != AUTO or name == "condition_on"
        }

    def menu(self, rows: int, streamed: bool = False) -> tuple[Offer, ...]:
        """Return the candidates for so many rows, those that are variants of others after these.

        Args:
            rows: n.
            streamed: Whether the rows are read in blocks, so that candidates keep none of them.

        Raises:
            InvalidArgumentError: there is none.
        """
        found, numbers, errors = list[Offer](), dict[int, int](), list[InvalidArgumentError]()
        for number, head in self._allowed(rows, streamed):
            try:
                options = options_of(**{**_STANDING, **RECIPES[number][0], **self.given})
            except InvalidArgumentError as error:
                errors.append(error)
                continue
            if not any(type(options) is type(o.options) and _plain(options) == _plain(o.options) for o in found):
                numbers[number] = len(found)
                found.append(Offer(options, numbers.get(head) if head is not None else None))
        return tuple(found) or (Offer(self.standing(errors)),)

    @property
    def names_features(self) -> bool:
        """Whether it is said by what the kernel is computed."""
        return any(name in self.given for name in ("features", "local", "diagonal", "num_neighbors", *_PARTS))

    def standing(self, errors: Sequence[InvalidArgumentError] = ()) -> KernelOptions:
        """Return what is given, with what stands for the rest; or raise the first of the errors that led here."""
        try:
            return options_of(**{**_STANDING, **self.given})
        except InvalidArgumentError as error:
            raise [*errors, error][0] from None

    def _allowed(self, rows: int, streamed: bool) -> list[tuple[int, int | None]]:
        """Return the numbers of the recipes that fit what is given, with those of their heads."""
        known = [recipe for recipe, _ in RECIPES]
        fitting = [(i, None if h is None else known.index(h)) for i, (r, h) in enumerate(RECIPES) if self._fits(r)]
        plain = [pair for pair in fitting if known[pair[0]].get("diagonal") is None]
        fitting = plain if any(known[i]["features"] != "nystrom" for i, _ in plain) else fitting
        if streamed:
            read = [pair for pair in fitting if known[pair[0]] in _READ_ONCE]
            return read or fitting
        exact = [pair for pair in fitting if known[pair[0]]["features"] == "exact"]
        others = [pair for pair in fitting if pair not in exact]
        return exact or others if rows <= FEW_ROWS else others or exact

    def _fits(self, recipe: Recipe) -> bool:
        """Return whether a recipe has what is given."""
        given = self.given
        if "frequencies" in given and recipe.get("frequencies", "fixed") != given["frequencies"]:
            return False
        if "diagonal" in given and (recipe.get("diagonal") is None) != (given["diagonal"] is None):
            return False
        parts = [_PARTS[name] for name in given if name in _PARTS and given[name] is not False]
        if "features" in given:
            parts = ["fourier" if given["features"] == "laplace" else given["features"]]
        return (not parts or recipe["features"] in parts) and self._fits_near(recipe, given)

    def _fits_near(self, recipe: Recipe, given: Mapping[str, Any]) -> bool:
        """Return whether a recipe has the neighbours that are given, and a kernel that can be."""
        local = recipe["local"]
        if "local" in given and (local is None) != (given["local"] is None):
            return False
        if "local" in given and (local == RESIDUAL) != (given["local"] == RESIDUAL):
            return False
        wants = any(getattr(self, name) is not None for name in LOCAL_STARTS)
        if wants and (local in (None, RESIDUAL) or recipe["features"] is None):
            return False
        if "num_neighbors" in given and "local" not in given and (local is None or recipe["features"] == "exact"):
            return False
        alone = recipe["features"] is None and "features" not in given
        return not (alone and "spectrum" in given and read_spectrum(local or "") != read_spectrum(given["spectrum"]))


def _plain(options: KernelOptions) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(options).items()}
