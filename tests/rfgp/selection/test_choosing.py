"""Choices of what is left open: what is measured, what is taken, and that a named option is kept."""

import dataclasses
import warnings
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch

import graphs
import rfgp
from rfgp.approximations import measured
from rfgp.choosing import choose, costs, entries, grounds, rounds
from rfgp.fitting import Plan
from rfgp.regression import Measurement, begin
from rfgp.regression.table import offers, table_options
from rfgp.rows import Chunk
from rfgp.saving.plain import decode_choice, encode_choice
from rfgp.tables import Blocks

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning", "ignore::rfgp.VarianceStarvationWarning")


def table(n=80, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0] + j) * X[:, 1] for j in range(outputs)], axis=1)
    y = y + 0.1 * rng.standard_normal((n, outputs))
    return X * [1.0, 30.0], 5 + 2 * (y if outputs > 1 else y[:, 0])


def rough(n, seed=0):
    """A smooth function of which noise is most, and near twins that have much in common."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1, 1, (n // 2, 2))
    effects = rng.standard_normal(n // 2)
    which = np.arange(n) % (n // 2)
    X = centers[which] + 1e-3 * rng.standard_normal((n, 2))
    return X, np.sin(2 * X[:, 0]) + effects[which] + 0.05 * rng.standard_normal(n)


def names(choice):
    return {trial.name for trial in choice.trials}


# --- what is chosen ----------------------------------------------------------------------------------


def test_few_rows_are_left_to_exact_kernels_and_the_best_fit_is_the_last():
    X, y = table()
    gp = rfgp.TableGP(seed=0).fit(X, y)
    choice = gp.selection
    assert gp.options.features == "exact"
    assert choice.way == "each left out in turn"
    assert choice.judged == 80
    assert all(name.startswith("exact") for name in names(choice))
    assert choice.rules.keys() == {"a constant", "a straight line"}
    chosen = choice.chosen.options
    twin = rfgp.TableGP(**chosen).fit(X, y)
    assert float(gp.log_marginal_likelihood()) == pytest.approx(float(twin.log_marginal_likelihood()), abs=1e-3)
    loo = float(twin.leave_one_out().log_density.mean())
    assert choice.chosen.last.value == pytest.approx(loo, abs=1e-3)


def test_two_choices_of_a_seed_are_equal_and_another_seed_keeps_other_rows_out():
    X, y = table(120)
    options = {"features": "fourier", "num_frequencies": 8, "local": None}
    one, two = (rfgp.TableGP(seed=3, **options).fit(X, y, max_iterations=4) for _ in range(2))
    assert one.selection == two.selection
    assert one.selection.way == "kept out, given all others"
    assert np.array_equal(one.predict(X).mean, two.predict(X).mean)
    other = rfgp.TableGP(seed=4, **options).fit(X, y, max_iterations=4)
    assert other.selection.rules != one.selection.rules


def test_what_is_local_is_found():
    X, y = rough(240)
    gp = rfgp.TableGP(num_neighbors=8, budget="1h", seed=0, features=None).fit(X, y)
    assert gp.options.features is None
    both = rfgp.TableGP(num_frequencies=4, frequencies="fixed", num_neighbors=8, seed=0).fit(X, y, max_iterations=20)
    assert both.options.local is not None
    smooth = rfgp.TableGP(num_frequencies=4, frequencies="fixed", seed=0).fit(X, y, max_iterations=20)
    assert smooth.options.local is not None  # among those that may be without it
    assert smooth.selection.chosen.last.value > min(t.last.value for t in smooth.selection.trials if t.last) + 0.3


def test_planted_a_wrong_density_changes_the_choice(monkeypatch):
    """A candidate whose densities are spoiled is not taken, and one whose are raised is."""
    X, y = table()
    right = rfgp.TableGP(seed=0).fit(X, y).selection.chosen.name
    original = grounds.Grounds.measured
    other = "exact matern12"
    assert right != other

    def spoiled(self, options, size, start):
        found = original(self, options, size, start)
        is_other = options.local is None and options.spectrum == rfgp.spectra.Matern(0.5)
        return dataclasses.replace(found, density=found.density + (1.0 if is_other else -1.0))

    monkeypatch.setattr(grounds.Grounds, "measured", spoiled)
    assert rfgp.TableGP(seed=0).fit(X, y).selection.chosen.name == other


def test_a_cheaper_candidate_is_taken_within_noise_only():
    exact = offers.Offer(rfgp.TableGP("exact", "gaussian", local=None).options)

    def entry(seconds, behind, error):
        made = entries.Entry(exact, costs.Cost(seconds * 2e10, 0.0), 0.0)
        made.measured = [Measurement(10, -behind, 1.0, behind, error)]
        return made

    cheap, best = entry(1.0, 0.01, 0.02), entry(9.0, 0.0, 0.0)
    kept_out = SimpleNamespace(averages=False, begun=SimpleNamespace(num_observations=10))
    pick = rounds.Rounds(kept_out, [cheap, best], None)
    assert pick.taken([cheap, best]) is cheap
    assert rounds.Rounds(kept_out, [cheap, best], None, predicted=8.5).taken([cheap, best]) is best
    for behind, error in ((0.01, 0.005), (0.1, 0.2)):
        dear = entry(1.0, behind, error)
        assert rounds.Rounds(kept_out, [dear, best], None).taken([dear, best]) is best


def test_only_what_is_not_clearly_behind_goes_on(monkeypatch):
    monkeypatch.setattr(rounds, "FEW", 30)
    choice = rfgp.TableGP(seed=0).fit(*table(100, outputs=2)).selection  # of several outputs nothing is averaged
    reached = [len(trial.measured) for trial in choice.trials]
    assert max(reached) == 2
    assert 1 <= sum(count == 2 for count in reached) <= rounds.GOING_ON
    assert all("behind by" in trial.remark for trial in choice.trials if len(trial.measured) == 1)
    assert {m.rows for trial in choice.trials for m in trial.measured} == {30, 100}


def made_rounds(monkeypatch, density, searched=None, line=-20.0, budget=None, said=MappingProxyType({})):
    """Return rounds on kept-out rows whose candidates' densities are said by name, and what was asked of each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2100, 2))
    open_rounds = choose.rounds_of(begin(rfgp.TableGP(seed=0, budget=budget).family, Chunk(X, X[:, 0])), Plan())
    asked = []

    def measured(ground, options, size, start):
        name = offers.in_words(options)
        asked.append((name, size))
        values = density.get(name, -9.0) + torch.zeros(len(ground.told), dtype=torch.float64)
        seen, report = max(size, (searched or {}).get(name, 0)), SimpleNamespace(frequencies=said.get(name, "fixed"))
        return SimpleNamespace(density=values, searched=seen, is_whole=False, report=report)

    rules = {"a line": torch.full((len(open_rounds.grounds.told),), line, dtype=torch.float64)}
    monkeypatch.setattr(grounds.Grounds, "measured", measured)
    monkeypatch.setattr(grounds.Grounds, "rules", rules)
    return open_rounds, asked


