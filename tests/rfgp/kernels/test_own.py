"""Kernels and an approximation that a user defines, with all that they can go with."""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rfgp
from graphs.precisions import IndependentField
from rfgp import kernels as k
from rfgp import spectra
from rfgp.approximations import Approximation, TermCost
from rfgp.approximations.parts import FinitePart
from rfgp.approximations.weights import WeightTermPrior
from rfgp.columns import ColumnKind
from rfgp.kernels.role import Functions
from rfgp.parameters import Hyperparameter

X = {"t": np.random.default_rng(0).uniform(0, 6, 80), "p": np.random.default_rng(1).normal(size=80)}
Y = np.sin(2 * X["t"]) + 0.3 * X["p"] + 0.1 * np.cos(9 * X["p"])
NEW = {"t": np.linspace(0.5, 5.5, 7), "p": np.linspace(-1, 1, 7)}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tent(k.Kernel):
    """max(0, 1 - |x - z| / width) of one column."""

    def covariance(self, a, b, values):
        return (1 - (a - b.mT).abs() / values["width"]).clamp_min(0)

    def hyperparameters(self, columns):
        one = columns.spread[0]
        return {"width": Hyperparameter(one, columns.scale[0], (0.01 * one, 100 * one))}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Smooth(k.Kernel):
    """A Gaussian kernel of one lengthscale, with its spectral measure."""

    measure: ClassVar[Any] = spectra.Gaussian()

    def covariance(self, a, b, values):
        return torch.exp(-torch.cdist(a, b).square() / (2 * values["lengthscale"].square()))

    def hyperparameters(self, columns):
        one = columns.spread.mean()
        return {"lengthscale": Hyperparameter(one, torch.ones_like(one), (0.01 * one, 100 * one))}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Cells(k.Kernel):
    """An independent effect of each unit interval of one column, with its (diagonal) precision."""

    kind: ClassVar[ColumnKind] = ColumnKind.COORDINATE

    def covariance(self, a, b, values):
        return (a.floor() == b.mT.floor()).double()

    def latent_field(self, columns):
        return CellField()


class CellField:
    field, is_refined, between, slopes = IndependentField(6), False, None, None

    def at(self, values):
        return self

    def parameters(self, values):
        return torch.zeros(0, dtype=torch.float64), torch.ones((), dtype=torch.float64)

    def projector(self, a):
        cells = a[:, 0].floor().long().numpy()
        return sp.csr_array((np.ones(len(cells)), cells, np.arange(len(cells) + 1)), shape=(len(cells), 6))

    def refine(self, a):
        return self.field, self.projector


@dataclasses.dataclass(frozen=True, repr=False)
class Hats(Approximation):
    """A kernel of one column of numbers by its values at knots, between which it is linear."""

    knots: int = 30

    def unsupported_reason(self, data):
        factors = data.term.term.factors
        is_one = len(factors) == 1 and factors[0].kind is ColumnKind.NUMBER and len(factors[0].columns) == 1
        return None if is_one else "it does not read one column of numbers. Use Exact()."

    def cost(self, data):
        return TermCost(self.knots, 8.0 * self.knots * data.num_rows, f"{self.knots} hats")

    def build(self, data, seed):
        ((factor, places, prefix),) = data.term.parts()
        sample = data.columns.sample[:, places[0]].double()
        knots = torch.linspace(sample.min() - 1, sample.max() + 1, self.knots, dtype=torch.float64)
        return WeightTermPrior.of(data, [HatPart(FinitePart(factor, places, prefix), knots)])


@dataclasses.dataclass(frozen=True, eq=False)
class HatPart:
    part: FinitePart
    knots: torch.Tensor
    learnable: Any = dataclasses.field(default_factory=dict)

    def with_learned(self, values):
        return self

    def functions(self, columns):
        return Functions(len(self.knots), self.features)

    def features(self, x, values):
        own = {
            path.removeprefix(self.part.prefix): v for path, v in values.items() if path.startswith(self.part.prefix)
        }
        z, step = self.knots[:, None], self.knots[1] - self.knots[0]
        root = torch.linalg.cholesky(self.part.factor.covariance(z, z, own) + 1e-8 * torch.eye(len(z)))
        return (1 - (x[:, self.part.indices] - self.knots).abs() / step).clamp_min(0) @ root


