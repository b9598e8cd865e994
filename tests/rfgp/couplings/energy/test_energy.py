import hashlib
import multiprocessing
import threading
import warnings

import mpmath
import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from frequency_draws import check_distribution, check_order, draws
from scipy import integrate, stats

import rfgp
from rfgp import couplings, random, special, spectra
from rfgp.couplings import Energy, RadialDistribution
from rfgp.couplings.energy import distances_between, potential, repulsion, solver, store

GAUSSIAN = spectra.Gaussian()
SHAPES = [(1, 1), (3, 1), (1, 2), (5, 2), (2, 3), (3, 3), (7, 3), (9, 5)]


def dense_moment(omega, weights, kind, d, z):
    """The second moment over rotations at one distance, by the power series of the Bessel function."""
    sums = torch.cdist(omega, -omega, compute_mode="donot_use_mm_for_euclid_dist")
    differences = torch.cdist(omega, omega, compute_mode="donot_use_mm_for_euclid_dist")
    sign = -1 if kind == "fourier" else 1

    def bessel(t):  # 0F1(; d/2; sign t^2 / 4)
        total, term = torch.ones_like(t), torch.ones_like(t)
        for k in range(1, 120):
            term = term * (sign * t**2 / 4) / (k * (d / 2 + k - 1))
            total = total + term
        return total

    pairs = 0.5 * (bessel(sums * z) + bessel(differences * z))
    return weights @ pairs @ weights / len(omega) ** 2


def problem(d, weighted=False, kind="fourier", spectrum=GAUSSIAN, proposal_histogram=None, distances=None):
    return solver.Problem(
        potential.make_potential(kind, spectrum, d, distances), spectrum, d, weighted, proposal_histogram
    )


class TestSphere:
    @pytest.mark.parametrize("d", [1, 2, 3, 8, 33, 100, 101, 784, 5000])
    def test_averages_agree_with_mpmath(self, d):
        for t in (0.0, 1e-6, 0.02, 0.5, 3.0, 17.0, 60.0, 590.0, 650.0):
            with mpmath.workdps(60):
                cosine, cosh = (mpmath.hyp0f1(mpmath.mpf(d) / 2, sign * mpmath.mpf(t) ** 2 / 4) for sign in (-1, 1))
                log_cosh = float(mpmath.log(cosh))
            assert special.sphere_cosine(np.array(t), d) == pytest.approx(float(cosine), abs=3e-8)
            assert special.log_sphere_cosh(np.array(t), d) == pytest.approx(log_cosh, rel=1e-10, abs=1e-10)

    @pytest.mark.parametrize("d", [1, 2, 100, 101, 300, 784])
    def test_no_argument_gives_nan(self, d):
        t = np.linspace(0, 100, 20_001)
        assert np.isfinite(special.sphere_cosine(t, d)).all()
        assert np.isfinite(special.log_sphere_cosh(t, d)).all()

    def test_averages_over_drawn_directions(self):
        gaussian = np.random.default_rng(0).standard_normal((4000, 5))
        first = gaussian[:, 0] / np.linalg.norm(gaussian, axis=1)
        t = np.array([0.5, 2.0, 6.0])
        assert_mean(np.cos(first[:, None] * t), special.sphere_cosine(t, 5))
        assert_mean(np.cosh(first[:, None] * t), np.exp(special.log_sphere_cosh(t, 5)))