@pytest.mark.parametrize("variant", ["matern12 neighbours", "matern52 neighbours"])
def test_a_variant_that_is_best_is_taken(monkeypatch, variant):
    """It is measured in the last round only, and what it is a variant of in all."""
    made, asked = made_rounds(monkeypatch, {"matern32 neighbours": 1.0, variant: 2.0})
    assert offers.in_words(made.run().offer.options) == variant
    assert (variant, 1000) not in asked


@pytest.mark.parametrize(("behind", "spread"), [(0.04, 0.0), (0.06, 0.0), (0.06, 2.0)])
def test_other_neighbours_are_not_measured_where_theirs_are_clearly_behind(monkeypatch, behind, spread):
    """And by more than two standard errors. Those beside features, which are ahead, are, and inducing points."""
    near, both = "matern32 neighbours", "128 fixed frequencies + matern32 neighbours"
    noise = torch.randn(420, generator=rfgp.random.generator(0), dtype=torch.float64)
    made, _ = made_rounds(monkeypatch, {near: 1.0 + spread * (noise - noise.mean()), both: 1.0 + behind}, budget=4000.0)
    made.run()
    remarks = {offers.in_words(entry.offer.options): entry.remark for entry in made.entries if entry.found is None}
    is_left_out = "a variant of what is clearly behind" in remarks.get("matern12 neighbours", "")
    assert is_left_out == (behind == 0.06 and spread == 0)
    assert not {name for name in remarks if "+" in name}


