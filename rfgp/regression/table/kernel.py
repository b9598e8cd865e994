"""The family of exact kernels on tables, and averages of such processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from rfgp.blocks import KernelBlock, Prior
from rfgp.grams import scaled_gram
from rfgp.local.kinds import spectrum_of
from rfgp.parameters import Values
from rfgp.regression.family import Family, Member, Variance
from rfgp.regression.table.inputs import LOCAL_VARIANCE, TableInputs
from rfgp.regression.table.options import KernelOptions, texts_of
from rfgp.spectra import Spectrum


@dataclass(frozen=True, eq=False)
class KernelFamily(Family):
    """The exact stationary kernel, or its sum with a second one; or an average of such processes.

    Attributes:
        options: The user's choices; for an average those of the process whose hyperparameters are the model's.
        weight: The share of that process.
        others: The other processes of the average, at hyperparameters of their own; only for one output.
    """

    options: KernelOptions
    weight: float = 1.0
    others: tuple[Member, ...] = ()

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scales of the kernels, and the noise."""
        return (*super().variances, LOCAL_VARIANCE) if self.options.has_both else super().variances

    def prior(self, values: Values) -> Prior:
        """Return the prior of the kernel, one block for each of its terms."""
        block = _block(self.options.spectrum, values, "")
        if not self.options.has_both:
            return Prior(kernels=(block,))
        assert self.options.local is not None
        return Prior(kernels=(block, _block(spectrum_of(self.options.local), values, "local_")))

    def members(self, values: Values) -> tuple[Member, ...]:
        """Return the processes whose posteriors are averaged, that of these hyperparameters first."""
        return Member(self.weight, KernelFamily(self.options), values), *self.others

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options of all processes of an average, with their weights and hyperparameters (p,)."""
        yield from texts_of(self.options)
        for member in self.others:
            yield repr(member.weight)
            yield from member.family.identity()
            yield member.values.flat()


def _block(spectrum: Spectrum, values: Values, prefix: str) -> KernelBlock:
    """Return the term whose hyperparameters have a prefix."""
    parameters = tuple(values.standardized(f"{prefix}{name}").double() for name in ("lengthscale", "outputscale"))
    return KernelBlock(partial(_covariance, spectrum), _variances, parameters, name=f"{prefix}kernel")


def _covariance(spectrum: Spectrum, a: Tensor, b: Tensor, lengthscale: Tensor, outputscale: Tensor) -> Tensor:
    """Return outputscale k(a / lengthscale, b / lengthscale), (n_a, n_b)."""
    if a is b and not a.requires_grad:
        return scaled_gram(spectrum, a.double(), lengthscale, outputscale)
    return outputscale * spectrum.kernel_between(a.double() / lengthscale, b.double() / lengthscale)


def _variances(a: Tensor, lengthscale: Tensor, outputscale: Tensor) -> Tensor:
    """Return the variances (n_a,) of a stationary kernel."""
    return outputscale.expand(len(a))