CASES = [
    (Tent("t"), (rfgp.Exact(), rfgp.InducingPoints(80))),
    (Smooth("t"), (rfgp.Exact(), rfgp.InducingPoints(80), rfgp.RandomFeatures(512, seed=1))),
    (Smooth(("t", "p")), (rfgp.Exact(), rfgp.InducingPoints(80), rfgp.RandomFeatures(512, seed=1))),
    (Cells("t"), (rfgp.Exact(), rfgp.InducingPoints(80), rfgp.SparsePrecision())),
    (Tent("t") * k.RBF("p", lengthscale=1.0), (rfgp.Exact(), rfgp.InducingPoints(80))),
    (Cells("t") * k.Linear("p"), (rfgp.Exact(), rfgp.InducingPoints(80), rfgp.SparsePrecision())),
    (k.RBF("t", lengthscale=1.0), (rfgp.Exact(), Hats(200))),
    (Tent("t"), (rfgp.Exact(), Hats(200))),
]


@pytest.mark.parametrize(("kernel", "approximations"), CASES)
def test_own_kernels_and_approximations_agree(kernel, approximations):
    both = kernel.named("own") + k.Linear("p", name="slope")
    options = {"start": {"noise": 0.05}, "seed": 0}
    models = [rfgp.GP(both, approximation={"own": one}, **options).condition(X, Y) for one in approximations]
    exact = models[0]
    for approximation, gp in zip(approximations, models, strict=True):
        atol = {"RandomFeatures": 0.1, "Hats": 0.05}.get(type(approximation).__name__, 1e-4)
        np.testing.assert_allclose(gp.predict(NEW).mean, exact.predict(NEW).mean, atol=atol)
        found = gp.predict(NEW).terms["own"]
        np.testing.assert_allclose(found.mean, exact.predict(NEW).terms["own"].mean, atol=2 * atol)
        density = gp.log_marginal_likelihood()
        assert density.item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=100 * atol)
        density.backward()
        fitted = rfgp.GP(both, approximation={"own": approximation}, seed=0).fit(X, Y)
        assert fitted.fit_report.log_marginal_likelihood > density.item() - 1e-6


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Numbers(Tent):
    """A tent whose hyperparameter has numbers instead of tensors."""

    def hyperparameters(self, columns):
        one = float(columns.spread[0])
        return {"width": Hyperparameter(one, float(columns.scale[0]), (0.01 * one, 100 * one))}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Column(Tent):
    """A kernel with an error: its matrix has one column."""

    def covariance(self, a, b, values):
        return (1 - (a - b[:1]).abs() / values["width"]).clamp_min(0)


def test_hyperparameters_of_own_kernels_may_be_numbers():
    tensors, numbers = (rfgp.GP(kernel("t"), seed=0).fit(X, Y).hyperparameters for kernel in (Tent, Numbers))
    assert tensors["width"].item() == numbers["width"].item()


def test_own_kernels_with_matrices_of_another_shape_are_named():
    with pytest.raises(rfgp.InvalidArgumentError, match=r"Column.*shape \(80, 80\), got shape \(80, 1\)"):
        rfgp.GP(Column("t"), seed=0).condition(X, Y).log_marginal_likelihood()


def test_own_values_that_cannot_go_together_are_named():
    with pytest.raises(rfgp.InvalidArgumentError, match="no spectral measure"):
        rfgp.GP(Tent("t"), approximation=rfgp.RandomFeatures(8)).condition(X, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="no factor has a sparse precision"):
        rfgp.GP(Smooth("t"), approximation=rfgp.SparsePrecision()).condition(X, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="does not read one column of numbers"):
        rfgp.GP(k.RBF(("t", "p")), approximation=Hats()).condition(X, Y)