@pytest.mark.parametrize("behind", [0.2, 0.4])
def test_features_beside_neighbours_are_not_measured_where_these_are_far_behind(monkeypatch, behind):
    near, both = "matern32 neighbours", "128 fixed frequencies + matern32 neighbours"
    made, asked = made_rounds(monkeypatch, {"128 learned frequencies": 1.0, near: 1.0 - behind, both: 1.5})
    taken = offers.in_words(made.run().offer.options)
    assert (taken == both) == (both in [name for name, _ in asked]) == (behind == 0.2)


@pytest.mark.parametrize("most", [1.005, 1.02])
def test_fewer_frequencies_are_not_measured_where_more_are_clearly_better(monkeypatch, most):
    """More of them are asked first, the fewest of these before the others."""
    likely = {"128 learned frequencies": 1.0, "256 learned frequencies": most, "64 learned frequencies": 0.9}
    made, asked = made_rounds(monkeypatch, likely, budget=4000.0)
    made.run()
    names = [name for name, _ in asked]
    assert ("64 learned frequencies" in names) == (most == 1.005)
    assert names.index("256 learned frequencies") < names.index("512 learned frequencies")
    assert most > 1.01 or names.index("512 learned frequencies") < names.index("64 learned frequencies")


def test_local_processes_begin_with_the_rows_that_another_needed(monkeypatch):
    near, both = "matern32 neighbours", "128 fixed frequencies + matern32 neighbours"
    made, asked = made_rounds(monkeypatch, {near: 1.0, both: 1.2}, {near: 1500})
    made.run()
    first = {entry.measured[0].rows for entry in made.entries if offers.in_words(entry.offer.options) in (near, both)}
    assert (both, 1500) in asked
    assert (both, 1000) not in asked
    assert first == {1500}


@pytest.mark.parametrize("budget", [15, 25, 40, 80, 400])
def test_measuring_and_the_fit_stay_within_the_budget(monkeypatch, budget):
    """Whatever is best; with more of it more is measured."""
    for best in ("matern32 neighbours", "128 fixed frequencies + matern32 neighbours", "256 learned frequencies"):
        likely = {"128 learned frequencies": 1.9, "matern32 neighbours": 1.8, best: 2.0}
        made, _ = made_rounds(monkeypatch, likely, budget=budget)
        taken = made.run()
        assert made.predicted + taken.left(made.num_rows) <= budget
        remarks = [entry.remark for entry in made.entries if entry.found is None]
        assert any("no room" in remark or "over the budget" in remark for remark in remarks) == (budget < 400)
        assert budget < 80 or offers.in_words(taken.offer.options) == best


def test_rows_that_misled_are_paid_for_and_what_is_known_is_not(monkeypatch):
    near = "matern32 neighbours"
    misled, asked = made_rounds(monkeypatch, {near: 1.0}, {near: 1680})
    entry = next(each for each in misled.entries if offers.in_words(each.offer.options) == near)
    misled.measure([entry], 1000, 0.0)
    paid, rows = misled.predicted, misled.grounds.rows
    columns = rows.inputs.shape[1]
    searched = costs.search_operations(entry.offer.options, 1680, columns, len(rows))
    told = costs.posterior_operations(entry.offer.options, len(rows), columns)
    assert paid == pytest.approx((searched + told) / rounds.RATE)
    misled.run()
    assert [size for name, size in asked if name == near] == [1000]