class TestPotential:
    @pytest.mark.parametrize("kind", potential.KINDS)
    @pytest.mark.parametrize("d", [1, 2, 9, 64])
    def test_slope_is_the_derivative_in_the_square(self, kind, d):
        made = potential.make_potential(kind, GAUSSIAN, d)
        s, step = np.linspace(0.1, 12, 30), 1e-5
        numeric = (made.pair(s + step) - made.pair(s - step)) / (4 * s * step)
        np.testing.assert_allclose(made.slope(s), numeric, rtol=2e-5, atol=1e-8)

    def test_default_strengths_divide_by_the_iid_variance(self):
        made = potential.make_potential("fourier", spectra.Matern(1.5), 3)
        k = spectra.Matern(1.5).kernel(torch.as_tensor(made.distances)).numpy()
        double = spectra.Matern(1.5).kernel(torch.as_tensor(2 * made.distances)).numpy()
        relative = np.exp(made.log_distance_weights) * ((1 + double) / 2 - k**2)
        np.testing.assert_allclose(relative, relative[0], rtol=1e-10)
        assert np.exp(made.log_distance_weights).sum() == pytest.approx(1)

    def test_laplace_strengths_divide_by_the_iid_pair_variance(self):
        """exp(-2 |x|^2 - 2 |y|^2) is exp(-v^2) and a factor that is there with and without; v = |x + y|."""
        v = potential.DEFAULT_DISTANCES
        made = potential.make_potential("laplace", GAUSSIAN, 4)
        points, masses = np.polynomial.hermite_e.hermegauss(120)
        masses = masses / masses.sum()
        values = np.cosh(points[:, None] * v)
        variance = masses @ values**2 - (masses @ values) ** 2
        relative = np.exp(made.log_distance_weights + v**2) * variance
        np.testing.assert_allclose(relative, relative[0], rtol=1e-9)

    def test_indices_in_a_triangle(self):
        """Also where the square root of a place is rounded across the start of a row."""
        for i in (1, 2, 3, 1000, 10**7 + 1, 94_906_267, 134_219_433, 2**30 - 1):
            start = i * (i - 1) // 2
            rows, columns = potential.pair_at(np.array([start, start + i - 1]))
            assert (rows.tolist(), columns.tolist()) == ([i, i], [0, i - 1])

    def test_distances_of_data(self):
        x = np.random.default_rng(0).standard_normal((40, 3))
        pairs = [(i, j) for i in range(40) for j in range(i)]
        between = np.sort([np.linalg.norm(x[i] - x[j]) for i, j in pairs])
        found = distances_between(x, num_distances=len(pairs))
        np.testing.assert_allclose(found, np.stack([between, np.ones(len(pairs))], 1))
        table = distances_between(torch.as_tensor(x), "laplace", num_distances=len(pairs))
        sums = np.array([np.linalg.norm(x[i] + x[j]) for i, j in pairs])
        factor = np.exp([-(np.linalg.norm(x[i] - x[j]) ** 2) for i, j in pairs])
        np.testing.assert_allclose(table, np.stack([sums, factor], 1)[np.argsort(sums)])
        assert distances_between(np.repeat(x, 9, axis=0), num_pairs=3000).shape == (10, 2)

    @pytest.mark.parametrize(
        ("x", "words"),
        [(np.zeros((5, 2)), "distinct rows"), (np.zeros((1, 2)), "2 finite"), ([[1.0], [np.nan]], "finite")],
    )
    def test_distances_of_bad_data(self, x, words):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            distances_between(np.asarray(x))


