"""The family of tables by the exact kernel, that of a local process beside it included."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from rfgp.inference import KernelPrior
from rfgp.local.kinds import spectrum_of
from rfgp.parameters import Values
from rfgp.regression.family import Family, Variance
from rfgp.regression.table.inputs import LOCAL_VARIANCE, TableInputs
from rfgp.regression.table.options import KernelOptions, texts_of
from rfgp.spectra import Spectrum, scaled_gram


@dataclass(frozen=True, eq=False)
class KernelFamily(Family):
    """The exact stationary kernel, or the sum of it and of that of a local process.

    Attributes:
        options: The user's choices.
    """

    options: KernelOptions

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scale and the noise, and that of a local process."""
        return (*super().variances, LOCAL_VARIANCE) if self.options.has_both else super().variances

    def prior(self, values: Values) -> KernelPrior:
        """Return the prior of the kernel."""
        names, spectra = [""], [self.options.spectrum]
        if self.options.has_both:
            assert self.options.local is not None
            names, spectra = [*names, "local_"], [*spectra, spectrum_of(self.options.local)]
        lengthscales, variances = (
            [values.standardized(f"{name}{of}").double() for name in names] for of in ("lengthscale", "outputscale")
        )
        terms = list(zip(spectra, lengthscales, variances, strict=True))
        total = variances[0] if len(variances) == 1 else variances[0] + variances[1]

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            first, *others = (_kernel(*term, a, b) for term in terms)
            return sum(others, start=first)

        return KernelPrior(kernel, lambda a: total.expand(len(a)))

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options (no tensors)."""
        yield from texts_of(self.options)


def _kernel(spectrum: Spectrum, lengthscale: Tensor, outputscale: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a is b and not a.requires_grad:
        return outputscale * scaled_gram(spectrum, a.double(), lengthscale)
    return outputscale * spectrum.kernel_between(a.double() / lengthscale, b.double() / lengthscale)
