"""What is held out: groups whole, drawn uniformly, and as many rows as asked for; and what so few can say."""

import checks
import numpy as np
import pytest

import graphs
import rfgp
from rfgp import fields, report
from rfgp.models.graph import GraphGP
from rfgp.report import words
from rfgp.report.holdout import independent_groups, joined_groups, split
from rfgp.tables import Table

RAMP = np.repeat(np.arange(59), np.arange(1, 60))  # groups of 1 to 59 rows
CROWD = np.repeat(np.arange(209), [22, *[1] * 208])  # one crossing with 22 of 230 sensors


def held(groups, share, seeds):
    """Return for each seed the held-out rows, and how many of them each group has."""
    parts = [split(len(groups), share, seed, groups)[1] for seed in range(seeds)]
    return parts, np.stack([np.bincount(groups[test], minlength=groups.max() + 1) for test in parts])


@pytest.mark.parametrize("seed", range(5))
def test_a_large_group_does_not_fill_the_held_out_part(seed):
    train, test = split(len(CROWD), 0.1, seed, CROWD)
    assert len(test) == 23
    assert len(set(CROWD[test])) == 23
    assert not set(CROWD[train]) & set(CROWD[test])


def test_each_small_group_is_held_out_with_one_probability():
    """Of 1,770 rows 177 are wanted, and groups up to a quarter of that can be drawn."""
    _, counts = held(RAMP, 0.1, 1500)
    sizes = np.arange(1, 60)
    drawn = sizes <= 44
    assert (counts[:, ~drawn] == 0).all()
    probability = 177 / sizes[drawn].sum()
    checks.assert_mean(counts[:, drawn] > 0, np.full(drawn.sum(), probability))


def test_large_groups_are_drawn_if_others_hold_too_few_rows():
    groups = np.concatenate([np.arange(20), np.repeat([20, 21], 60)])
    _, counts = held(groups, 0.2, 1500)
    checks.assert_mean(counts > 0, np.full(22, 28 / 140))


def test_the_expected_number_of_held_out_rows_is_the_target():
    parts, counts = held(RAMP, 0.1, 1500)
    checks.assert_mean(np.array([[len(test)] for test in parts]), np.array([177.0]))
    assert max(abs(len(test) - 177) for test in parts) <= 44
    assert ((counts > 0).sum(1) >= 7).all()


def test_equal_groups_are_held_out_exactly_by_share():
    groups = np.arange(1000) % 50
    parts, counts = held(groups, 0.1, 20)
    assert {len(test) for test in parts} == {100}
    assert ((counts > 0).sum(1) == 5).all()
    assert len(np.unique(np.concatenate(parts))) > 800


@pytest.mark.parametrize(("number", "least"), [(3, 1), (4, 2), (5, 2), (10, 2)])
def test_few_groups_leave_two_on_either_side_where_they_can(number, least):
    groups = np.arange(100) % number
    for seed in range(20):
        train, test = split(100, 0.05, seed, groups)
        assert len(set(groups[test])) == least
        assert len(set(groups[train])) >= 2


def test_too_few_groups_are_named():
    with pytest.raises(rfgp.DataError, match="2 groups"):
        split(40, 0.1, 0, np.arange(40) % 2)


def test_the_last_rows_are_held_out_in_their_order():
    train, test = split(100, 0.2, 0, holdout="last")
    assert test.tolist() == list(range(80, 100))
    assert sorted(train) == list(range(80))
    assert train.tolist() != list(range(80))  # a fit takes the first of them
    with pytest.raises(rfgp.InvalidArgumentError, match="holdout"):
        split(100, 0.2, 0, holdout="first")


def test_the_effective_number_of_groups_counts_large_ones_less():
    assert independent_groups(np.arange(7)) == pytest.approx(7)
    assert independent_groups(np.arange(30) % 6) == pytest.approx(6)
    assert independent_groups(np.repeat([0, 1], [22, 1])) == pytest.approx(23**2 / (22**2 + 1))


def stations(number, each):
    """Return a table of so many stations, each with so many rows and a level of its own, and the stations."""
    rng = np.random.default_rng(0)
    at = np.repeat(np.arange(number), each)
    X = rng.uniform(size=(number * each, 2))
    return Table(X, np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(len(X)), ("a", "b"), "y"), at


def studied(table, **options):
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0)
    study = report.study_table(table, gp, compare=False, **options)
    return study, report.table_report(study, table)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
class TestStudy:
    def test_coverage_of_few_groups_is_not_assessed(self):
        table, at = stations(10, 30)
        study, page = studied(table, groups=at, split_by="station")
        assert len(study.test) == 60
        assert study.num_groups == 2
        said = "cannot be assessed: 2 held-out groups, 30 of the 60 rows in one of them"
        assert words.verdict(study, "rows") == said
        assert said in page
        assert "as expected" not in page
        assert "held-out part, at random, by station" in page
        assert study.summary()["test_groups"] == 2

    def test_coverage_of_many_groups_counts_groups(self):
        table, at = stations(300, 4)
        study, page = studied(table, groups=at, test_share=0.2)
        assert study.num_groups == 60
        assert study.num_independent == pytest.approx(60)
        assert words.verdict(study, "rows").endswith("% are expected in 60 groups)")
        assert "The band is that of 60 groups," in page

    def test_single_rows_are_assessed_as_before(self):
        table, _ = stations(300, 1)
        study, page = studied(table, test_share=0.2)
        assert study.num_independent == 60
        assert words.verdict(study, "rows").endswith("(53 to 60 are expected)")
        assert "groups" not in page[page.index("<main>") : page.index("</main>")]

    def test_groups_may_be_texts_and_must_fit_the_rows(self):
        table, at = stations(12, 10)
        study, _ = studied(table, groups=np.array([f"station {i}" for i in at]))
        assert not set(at[study.train]) & set(at[study.test])
        with pytest.raises(rfgp.InvalidArgumentError, match="groups"):
            studied(table, groups=at[:5])
        with pytest.raises(rfgp.InvalidArgumentError, match="groups"):
            studied(table, groups=at, holdout="last")

    def test_last_rows_validate_a_series(self):
        table, _ = stations(100, 1)
        study, page = studied(table, holdout="last", test_share=0.2)
        assert study.test.tolist() == list(range(80, 100))
        assert "held-out part, the last in their order" in page

    def test_last_observations_at_seen_nodes_are_stated(self):
        graph = graphs.Graph.from_grid((8, 8))
        nodes = np.concatenate([np.arange(40), np.arange(5)])
        field = fields.Field(graph, nodes, np.sin(nodes / 3) + 0.0, "height")
        study = report.study_field(
            field, GraphGP(graph, features="exact", seed=0), compare=False, holdout="last", test_share=0.2
        )
        assert study.test.tolist() == list(range(36, 45))
        assert study.notes[0].startswith("5 held-out observations repeat a row, or a node,")
        assert "together" not in words.repeats(study)


def test_joined_groups_keep_rows_of_both_together():
    groups, others = np.array([0, 0, 1, 2, 2, 3]), np.array([5, 6, 6, 7, 8, 9])
    found = joined_groups(groups, others)
    assert [sorted(np.flatnonzero(found == g)) for g in dict.fromkeys(found.tolist())] == [[0, 1, 2], [3, 4], [5]]