class TestRepulsion:
    @pytest.mark.parametrize("kind", potential.KINDS)
    def test_moment_and_gradients_equal_the_dense_twin(self, kind):
        d, z = 3, 0.8
        rng = np.random.default_rng(0)
        omega = torch.tensor(rng.standard_normal((300, d)), requires_grad=True)
        weights = torch.tensor(rng.uniform(0.5, 2, 300), requires_grad=True)
        moment = dense_moment(omega, weights, kind, d, z)
        moment.backward()
        made = potential.make_potential(kind, GAUSSIAN, d, [[z, 1.0]])
        made = potential.Potential(kind, d, made.distances, np.zeros(1), made.means)
        with repulsion.Repulsion(made, table_end=12).threads() as repel:
            gradient, weight_gradient = repel(omega.detach().numpy(), weights.detach().numpy())
        n2 = 300**2
        assert weights.detach().numpy() @ weight_gradient / 2 / n2 == pytest.approx(moment.item(), rel=1e-5)
        np.testing.assert_allclose(gradient / n2, omega.grad.numpy(), atol=2e-4 * omega.grad.abs().max().item())
        np.testing.assert_allclose(weight_gradient / n2, weights.grad.numpy(), rtol=1e-4)

    def test_blocks_of_rows_and_threads_change_nothing(self, monkeypatch):
        omega = np.random.default_rng(1).standard_normal((600, 4))
        repel = repulsion.Repulsion(potential.make_potential("fourier", GAUSSIAN, 4), 12)
        with repel.threads():
            threaded = repel(omega, np.ones(600))
            monkeypatch.setattr(repulsion, "cores", lambda: 1)
        with repel.threads():
            single = repel(omega, np.ones(600))
        for a, b in zip(threaded, single, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_non_finite_values_never_reach_the_loop(self):
        repel = repulsion.Repulsion(potential.make_potential("fourier", GAUSSIAN, 2), 12)
        with pytest.raises(ArithmeticError, match="not finite"):
            repel(np.array([[1.0, np.nan]]), np.ones(1))


class TestRadialDistribution:
    @pytest.mark.parametrize("spectrum", [GAUSSIAN, spectra.Matern(1.5)], ids=repr)
    @pytest.mark.parametrize("histogram", [None, [1.0, 2.0, 4.0, 1.0]])
    def test_weighted_moments_are_those_of_the_spectrum(self, spectrum, histogram):
        radial = RadialDistribution(spectrum, 3, 1.2, histogram)

        def moment(f):
            def integrand(u):
                r, w = radial.draw(torch.tensor([u], dtype=torch.float64))
                return float(w * f(r))

            heights = np.asarray(histogram or [1.0]) / np.sum(histogram or [1.0])
            return integrate.quad(integrand, 0, 1, points=np.cumsum(heights)[:-1].tolist() or None, limit=400)[0]

        assert moment(lambda r: 1.0) == pytest.approx(1, abs=1e-6)
        direct = integrate.quad(
            lambda u: float(torch.exp(-spectrum.radial_quantile(torch.tensor([u], dtype=torch.float64), 3))), 0, 1
        )[0]
        assert moment(lambda r: torch.exp(-r)) == pytest.approx(direct, abs=1e-6)

    def test_a_histogram_is_followed(self):
        radial = RadialDistribution(GAUSSIAN, 4, proposal_histogram=[3.0, 1.0])
        r, w = radial.draw((torch.arange(1000) + 0.5) / 1000)
        below = stats.chi(4).cdf(r.numpy()) < 0.5
        assert below.sum() == 750
        np.testing.assert_allclose(w[below], 2 / 3)
        np.testing.assert_allclose(w[~below], 2.0)

    @pytest.mark.parametrize("heights", [[], [1.0, 0.0], [1.0, np.inf], [1.0, 1e-7], [[1.0]]])
    def test_bad_histograms(self, heights):
        with pytest.raises(rfgp.InvalidArgumentError, match="histogram"):
            RadialDistribution(GAUSSIAN, 2, proposal_histogram=heights)


OPTIONS = {
    "weighted": {"weighted": True},
    "histogram": {"proposal_histogram": [1.0, 2.0, 0.5]},
    "laplace": {"features": "laplace"},
}


class TestDistribution:
    @pytest.mark.thinned(10, slow=5)
    @pytest.mark.parametrize("option", OPTIONS)
    @pytest.mark.parametrize(("m", "d"), SHAPES)
    def test_each_weighted_frequency_has_the_spectral_distribution(self, option, m, d):
        m = m + m % 2 if option == "laplace" else m
        omega, weights = draws(Energy(**OPTIONS[option]), m, d)
        check_distribution(omega, GAUSSIAN, weights)

    @pytest.mark.parametrize("spectrum", [spectra.Matern(1.5), spectra.RationalQuadratic(0.7)], ids=repr)
    def test_weighted_with_other_spectra(self, spectrum):
        omega, weights = draws(Energy(weighted=True), 7, 3, spectrum=spectrum)
        check_distribution(omega, spectrum, weights)

    def test_planted_weights_left_out(self):
        omega, _ = draws(Energy(proposal_histogram=[1.0, 2.0, 0.5]), 7, 3)
        assert fails(check_distribution, omega, GAUSSIAN)

    def test_planted_no_rotation(self, monkeypatch):
        monkeypatch.setattr(
            "rfgp.couplings.energy.coupling.haar_rows", lambda b, k, d, generator: torch.eye(d, dtype=torch.float64)
        )
        assert fails(check_distribution, draws("energy", 7, 3)[0], GAUSSIAN)

    def test_planted_rows_in_the_order_of_the_strata(self, monkeypatch):
        monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
        assert fails(check_distribution, draws("energy", 7, 3)[0], GAUSSIAN)

    def test_norms_have_mirrored_positions_in_their_strata(self, monkeypatch):
        monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
        for m in (6, 7):
            norms = Energy().sample(m, 3, generator=random.generator(0)).dense().norm(dim=1).numpy()
            positions = stats.chi(3).cdf(norms) * m - np.arange(m)
            np.testing.assert_allclose(positions[0:6:2] + positions[1:6:2], 1, atol=1e-9)
            assert ((positions > 0) & (positions < 1)).all()

    def test_pairs_for_positive_features(self):
        omega = couplings.by_name("energy-antithetic").sample(6, 3, generator=random.generator(0))
        assert omega.antithetic
        assert torch.equal(omega.dense()[::2], -omega.dense()[1::2])
        omega = Energy("laplace").sample(6, 3, generator=random.generator(0))
        assert torch.equal(omega.dense()[::2], -omega.dense()[1::2])
        with pytest.raises(rfgp.InvalidArgumentError, match="must be even, got 5"):
            Energy("laplace").sample(5, 3, generator=random.generator(0))
        with pytest.raises(rfgp.InvalidArgumentError, match="must be Gaussian"):
            Energy("laplace").sample(4, 3, spectrum=spectra.Matern(), generator=random.generator(0))


def moment(solution, d, z):
    """The mean squared error at z over rotations, relative to independent frequencies."""
    n = len(solution.directions)
    norms, weights = RadialDistribution(GAUSSIAN, d, solution.proposal_scale).draw(
        (torch.arange(n, dtype=torch.float64) + 0.5) / n
    )
    omega = solution.unit() * norms[:, None]
    k = np.exp(-(z**2) / 2)
    first = float((weights * torch.as_tensor(special.sphere_cosine((norms * z).numpy(), d))).mean())
    error = float(dense_moment(omega, weights, "fourier", d, z)) - 2 * k * first + k**2
    return error / ((1 - k**2) ** 2 / 2 / n)


class TestSolver:
    @pytest.mark.parametrize(("d", "n", "z", "bound"), [(2, 64, 1.5, 0.02), (5, 80, 1.0, 0.03), (8, 128, 1.5, 0.10)])
    def test_errors_fall_far_below_those_of_independent_frequencies(self, d, n, z, bound):
        equal = solver.solve(problem(d), n, full=False)
        weighted = solver.solve(problem(d, weighted=True), n, full=False)
        assert moment(equal, d, z) < bound
        assert moment(weighted, d, z) < 0.6 * moment(equal, d, z)
        assert 1.02 < weighted.proposal_scale < 1.6

    def test_up_to_d_directions_are_orthogonal(self):
        omega = Energy().sample(6, 8, generator=random.generator(0)).dense()
        gram = omega @ omega.T
        assert (gram - gram.diag().diag()).abs().max() < 1e-12

    def test_a_solution_repeats(self):
        one, two = (solver.solve(problem(3), 40, full=False) for _ in range(2))
        np.testing.assert_array_equal(one.directions, two.directions)

    def test_large_ensembles_start_from_blocks(self, monkeypatch):
        assert solver.plan(500, 8, full=False) == (1, solver.FULL_STEPS)
        assert solver.plan(10**6, 8, full=False)[1] == 0
        assert solver.plan(10**6, 8, full=True) == (1, solver.FULL_STEPS)
        monkeypatch.setattr(solver, "QUICK_PAIRS", 3e5)
        monkeypatch.setattr(solver, "BLOCK_PAIRS", 3e5)
        assert solver.plan(130, 3, full=False)[0] > 1
        found = solver.solve(problem(3), 130, full=False)
        assert found.directions.shape == (130, 3)
        assert found.num_blocks == solver.plan(130, 3, full=False)[0]
        assert moment(found, 3, 1.0) < 0.05
        with pytest.warns(rfgp.CouplingWarning, match="copies of one block"):
            Energy().sample(130, 3, generator=random.generator(0))
        Energy().sample(130, 3, generator=random.generator(1))  # and says so once
        assert Energy().solve(130, 3).effort == "full"

    def test_strata_are_dealt_to_the_blocks_in_turn(self, monkeypatch):
        """The copies of the block's i-th direction serve neighbouring strata, at the height of the block's own."""
        monkeypatch.setattr(solver, "BLOCK_PAIRS", 3e5)
        block = solver.solve(problem(3), 44, full=True).unit().numpy()
        start, _ = solver.first_directions(problem(3), 132, 3, random.generator(0))
        for copy in (start[0::3], start[1::3], start[2::3]):
            np.testing.assert_allclose(copy @ copy.T, block @ block.T, atol=1e-12)

    def test_solved_blocks_are_kept(self, monkeypatch, tmp_path):
        monkeypatch.setattr(solver, "QUICK_PAIRS", 1e3)
        monkeypatch.setattr(solver, "BLOCK_PAIRS", 3e5)
        monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path))
        found = store.solution(problem(3), 133, full=False)
        assert found.num_steps == 0
        assert found.num_blocks > 1
        assert len(list((tmp_path / "energy").iterdir())) == 1

    def test_progress(self):
        steps = []
        Energy(distances=[[1.0, 1.0]]).solve(12, 3, progress=lambda done, total: steps.append((done, total)))
        assert steps == [(k + 1, solver.FULL_STEPS) for k in range(solver.FULL_STEPS)]

    def test_heavy_tails_stay_finite(self):
        omega = Energy(weighted=True).sample(50, 2, spectrum=spectra.Matern(0.5), generator=random.generator(0))
        assert torch.isfinite(omega.dense()).all()
        assert torch.isfinite(omega.weights).all()