def test_what_is_known_costs_nothing(monkeypatch):
    """With room for a cheap variant alone: what it is a variant of has seen all rows, and is not charged again."""
    likely, predicted = {"128 learned frequencies": 1.9, "64 learned frequencies": 2.0}, 400.0
    for sizes in ([1000], [1000, 1680]):
        monkeypatch.setattr(rounds.Rounds, "sizes", lambda self, sizes=sizes: sizes)
        made, _ = made_rounds(monkeypatch, likely, budget=predicted)
        for entry in made.entries:
            if "learned" not in (name := offers.in_words(entry.offer.options)) or "+" in name:
                entry.remark = "left out"
        best = made.run()
        predicted = 1.8 * made.predicted + best.left(made.num_rows)  # nothing else was measured
    assert offers.in_words(best.offer.options) == "64 learned frequencies"


@pytest.mark.parametrize("most", [0.8, 0.81])
def test_frequencies_that_are_only_told_all_are_charged_no_fit(monkeypatch, most):
    """With room for measuring the largest, on four fifths of all rows, but not for another fit beside it."""
    likely, best, needed = {"128 learned frequencies": 1.9, "512 learned frequencies": 2.0}, "", 0.0
    monkeypatch.setattr(rounds, "SHARE", 2.0)
    for budget in (4000.0, None):
        made, _ = made_rounds(monkeypatch, likely, budget=budget or 1.01 * needed)
        for entry in made.entries:
            entry.remark = "" if offers.in_words(entry.offer.options) in likely else "left out"
        best = offers.in_words((taken := made.run()).offer.options)
        needed = made.predicted + taken.left(made.num_rows)
        monkeypatch.setattr(grounds, "MOST", most)
    assert taken.telling < 0.1 * taken.cost.seconds
    assert (best == "512 learned frequencies") == (most == 0.8)


def test_frequencies_that_learning_left_as_they_were_are_no_candidate(monkeypatch):
    """The fixed ones are one."""
    likely, said = (
        {"128 learned frequencies": 2.0, "128 fixed frequencies": 1.0},
        {"128 learned frequencies": "fell back"},
    )
    made, asked = made_rounds(monkeypatch, likely, said=said)
    assert offers.in_words(made.run().offer.options) == "128 fixed frequencies"
    assert "256 learned frequencies" not in [name for name, _ in asked]
    remarks = {offers.in_words(entry.offer.options): entry.remark for entry in made.entries}
    assert "no better than fixed" in remarks["128 learned frequencies"]


def test_all_rows_look_around_again_where_there_are_several_optima(monkeypatch):
    X, y = table(120)
    original, fit, plans = grounds.Grounds.measured, choose.fit_terms, []

    def measured(self, options, size, start):
        found = original(self, options, size, start)
        return dataclasses.replace(found, density=found.density + (9.0 if options.frequencies == "fixed" else 0.0))

    monkeypatch.setattr(grounds.Grounds, "measured", measured)
    monkeypatch.setattr(choose, "fit_terms", lambda begun, plan: plans.append(plan) or fit(begun, plan))
    gp = rfgp.TableGP(num_frequencies=4, local="matern32", num_neighbors=8, seed=0).fit(X, y, max_iterations=3)
    assert gp.selection.chosen.options["frequencies"] == "fixed"
    assert [plan.is_begun for plan in plans] == [False]


def test_where_all_fail_the_cheapest_is_taken(monkeypatch):
    made, _ = made_rounds(monkeypatch, {})
    monkeypatch.setattr(grounds.Grounds, "measured", lambda *_: "it cannot be")
    assert made.run().cost.seconds == min(entry.cost.seconds for entry in made.entries)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_a_fit_that_is_measured_on_all_rows_is_the_fit():
    """Where few rows are left out in turn, a local process is fitted as it would be alone, and variants are tried."""
    X, y = table(120)
    gp = rfgp.TableGP(features=None, num_neighbors=8, seed=0).fit(X, y)
    assert len([trial for trial in gp.selection.trials if trial.measured]) == 3
    kept = gp.selection.chosen.options
    alone = rfgp.TableGP(**kept, seed=0).fit(X, y)
    ours, others = (float(each.log_marginal_likelihood()) for each in (gp, alone))
    assert ours == pytest.approx(others, abs=1e-6)
    assert gp.fit_report.leave_one_out == pytest.approx(alone.fit_report.leave_one_out)


