"""Solve the energy coupling's common sizes and write what comes with the package, `rfgp/couplings/energy/solved.npz`.

m = 256 and 512, the defaults of the models, in 2 to 20 dimensions, Gaussian spectrum, Fourier features, weighted or
not. Run it after
`rfgp.couplings.energy.solver.VERSION` was raised.

    python tests/support/bundle.py
"""

from rfgp.couplings import Energy
from rfgp.couplings.energy import solver
from rfgp.spectra import Gaussian


def main():
    solutions = {}
    for d in range(2, 21):
        for weighted in (False, True):
            problem = Energy(weighted=weighted).problem(d, Gaussian())
            for m in (256, 512):
                solutions[solver.key_of(problem, m, full=False)] = solver.solve(problem, m, full=False)
    solver.bundle(solutions)
    print(f"{len(solutions)} solutions, {solver.BUNDLED.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