def _solve_elsewhere(folder, queue):
    import os

    os.environ["RFGP_CACHE_DIR"] = folder
    found = store.solution(problem(3, distances=[[0.7, 1.0]]), 30, full=False)
    queue.put(found.directions)


class TestStore:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(store, "memory", {})
        return tmp_path / "energy"

    def files(self, folder):
        return sorted(folder.glob("*")) if folder.exists() else []

    def test_kept_and_read_again(self, folder, monkeypatch):
        first = store.solution(problem(3), 20, full=False)
        (path,) = self.files(folder)
        store.memory.clear()
        monkeypatch.setattr(solver, "solve", lambda *a, **k: pytest.fail("solved again"))
        again = store.solution(problem(3), 20, full=False)
        np.testing.assert_array_equal(first.directions, again.directions)
        assert store.key_of(problem(3), 20, full=False) in path.name

    @pytest.mark.parametrize("damage", ["bit", "cut", "empty", "shape", "zip", "other"])
    def test_damaged_files_are_solved_again(self, folder, damage):
        first = store.solution(problem(3), 20, full=False)
        (path,) = self.files(folder)
        content = bytearray(path.read_bytes())
        if damage == "shape":
            store.write(path.stem, store.Solution(np.ones((2, 3), np.float16), 1.0, 3, 1))
        elif damage == "other":  # a sound archive of something else, under the old checksum
            store.write(path.stem, store.Solution(first.directions[::-1], 1.0, 3, 1))
            path.write_bytes(bytes(content[:32]) + path.read_bytes()[32:])
        elif damage == "zip":
            path.write_bytes(hashlib.sha256(b"PK").digest() + b"PK")
        else:
            content[len(content) // 2] ^= 1
            path.write_bytes({"bit": bytes(content), "cut": bytes(content[:100]), "empty": b""}[damage])
        store.memory.clear()
        np.testing.assert_array_equal(store.solution(problem(3), 20, full=False).directions, first.directions)
        store.memory.clear()
        assert store.read(path.stem, 20, 3) is not None

    def test_memory_is_bounded(self, monkeypatch):
        monkeypatch.setattr(store, "MAX_BYTES_IN_MEMORY", 20 * 3 * 2 - 1)
        for n in (20, 21, 22):
            store.solution(problem(3), n, full=False)
        assert list(store.memory) == [store.key_of(problem(3), 22, full=False)]

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path / "file"))
        with pytest.warns(rfgp.CacheWarning, match="could not be kept.*RFGP_CACHE_DIR"):
            Energy().sample(20, 3, generator=random.generator(0))

    def test_everything_that_matters_is_in_the_key(self, monkeypatch):
        base = problem(3)
        keys = {
            store.key_of(base, 20, full=False),
            store.key_of(base, 21, full=False),
            store.key_of(problem(4), 20, full=False),
            store.key_of(problem(3, weighted=True), 20, full=False),
            store.key_of(Energy(proposal_scale=1.2).problem(3, GAUSSIAN), 20, full=False),
            store.key_of(problem(3, kind="laplace"), 20, full=False),
            store.key_of(problem(3, spectrum=spectra.Matern(1.5)), 20, full=False),
            store.key_of(problem(3, spectrum=spectra.Matern(2.5)), 20, full=False),
            store.key_of(problem(3, proposal_histogram=(1.0, 2.0)), 20, full=False),
            store.key_of(problem(3, distances=[[1.0, 1.0]]), 20, full=False),
            store.key_of(problem(3, distances=[[1.0, 1.0], [2.0, 1.0]]), 20, full=False),
            store.key_of(base, 5000, full=False),
            store.key_of(base, 5000, full=True),
        }
        monkeypatch.setattr(solver, "VERSION", solver.VERSION + 1)
        assert len({*keys, store.key_of(problem(3), 20, full=False)}) == 14

    def test_common_sizes_come_with_the_package(self, folder, monkeypatch):
        assert len(store.bundled()) == 76
        monkeypatch.setattr(solver, "solve", lambda *a, **k: pytest.fail("solved, though it is bundled"))
        for m in (256, 512):
            for d in range(2, 21):
                shape = Energy().solution(m, d).directions.shape
                assert shape == (m, d)
        assert not self.files(folder)
        assert moment(store.solution(problem(5), 256, full=False), 5, 1.5) < 0.05

    @pytest.mark.slow  # both import torch
    def test_two_processes_at_once(self, folder):
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        workers = [context.Process(target=_solve_elsewhere, args=(str(folder.parent), queue)) for _ in range(2)]
        for worker in workers:
            worker.start()
        one, two = (queue.get(timeout=60) for _ in range(2))
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        np.testing.assert_array_equal(one, two)
        assert len(self.files(folder)) == 1

    def test_draws_do_not_depend_on_the_cache(self):
        first = Energy().sample(20, 3, generator=random.generator(4)).dense()
        store.memory.clear()
        assert torch.equal(first, Energy().sample(20, 3, generator=random.generator(4)).dense())


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"features": "cosine"}, "fourier, laplace"),
            ({"effort": "some"}, "quick"),
            ({"distances": [1.0, 2.0]}, "distances"),
            ({"distances": [[1.0, -2.0]]}, "distances"),
            ({"proposal_histogram": [0.0]}, "histogram"),
        ],
    )
    def test_bad_options(self, options, words):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            Energy(**options)

    def test_representation_and_names(self):
        assert repr(Energy()) == "Energy()"
        assert repr(Energy(weighted=True, distances=[[1, 1]])) == "Energy(weighted=True, distances=...)"
        coupling = Energy("laplace", True, [[1.0, 2.0]], [1.0, 3.0], "full")
        again = couplings.by_name(couplings.name_of(coupling), **couplings.options_of(coupling))
        assert vars(again) == vars(coupling)