def test_nothing_goes_on_where_a_line_is_as_good(monkeypatch):
    made, asked = made_rounds(monkeypatch, {"matern32 neighbours": -8.9}, line=-8.9)
    assert offers.in_words(made.run().offer.options) == "matern32 neighbours"
    assert {size for name, size in asked if "neighbours" in name} == {1000}
    assert asked[0] == ("128 fixed frequencies", 1680)  # the cheapest is first, and features alone see more rows


# --- what is named is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"features": "exact"},
        {"features": "exact", "local": None},
        {"spectrum": "matern52"},
        {"local": "matern12"},
        {"features": "fourier", "num_frequencies": 6, "local": None},
        {"coupling": "orthogonal", "num_frequencies": 6, "frequencies": "fixed"},
        {"frequencies": "fixed", "num_frequencies": 5, "local": None},
        {"features": None},
        {"num_inducing": 7, "diagonal": "fitc"},
        {"num_neighbors": 4, "features": None},
        {"features": "laplace", "num_frequencies": 6, "local": None},
    ],
)
def test_what_is_named_is_never_changed(given):
    X, y = table(60)
    gp = rfgp.TableGP(seed=0, **given).fit(X, y, max_iterations=2)
    for name, value in given.items():
        found = getattr(gp.options, name)
        if name == "coupling":
            found = found if isinstance(found, str) else rfgp.couplings.name_of(found)
        assert found == {"matern52": rfgp.spectra.Matern(2.5)}.get(value, value), name


def test_nothing_is_measured_where_one_candidate_is_left():
    gp = rfgp.TableGP("exact", "gaussian", local=None)
    assert gp.options.features == "exact"
    assert gp.fit(*table(), max_iterations=1).selection is None
    alone = rfgp.TableGP("exact", local="matern12").fit(*table(), max_iterations=1)
    assert alone.selection is None


def test_an_open_model_says_so_and_is_decided_by_conditioning():
    gp = rfgp.TableGP(seed=0)
    assert (gp.options.features, gp.options.spectrum, gp.selection) == ("auto", "auto", None)
    assert repr(gp) == "TableGP(seed=0, not fitted)"
    gp.condition(*table())
    assert gp.selection is None
    assert [type(term.approximation) for term in gp.terms.values()] == [rfgp.Exact]
    with pytest.raises(rfgp.NotFittedError):
        rfgp.TableGP().exact()


def test_conditioning_takes_one_kernel_whatever_the_rows():
    """A fit chooses; without one 2,001 rows had another kernel than 2,000."""
    X = np.random.default_rng(0).standard_normal((2001, 2))
    few, many = (rfgp.TableGP(seed=0).condition(X[:n], np.sin(X[:n, 0])) for n in (2000, 2001))
    assert list(few.terms) == list(many.terms) == ["rbf"]
    assert isinstance(many.terms["rbf"].approximation, rfgp.RandomFeatures)
    found, exact = (each.log_marginal_likelihood().item() for each in (few, few.exact()))
    assert found == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "soon"}, "budget must be such as"),
        ({"budget": -1}, "budget must be"),
        ({"memory": "4 boxes"}, "memory must be such as"),
        ({"max_seconds": 0}, "max_seconds must be"),
        ({"num_frequencies": -1}, "num_frequencies must be a positive integer"),
        ({"coupling": "nearly"}, "coupling"),
        ({"features": "nystrom", "frequencies": "learned"}, "no frequencies to learn"),
        ({"features": "exact", "diagonal": "vfe"}, 'is for features="nystrom"'),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.TableGP(**options)


# --- what it may cost ------------------------------------------------------------------------------------


