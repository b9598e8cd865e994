"""The couplings of the paper's tables, and what they become under other readings."""

import torch
from torch import Tensor

from rfgp.couplings import Coupling, Frequencies, Halton, by_name
from rfgp.couplings.coupling import uniform
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.spectra import Spectrum

KINDS = {"fourier": "RFF", "laplace": "RLF"}


class OwnNorms(Coupling):
    """Orthogonal directions and their opposites, every norm independent (App. B.1's words on the baseline)."""

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m // 2, d, generator)
        return torch.cat([directions, -directions]) * spectrum.radial_quantile(uniform(m, generator), d)[:, None]


_COMMON = {
    "i.i.d.": by_name("iid"),
    "Halton": Halton("none"),
    "Sobol": by_name("sobol"),
    "Halton (scrambled)": by_name("halton"),
    "Halton (shifted)": Halton("shifted"),
}
ENSEMBLES = {
    "fourier": {**_COMMON, "orthogonal": by_name("orthogonal"), "PNC": by_name("pairwise")},
    "laplace": {
        **_COMMON,
        "orthogonal": OwnNorms(),
        "PNC": by_name("pairwise-antithetic"),
        "orthogonal (equal norms)": by_name("orthogonal-antithetic"),
    },
}
"""By features and the names of our values; for positive features "PNC" is with antithetic sampling, as in Table 1."""


def drawn(name: str, kind: str, d: int, count: int, generator: torch.Generator) -> list[Frequencies]:
    """Return draws of an ensemble of the tables; one, where all are the same."""
    coupling, m = ENSEMBLES[kind][name], number(kind, d)
    return [coupling.sample(m, d, generator=generator) for _ in range(1 if coupling.is_biased else count)]


def number(kind: str, d: int) -> int:
    """Return how many frequencies the tables take."""
    return d if kind == "fourier" else 2 * d