def test_energy_beats_pairwise_and_weights_beat_energy():
    x = torch.as_tensor(np.random.default_rng(0).standard_normal((40, 5)) / np.sqrt(5))
    check_order([couplings.Pairwise(), Energy(), Energy(weighted=True)], rfgp.features.Fourier, x, 40, 300, 6)


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent():
    with store.lock:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        worker = context.Process(target=lambda: queue.put(Energy().sample(4, 3, generator=random.generator(0)).shape))
        held = threading.Thread(target=worker.start)
        held.start()
        held.join()
        try:
            assert queue.get(timeout=60) == (4, 3)
        finally:
            worker.kill()


def test_draws_that_cannot_be_made():
    with pytest.raises(rfgp.InvalidArgumentError, match="generator"):
        Energy().sample(4, 3, generator=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="spectrum must be"):
        Energy().sample(4, 3, spectrum="gaussian", generator=random.generator(0))
    with pytest.raises(rfgp.InvalidArgumentError, match="positive features"):
        Energy("laplace", distances=[[50.0, 1.0]]).sample(4, 3, generator=random.generator(0))
    with pytest.raises(rfgp.InvalidArgumentError, match="without pairs"):
        couplings.Antithetic(Energy("laplace"))
    with pytest.raises(rfgp.InvalidArgumentError, match="floating-point"):
        rfgp.features.Fourier(torch.ones(2, 3, dtype=torch.float64))(torch.ones(2, 3, dtype=torch.int64))


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", [spectra.Matern(0.01), spectra.RationalQuadratic(0.02)], ids=repr)
def test_the_heaviest_tails(spectrum):
    omega = Energy().sample(20, 3, spectrum=spectrum, generator=random.generator(0))
    assert torch.isfinite(omega.weights).all()
    assert not torch.isnan(omega.dense()).any()


def test_rational_quadratic_weights_in_many_dimensions():
    omega = Energy(proposal_scale=1.1).sample(
        32, 400, spectrum=spectra.RationalQuadratic(1.0), generator=random.generator(0)
    )
    assert torch.isfinite(omega.weights).all()


def test_no_warning_for_usual_sizes():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Energy().sample(64, 4, generator=random.generator(0))
    assert not caught