def test_a_budget_leaves_out_what_is_dear_but_not_the_cheapest():
    X, y = table()
    free = rfgp.TableGP(seed=0).fit(X, y, max_iterations=2).selection
    seconds = [trial.seconds for trial in free.trials]
    small = rfgp.TableGP(seed=0, budget=1.01 * min(seconds) / rounds.SHARE).fit(X, y, max_iterations=2).selection
    assert {"over the budget" in trial.remark for trial in small.trials} == {True, False}
    assert all(trial.measured for trial in small.trials if trial.seconds < 1.01 * min(seconds))
    least = rfgp.TableGP(seed=0, budget=1e-9).fit(X, y, max_iterations=2).selection
    assert least.chosen.seconds == min(seconds)
    tight = rfgp.TableGP(seed=0, memory="1kb").fit(X, y, max_iterations=2).selection
    assert sum("bytes are over" in trial.remark for trial in tight.trials) == len(tight.trials) - 1


def test_a_clock_ends_the_measuring(monkeypatch):
    ticks = iter(range(0, 10**6, 100))
    monkeypatch.setattr(rounds, "clock", lambda: next(ticks))
    choice = rfgp.TableGP(seed=0, max_seconds=250).fit(*table(), max_iterations=2).selection
    assert sum(bool(trial.measured) for trial in choice.trials) == 2
    assert "250 s were over" in choice.trials[-1].remark


def test_what_is_tried_is_said_with_how_long_it_takes():
    said = []
    rfgp.TableGP(seed=0).fit(*table(), max_iterations=2, progress=lambda now: said.append(now.stage))
    assert any(stage.startswith("choosing, 1 of 5, exact") and " about " in stage for stage in said)


# --- tables of all kinds -----------------------------------------------------------------------------------


def test_a_table_that_says_nothing_warns():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    with pytest.warns(rfgp.BaselineNotBeatenWarning, match="a constant"):
        gp = rfgp.TableGP(seed=0).fit(X, y)
    assert gp.selection.better_rule == "a constant"
    with warnings.catch_warnings():
        warnings.simplefilter("error", rfgp.BaselineNotBeatenWarning)
        assert rfgp.TableGP(seed=0).fit(*table()).selection.better_rule is None


def test_a_straight_line_is_named():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, -2.0] + 0.5 * rng.standard_normal(60)
    with pytest.warns(rfgp.BaselineNotBeatenWarning, match="a straight line"):
        rfgp.TableGP(seed=0, lengthscale=0.01).fit(X, y, fixed=["lengthscale"])


@pytest.mark.parametrize("kind", ["outputs", "float32", "weights", "noise", "poisson", "tensor"])
def test_tables_of_all_kinds(kind):
    X, y = table(50, outputs=2 if kind == "outputs" else 1)
    options, more = {}, {}
    if kind == "float32":
        X, y = X.astype(np.float32), y.astype(np.float32)
    elif kind == "weights":
        more = {"sample_weight": np.arange(1.0, 51.0)}
    elif kind == "noise":
        more = {"noise": np.full(50, 0.01)}
    elif kind == "poisson":
        y, options = np.round(np.exp(y / 5)), {"likelihood": "poisson"}
    elif kind == "tensor":
        X, y = torch.from_numpy(X), torch.from_numpy(y)
    gp = rfgp.TableGP(seed=0, **options).fit(X, y, max_iterations=5, **more)
    measured = [trial.last.value for trial in gp.selection.trials if trial.measured]
    assert len(measured) > 1
    assert np.isfinite(measured).all()
    assert np.isfinite(np.asarray(gp.predict(X).mean)).all()
    assert (gp.selection.rules == {}) == (kind == "poisson")


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_rows_that_are_read_in_blocks_are_kept_by_no_candidate():
    X, y = table(300)
    gp = rfgp.TableGP(num_frequencies=4, seed=0).fit(Blocks([(X[:150], y[:150]), (X[150:], y[150:])]), max_iterations=3)
    assert names(gp.selection) == {"4 fixed frequencies", "4 learned frequencies"}
    assert gp.options.features == "fourier"
    assert gp.num_observations == 300


