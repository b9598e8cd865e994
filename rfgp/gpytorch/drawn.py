"""The state of a `TermKernel`: a kernel and approximations of its terms, resolved on rows."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Exact
from rfgp.approximations.planning import assign, read_approximation
from rfgp.approximations.role import Approximation
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind, Table
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch.covariances import InputPair, have_equal_values, is_same_memory
from rfgp.kernels.kernel import transformed
from rfgp.kernels.role import Key, check_points, requests_of
from rfgp.models.spec import ModelOptions, ModelSpec
from rfgp.models.state import begin
from rfgp.parameters import Hyperparameter, ParameterValues, find_path
from rfgp.rows import Chunk

OTHERS = ("noise", "mean")
"""The hyperparameters of a model that its kernel does not have."""
INSTEAD = "Use RandomFeatures(), InducingPoints() or Exact(). rfgp.GP supports the others."
"""Remedies for approximations that are not covariance functions."""


@dataclass(frozen=True, eq=False)
class DrawnTerms:
    """The terms of a kernel with their random draws.

    Copies of a model share the object.

    Attributes:
        spec: The kernel, its terms and their approximations.
        values: The hyperparameters at which the draws were made.
        num_rows: The number n of rows that decided starts and draws.
        num_columns: The number d of columns of inputs.
    """

    spec: ModelSpec
    values: ParameterValues
    num_rows: int
    num_columns: int

    @classmethod
    def of(cls, options: ModelOptions, rows: Tensor) -> "DrawnTerms":
        """Return the terms resolved on rows, for targets of variance 1.

        Args:
            options: The kernel, its approximations, starting values and seed.
            rows: Training inputs (n, d), or similar rows.

        Raises:
            DataError: If a column is missing or cannot be read.
            InvalidArgumentError: If an approximation has no covariance function, or the path of a starting value is
                unknown.
        """
        ramp = torch.arange(len(rows), dtype=torch.float64, device=rows.device)
        expanded = transformed(options.kernel, lambda factor: factor.expanded(range(rows.shape[1])))
        nodes = [request.key for request in requests_of(expanded.terms()) if request.kind is ColumnKind.NODE]
        begun = begin(ModelSpec(options), Chunk(_table(rows, nodes), (ramp - ramp.mean()) / ramp.std()))
        assert isinstance(begun.spec, ModelSpec)
        drawn = cls(begun.spec, begun.hyperparameters, len(rows), rows.shape[1])
        for name in options.start:
            find_path(name, drawn.paths)
        return drawn._as_covariance(options.approximations)

    # --- hyperparameters --------------------------------------------------------------------------

    @property
    def quantities(self) -> dict[str, Hyperparameter]:
        """The hyperparameters of the kernel by path."""
        return {path: one for path, one in self.values.space.quantities.items() if path not in OTHERS}

    @property
    def learnable(self) -> dict[str, Tensor]:
        """The initial values (...) of learned draws, such as frequencies, by path."""
        return {path: draw for term in self.spec.term_priors for path, draw in term.learnable.items()}

    @property
    def paths(self) -> list[str]:
        """The paths of the hyperparameters and of the learned draws."""
        return [*self.quantities, *self.learnable]

    def prior(self, known: Mapping[str, Tensor]) -> Prior:
        """Return the prior at given hyperparameters.

        Args:
            known: Hyperparameters and learned draws (...) by path.
        """
        assert self.spec.columns is not None
        return Prior.of_terms([term.at(known, self.spec.columns) for term in self.spec.term_priors])

    @property
    def is_low_rank(self) -> bool:
        """Whether the covariance is a product of dense features at all inputs.

        This excludes levels, since new levels add to the covariance.
        """
        assert self.spec.schema is not None
        prior = self.prior({path: self.values.standardized(path) for path in self.quantities})
        has_levels = ColumnKind.LEVEL in self.spec.schema.kinds
        return prior.has_weights_only and not prior.dense.has_residual and not has_levels

    def check_low_rank(self) -> None:
        """Check that all terms are products of dense features.

        Raises:
            InvalidArgumentError: If a term is not a product of dense features.
        """
        if not self.is_low_rank:
            raise InvalidArgumentError(
                "Not all terms are products of dense features at all inputs. Use RandomFeatures(), or "
                "InducingPoints(method='sor'), for all of them. Terms of levels and of residuals are not."
            )

    # --- draws ------------------------------------------------------------------------------------

    def with_new_basis(self, approximation: Any, values: Mapping[str, Any]) -> "DrawnTerms":
        """Return the terms with other approximations, drawn at some hyperparameters.

        Args:
            approximation: One approximation, or a dict by the names of terms. Other terms keep theirs.
            values: The hyperparameters by path.

        Raises:
            InvalidArgumentError: If a term is unknown, or an approximation does not support a term.
        """
        new = self.values.with_values(**values)
        data = self.spec.term_data(new, self.num_rows)
        chosen = assign(read_approximation(approximation), data, self.spec.approximations)
        drawn = replace(self, spec=self.spec.with_approximations(chosen, new, self.num_rows), values=new)
        drawn._refuse(drawn._without_covariance())
        return drawn

    def draws_shared_with(self, other: "DrawnTerms") -> list[str]:
        """Return the paths of learned draws in terms with the same approximation in both objects.

        Args:
            other: The same terms, perhaps with other approximations.
        """
        old = self.spec.approximations
        same = [name for name, one in other.spec.approximations.items() if old[name] == one]
        pairs = zip(other.spec.terms, other.spec.term_priors, strict=True)
        return [path for term, prior in pairs if term.name in same for path in prior.learnable]

    def _as_covariance(self, asked: Any) -> "DrawnTerms":
        """Return the terms with an exact covariance where a plan chose an approximation that has none.

        Args:
            asked: The approximations that the user gave.

        Raises:
            InvalidArgumentError: If the user chose an approximation without a covariance function.
        """
        found, chosen = self._without_covariance(), self.spec.approximations
        own = asked if isinstance(asked, Mapping) else {name: one for name, one in chosen.items() if one is asked}
        self._refuse({name: why for name, why in found.items() if name in own})
        if not found:
            return self
        wanted: dict[str, Approximation] = {**own, **{name: Exact() for name in found}}
        return replace(self, spec=self.spec.with_approximations(wanted, self.values, self.num_rows))

    def _without_covariance(self) -> dict[str, str]:
        """Return the names of terms whose approximations are no covariance functions, each with the reason."""
        known = {path: self.values.standardized(path) for path in self.quantities}
        assert self.spec.columns is not None
        found = {}
        for term, drawn in zip(self.spec.terms, self.spec.term_priors, strict=True):
            why = _reason(drawn.at(known, self.spec.columns))
            if why is not None:
                found[term.name] = why
        return found

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        for name, why in reasons.items():
            raise InvalidArgumentError(
                f"{self.spec.approximations[name]!r} of the term {name!r} cannot be part of a GPyTorch kernel, because "
                f"{why}"
            )

    # --- rows -------------------------------------------------------------------------------------

    def read(self, x: Tensor) -> tuple[Tensor, bool]:
        """Return the columns (..., n, D) that the kernel reads, and whether there are new levels.

        Args:
            x: Inputs (..., n, d).

        Raises:
            DataError: If a column cannot be read.
            InvalidArgumentError: If the number of columns differs from that of the rows.
        """
        schema, columns = self.spec.schema, self.spec.columns
        assert schema is not None
        assert columns is not None
        if x.shape[-1] != self.num_columns:
            raise InvalidArgumentError(f"Inputs must have {self.num_columns} columns, got {x.shape[-1]}.")
        if all(kind is ColumnKind.NUMBER for kind in schema.kinds):
            x = x if x.is_floating_point() else x.double()
            keys = [int(column.key) for column in schema.columns]
            return (x if keys == list(range(self.num_columns)) else x[..., keys]), False
        nodes = [column.key for column in schema.columns if column.kind is ColumnKind.NODE]
        found = schema.read(_table(x.reshape(-1, self.num_columns), nodes))
        check_points(self.spec.terms, found)
        levels = [place for place, kind in enumerate(schema.kinds) if kind is ColumnKind.LEVEL]
        known = torch.tensor([columns.num_levels[place] for place in levels], device=found.device)
        return found.reshape(*x.shape[:-1], -1), bool((found[:, levels] >= known).any())

    def pair(self, x1: Tensor, x2: Tensor, batch: torch.Size, dtype: torch.dtype) -> InputPair:
        """Return the columns that the kernel reads of two inputs, (B, n, D) and (B, m, D).

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., m, d).
            batch: The shape of the batch, with B elements.
            dtype: The type of the covariance.
        """
        is_same = is_same_memory(x1, x2)
        size = x1.shape[-2]
        if is_same or have_equal_values(x1, x2):
            a, has_new = self.read(x1)
            b = a
        else:
            shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
            both = torch.cat([x.expand(*shape, *x.shape[-2:]) for x in (x1, x2)], dim=-2)
            both, has_new = self.read(both)
            a, b = both[..., :size, :], both[..., size:, :]
        count = batch.numel()
        flat = a.expand(*batch, *a.shape[-2:]).reshape(count, *a.shape[-2:])
        other = flat if a is b else b.expand(*batch, *b.shape[-2:]).reshape(count, *b.shape[-2:])
        return InputPair(flat, other, is_same, has_new, dtype)

    # --- states -----------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """The data for JSON that repeat the draws for the same kernel and rows."""
        assert self.spec.columns is not None
        rows = self.spec.columns.sample.double().cpu().contiguous().numpy()
        return {
            "seed": self.spec.options.seed,
            "rows": hashlib.sha256(rows.tobytes()).hexdigest(),
            "approximations": {name: repr(one) for name, one in self.spec.approximations.items()},
            "values": {path: self.values.value(path).tolist() for path in self.quantities},
        }

    def restored(self, state: Any) -> "DrawnTerms":
        """Return the terms with the draws of a state.

        Args:
            state: The value of `state` of the same terms.

        Raises:
            InvalidArgumentError: If the state is invalid, or has other terms, approximations or rows.
        """
        own = self.state
        is_state = isinstance(state, dict) and state.keys() == own.keys() and isinstance(state["values"], dict)
        if not is_state or state["values"].keys() != own["values"].keys():
            raise InvalidArgumentError("This is no state of this kernel. Make the kernel of the same terms.")
        if state["approximations"] != own["approximations"]:
            given = state["approximations"]
            raise InvalidArgumentError(f"The state has the approximations {given}, not {own['approximations']}.")
        if state["rows"] != own["rows"]:
            raise InvalidArgumentError(
                "The state is of a kernel of other rows. Make the kernel with the same X and seed."
            )
        if state == own:
            return self
        spec = replace(self.spec, options=self.spec.options.changed(seed=random.resolve_seed(state["seed"])))
        return replace(self, spec=spec).with_new_basis({}, state["values"])

    def __deepcopy__(self, memo: Any) -> "DrawnTerms":
        return self


def _table(rows: Tensor, nodes: Iterable[Key]) -> Table:
    """Return the table of rows (n, d), with whole numbers as integers in the columns of nodes."""
    table = Table.of(rows)
    known = {key: table.columns[key] for key in nodes if key in table.columns}
    whole = {key: column.long() for key, column in known.items() if bool((column == column.round()).all())}
    return replace(table, columns={**table.columns, **whole})


def _reason(prior: Prior) -> str | None:
    """Return why a prior has no covariance function, as a clause after "because". None if it has one."""
    if prior.neighbors is not None:
        return f"neighbors approximate a density and not a covariance. {INSTEAD}"
    if prior.precisions:
        return f"it factorizes a sparse precision and never forms a covariance. {INSTEAD}"
    if any(block.residual is not None and not block.residual.is_noise for block in prior.weights):
        return "its bound is that of no covariance. Use method='sor' or method='fitc', or rfgp.GP."
    return None
