"""The family of tables by the exact kernel, that of a local process beside it included, and averages of such."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from rfgp.grams import scaled_gram
from rfgp.inference import Averaged, AveragePrior, KernelPrior
from rfgp.local.kinds import spectrum_of
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance
from rfgp.regression.table.inputs import LOCAL_VARIANCE, TableInputs
from rfgp.regression.table.options import KernelOptions, texts_of
from rfgp.spectra import Spectrum


@dataclass(frozen=True, eq=False)
class Member:
    """An exact process that others are averaged with.

    Attributes:
        weight: Its share of the average.
        options: Its kernel.
        values: Its hyperparameters.
    """

    weight: float
    options: KernelOptions
    values: Values


@dataclass(frozen=True, eq=False)
class KernelFamily(Family):
    """The exact stationary kernel, or the sum of it and of that of a local process; or an average of such processes.

    Attributes:
        options: The user's choices; of an average those of the process whose hyperparameters are the model's.
        weight: The share of that.
        others: Processes that it is averaged with, at hyperparameters of their own; none but of one output.
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
        """The output scale and the noise, and that of a local process."""
        return (*super().variances, LOCAL_VARIANCE) if self.options.has_both else super().variances

    def prior(self, values: Values) -> KernelPrior:
        """Return the prior of the kernel, or the mixture of those that are averaged."""
        if not self.others:
            return _prior(self.options, values)
        return AveragePrior.of([_averaged(member) for member in self.members(values)])

    def members(self, values: Values) -> tuple[Member, ...]:
        """Return all that are averaged, this one's own process first."""
        return Member(self.weight, self.options, values), *self.others

    def observation_noise(self, values: Values) -> Tensor:
        """Return the standardised variance of an observation given the function, that of the mixture, 0-d."""
        first, *others = (member.weight * member.values.standardized("noise") for member in self.members(values))
        return sum(others, start=first)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, of all that are averaged with their weights and hyperparameters (p,)."""
        yield from texts_of(self.options)
        for member in self.others:
            yield repr(member.weight)
            yield from texts_of(member.options)
            yield member.values.flat()


def _averaged(member: Member) -> Averaged:
    values = member.values
    mean, noise = values.standardized("mean").reshape(-1).double(), values.standardized("noise").double()
    return Averaged(member.weight, _prior(member.options, values), mean, noise)


def _prior(options: KernelOptions, values: Values) -> KernelPrior:
    names, spectra = [""], [options.spectrum]
    if options.has_both:
        assert options.local is not None
        names, spectra = [*names, "local_"], [*spectra, spectrum_of(options.local)]
    lengthscales, variances = (
        [values.standardized(f"{name}{of}").double() for name in names] for of in ("lengthscale", "outputscale")
    )
    terms = list(zip(spectra, lengthscales, variances, strict=True))
    total = variances[0] if len(variances) == 1 else variances[0] + variances[1]

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        first, *others = (_kernel(*term, a, b) for term in terms)
        return sum(others, start=first)

    return KernelPrior(kernel, lambda a: total.expand(len(a)))


def _kernel(spectrum: Spectrum, lengthscale: Tensor, outputscale: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a is b and not a.requires_grad:
        return scaled_gram(spectrum, a.double(), lengthscale, outputscale)
    return outputscale * spectrum.kernel_between(a.double() / lengthscale, b.double() / lengthscale)