@pytest.mark.parametrize("normal", [True, False])
def test_densities_of_kept_out_rows_are_those_of_predictions(normal):
    X, y = table(100)
    y = y if normal else np.round(np.exp(y / 5))
    gp = rfgp.TableGP("fourier", num_frequencies=4, local=None, seed=0, likelihood="normal" if normal else "poisson")
    options = gp.options.menu(100)[0].options if normal else gp.options
    open_gp = gp if normal else rfgp.TableGP("fourier", local=None, seed=0, likelihood="poisson")
    ground = grounds.Grounds.of(begin(open_gp.family, Chunk(X, y)), Plan(given_iterations=3), keeps_out=True)
    found = ground.measured(options, 1000, None)
    scaling = ground.begun.scaling
    assert (len(ground.rows), len(ground.judged)) == (80, 20)
    outside = (ground.judged.inputs * scaling.inputs.scale + scaling.inputs.location).numpy()
    targets = (ground.judged.targets * scaling.targets.scale + scaling.targets.location)[:, 0].numpy()
    told = found.regression.replace(rows=ground.rows).predict(outside).observed().log_density(targets)
    np.testing.assert_allclose(found.density.numpy(), np.asarray(told), rtol=1e-6)


def test_a_saved_choice_is_the_same(tmp_path):
    X, y = table()
    gp = rfgp.TableGP(seed=0).fit(X, y, max_iterations=5)
    gp.save(tmp_path / "model", data=True)
    assert rfgp.load(tmp_path / "model").selection == gp.selection
    assert str(gp.selection) in str(rfgp.load(tmp_path / "model").selection)
    assert repr(gp.selection).startswith("Choice(an average of ")


def test_noise_that_varies_is_measured_on_some_rows_too():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = np.sin(3 * X[:, 0]) + np.exp(X[:, 0] - 2) * rng.standard_normal(60)
    gp = rfgp.TableGP(likelihood="heteroscedastic", seed=0)
    ground = grounds.Grounds.of(begin(gp.family, Chunk(X, y)), Plan(given_iterations=3), keeps_out=True)
    found = ground.measured(gp.options.menu(60)[0].options, 40, None)
    assert np.isfinite(found.density.numpy()).all()
    assert len(found.density) == 12


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
def test_graphs_have_the_same_record(tmp_path, monkeypatch):
    graph = graphs.Graph.from_grid((8, 8))
    nodes = np.arange(0, 64, 2)
    y = np.sin(nodes / 6) + 0.1 * np.random.default_rng(1).standard_normal(32)
    few = rfgp.GraphGP(graph, seed=0).fit(nodes, y, max_iterations=2)
    assert few.selection.chosen.name == "exact"
    assert "few enough" in few.selection.reason
    assert rfgp.GraphGP(graph, features="exact").fit(nodes, y, max_iterations=2).selection is None
    monkeypatch.setattr(measured, "MOST_EXACT_NODES", 10)
    gp = rfgp.GraphGP(graph, seed=0).fit(nodes, y, max_iterations=2)
    assert [trial.options["features"] for trial in gp.selection.trials] == [c.features for c in gp.advice.candidates]
    assert gp.selection.chosen.options["features"] == gp.features
    errors = {candidate.features: candidate.error for candidate in gp.advice.candidates}
    assert gp.selection.chosen.last.value == errors[gp.features]
    gp.save(tmp_path / "nodes")
    assert rfgp.load(tmp_path / "nodes").selection == gp.selection


def test_the_roughness_of_a_road_is_found(tmp_path):
    """Of a path with a derivative and little noise alpha is 2; what is named is kept."""
    roads = graphs.RoadNetwork.from_lines(
        [np.array([[float(i), 0.0], [float(i + 1), 0.0]]) for i in range(6)], metric="euclidean"
    )
    rng = np.random.default_rng(0)
    where = np.stack([rng.integers(0, 6, 60), rng.uniform(0, 1, 60)], axis=1)
    y = np.sin(1.5 * where.sum(1)) + 0.01 * rng.standard_normal(60)
    gp = rfgp.RoadGP(roads, alpha="auto", seed=0).fit(where, y)
    assert gp.selection.chosen.name == "alpha=2"
    each = [rfgp.RoadGP(roads, alpha=alpha, seed=0).fit(where, y) for alpha in (1, 2)]
    values = [float(road.leave_one_out().log_density.mean()) for road in each]
    assert [trial.last.value for trial in gp.selection.trials] == pytest.approx(values, abs=1e-4)
    gp.save(tmp_path / "roads", data=True)
    assert rfgp.load(tmp_path / "roads").selection == gp.selection
    assert rfgp.RoadGP(roads, alpha=1, seed=0).fit(where, y, max_iterations=1).selection is None


