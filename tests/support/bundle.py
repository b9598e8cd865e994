"""Solve the energy coupling's common sizes and write what comes with the package, `rfgp/couplings/energy/solved.npz`.

m = 256 and 512, the defaults of the models, in 2 to 20 dimensions, Gaussian spectrum, Fourier features, weighted or
not. Run it after
`rfgp.couplings.energy.solver.VERSION` was raised.

    python tests/support/bundle.py
"""

import numpy as np

from rfgp.couplings import Energy
from rfgp.couplings.energy import solver
from rfgp.spectra import Gaussian


def main():
    content = {}
    for d in range(2, 21):
        for weighted in (False, True):
            problem = Energy(weighted=weighted).problem(d, Gaussian())
            for m in (256, 512):
                key, solved = solver.key_of(problem, m, full=False), solver.solve(problem, m, full=False)
                content[f"{key}.directions"] = solved.directions
                content[f"{key}.meta"] = np.array([solved.proposal_scale, solved.num_steps, solved.num_blocks], float)
    np.savez_compressed(solver.BUNDLED, allow_pickle=False, **content)
    print(f"{len(content) // 2} solutions, {solver.BUNDLED.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
