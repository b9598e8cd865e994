"""The couplings of Tables 1, 3 and 4 of Reid et al. (2024). PNC is pairwise norm coupling."""

import torch
from torch import Tensor

from rfgp.couplings import Coupling, Frequencies, Halton, by_name
from rfgp.couplings.coupling import uniform
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.spectra import Spectrum

KINDS = {"fourier": "RFF", "laplace": "RLF"}
HALTON, ORTHOGONAL, PNC, SOBOL = "Halton", "orthogonal", "PNC", "Sobol"
EQUAL, OPPOSED = "antithetic, equal norms of a pair", "antithetic, anti-correlated norms of a pair"
TRUE_PNC = "PNC + antithetic"


class Rotated(Coupling):
    """Halton points, moved by one uniform vector modulo 1; their frequencies are rotated at random, all alike."""

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        points = Halton("shifted").sample(m, d, spectrum=spectrum, generator=generator).dense()
        return points @ haar_blocks(d, d, generator)


class OppositePairs(Coupling):
    """Orthogonal directions and their opposites, with independent or anti-correlated norms.

    Args:
        are_opposed: Whether the norms of a pair are anti-correlated: F(r) + F(r') = 1 with F the radial distribution.
    """

    def __init__(self, are_opposed: bool = False) -> None:
        self.are_opposed = are_opposed

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions, u = haar_blocks(m // 2, d, generator), uniform(m, generator)
        if self.are_opposed:
            u = torch.cat([u[: m // 2], 1 - u[: m // 2]])
        return torch.cat([directions, -directions]) * spectrum.radial_quantile(u, d)[:, None]


_COMMON = {"i.i.d.": by_name("iid"), HALTON: Rotated(), SOBOL: by_name("sobol")}
ENSEMBLES: dict[str, dict[str, Coupling]] = {
    "fourier": {**_COMMON, ORTHOGONAL: by_name("orthogonal"), PNC: by_name("pairwise")},
    "laplace": {
        **_COMMON,
        ORTHOGONAL: OppositePairs(),
        EQUAL: by_name("orthogonal-antithetic"),
        OPPOSED: OppositePairs(are_opposed=True),
        TRUE_PNC: by_name("pairwise-antithetic"),
    },
}
"""By features and the names of our values.

For positive features the paper's last row is called "PNC + antithetic". Its figures are those of `EQUAL` in Tables 1
and 3 and of `OPPOSED` in Table 4.
"""


def drawn(name: str, kind: str, d: int, count: int, generator: torch.Generator) -> list[Frequencies]:
    """Return draws of an ensemble of the tables."""
    return [ENSEMBLES[kind][name].sample(number(kind, d), d, generator=generator) for _ in range(count)]


def number(kind: str, d: int) -> int:
    """Return the number of frequencies in the tables."""
    return d if kind == "fourier" else 2 * d
