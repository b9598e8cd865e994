"""Independent frequencies."""

from typing import ClassVar

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, uniform
from rfgp.spectra import Spectrum


class IID(Coupling):
    """Independent frequencies (Rahimi and Recht, 2007).

    They are the baseline of every comparison.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> couplings.IID().sample(5, 2, spectrum=spectra.ProductLaplace(), seed=0)
        Frequencies(m=5, d=2)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        if not spectrum.is_isotropic:
            return spectrum.coordinate_quantile(uniform(m * d, generator)).reshape(m, d)
        gaussian = torch.randn(m, d, generator=generator, dtype=torch.float64)
        directions: Tensor = gaussian / gaussian.norm(dim=1, keepdim=True)
        return directions * spectrum.radial_quantile(uniform(m, generator), d)[:, None]