def test_what_fails_or_is_not_finite_is_left_out_and_said(monkeypatch, tmp_path):
    X, y = table()
    original = grounds.fit_terms

    def failing(regression, plan):
        options = table_options(regression.family)
        if options.spectrum == rfgp.spectra.Matern(0.5):
            raise rfgp.SolverError("planted")
        found, report = original(regression, plan)
        if options.local is not None:
            noise = {"noise": torch.tensor(float("nan"), dtype=torch.float64)}
            found = found.replace(hyperparameters=found.hyperparameters.replaced(noise))
        return found, report

    monkeypatch.setattr(grounds, "fit_terms", failing)
    gp = rfgp.TableGP(seed=0).fit(X, y, max_iterations=3)
    remarks = {trial.name: trial.remark for trial in gp.selection.trials}
    assert remarks["exact matern12"] == "planted"
    assert gp.selection.chosen.name in ("exact gaussian", "exact matern32")
    assert all(remarks[name] for name in remarks if "+" in name)
    gp.save(tmp_path / "m", data=True)


@pytest.mark.parametrize(
    "change",
    [{"best": 9}, {"best": "0"}, {"trials": 3}, {"rules": {"a constant": 1.0}}, {"measure": "luck"}, {"budget": None}],
)
def test_a_wrong_record_in_a_file_is_named(change, tmp_path):
    gp = rfgp.TableGP(seed=0).fit(*table(30), max_iterations=1)
    record = {**encode_choice(gp.fit_report), **change}
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        decode_choice(record)
    assert decode_choice(encode_choice(gp.fit_report)) == gp.selection


def test_exposures_of_kept_out_counts_count():
    rng = np.random.default_rng(0)
    X, times = rng.uniform(-1, 1, (80, 2)), rng.uniform(0.1, 20, 80)
    y = rng.poisson(times * np.exp(np.sin(3 * X[:, 0]))).astype(float)
    gp = rfgp.TableGP("fourier", local=None, likelihood="poisson", seed=0)
    ground = grounds.Grounds.of(begin(gp.family, Chunk(X, y, times)), Plan(given_iterations=20), keeps_out=True)
    known = ground.measured(gp.options.menu(80)[0].options, 80, None).density.mean()
    ground = grounds.Grounds.of(begin(gp.family, Chunk(X, y)), Plan(given_iterations=20), keeps_out=True)
    assert known > ground.measured(gp.options.menu(80)[0].options, 80, None).density.mean() + 0.5
    assert gp.advise(X, y, exposure=times).judged == 80


def test_sums_are_for_rows_that_are_many_for_their_hyperparameters():
    """Two columns make 7 of them; where nothing else is open the sum stays."""
    for n, is_tried in ((69, False), (70, True)):
        trials = rfgp.TableGP(seed=0).fit(*table(n), max_iterations=2).selection.trials
        assert {bool(trial.measured) for trial in trials if "+" in trial.name} == {is_tried}
        assert all(trial.measured for trial in trials if "+" not in trial.name)
    assert rfgp.TableGP("exact", local="matern12").fit(*table(20), max_iterations=2).options.has_both


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("options", [{"features": "exact"}, {"features": "fourier", "num_frequencies": 16}])
def test_copies_do_not_tell_the_rows_that_judge(options):
    """Each row of noise is written twice: a row is as good as unknown, whatever its copy would tell."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (150, 2)), rng.standard_normal(150)
    gp = rfgp.TableGP(seed=0, local=None, **options)
    gp.fit(np.tile(X, (2, 1)), np.tile(y, 2), max_iterations=5)
    assert gp.num_observations == 300
    assert gp.selection.judged == (30 if options["features"] == "fourier" else 150)
    assert all(trial.last.value < -1.2 for trial in gp.selection.trials if trial.last is not None)
