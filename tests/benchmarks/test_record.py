"""Results as files: verdicts, the page that is made of them, and what README and docs quote."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks import page, protocol, record
from benchmarks.papers import __main__ as papers
from benchmarks.papers import lists
from benchmarks.record import Result, Scale, Value


def result(scale):
    values = [Value("a", 0.563 + 0.02 * scale(10), 0.01, "0.563", 0.02), Value("b", 1.5)]
    return Result("Of two things", "Read as it stands.", values, ["A note."], missing=["its errors"])


def test_a_figure_is_as_far_as_all_errors_together_say():
    one = Value("a", 0.60, 0.01, "0.56", 0.02)
    assert one.distance == pytest.approx(0.04 / math.sqrt(0.01**2 + 0.02**2 + 0.01**2 / 12), rel=1e-12)
    assert one.verdict == "agrees"
    assert dataclasses.replace(one, ours=0.62).verdict == "close"
    assert dataclasses.replace(one, ours=0.50).verdict == "close"
    assert dataclasses.replace(one, ours=0.64).verdict == "differs"
    assert dataclasses.replace(one, z=-2.5).verdict == "close"
    assert dataclasses.replace(one, ours=9.0, comparable=False).verdict == "not compared"
    assert Value("a", 1.0).verdict == "not printed"


def test_a_claim_holds_or_fails_by_two_standard_errors():
    values = [Value("a", ours, 0.1, printed) for printed in ("< 1", "> 1") for ours in (0.7, 0.85, 1.15, 1.3)]
    assert [value.verdict for value in values] == [
        *("holds", "undecided", "undecided", "fails"),
        *("fails", "undecided", "undecided", "holds"),
    ]
    assert [value.distance for value in values] == [None] * 8
    assert record.claims([*values, Value("b", 0.9, 0.0, "< 1"), Value("c", 1.0, 0.1, "1.0")]) == (3, 4, 2)
    assert record.counts(values) == (0, 0, 0)


@pytest.mark.slow
def test_a_claim_on_several_cases_is_tested_by_its_weakest_case():
    rng = np.random.default_rng(0)
    assert record.everywhere([5.0, 2.5, 9.0]) == 2.5
    assert record.everywhere([5.0, -6.0, 9.0]) < -5
    ties = np.array([record.everywhere(rng.standard_normal(20)) for _ in range(4000)])
    assert np.mean(ties < -1) == pytest.approx(stats.norm.sf(1), abs=0.02)
    assert np.mean(ties > 1) < 1e-3
    value = Value("a", 0.9, 0.01, "< 1", together=-2.5)
    assert (value.support, value.verdict) == (-2.5, "fails")


@pytest.mark.parametrize("paired", [False, True])
def test_ratios_of_means_have_the_spread_that_they_say(paired):
    rng = np.random.default_rng(0)
    common = rng.standard_normal((400, 30)) * paired
    pairs = [3 + common + rng.standard_normal((400, 30)) for _ in range(2)]
    found = np.array([protocol.ratio_of_means(a, 2 * b, paired) for a, b in zip(*pairs, strict=True)])
    z = (found[:, 0] - 0.5) / found[:, 1]
    assert abs(z.mean()) < 0.2
    assert z.std() == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize(
    ("printed", "unit"), [("0.56", 0.01), ("1.", 1.0), ("12", 1.0), ("1.5e-3", 1e-4), ("2E4", 1e4), ("-0.1234", 1e-4)]
)
def test_rounding_is_uniform_over_the_last_digit(printed, unit):
    assert record.rounding(printed) == pytest.approx(unit / math.sqrt(12), rel=1e-12)


def test_result_file_names_versions_and_machine(tmp_path):
    path = record.run("couplings", "table-9", result, Scale(quick=True), tmp_path)
    content = json.loads(path.read_text())
    assert path == tmp_path / "couplings" / "table-9.json"
    assert content["quick"]
    assert content["missing"] == ["its errors"]
    assert {"python", "torch", "commit", "machine"} <= set(content["made_with"])
    assert "/" not in content["made_with"]["machine"]
    found = record.read(tmp_path)
    assert record.values_of(found["couplings/table-9"]) == list(result(Scale(quick=True)).values)
    assert record.counts(result(Scale()).values) == (1, 0, 0)
    assert record.counts(result(Scale(quick=True)).values) == (1, 1, 1)


def test_the_page_has_every_figure_and_its_verdict(tmp_path):
    record.run("couplings", "table-9", result, Scale(), tmp_path)
    text = page.page(record.read(tmp_path))
    assert "| a | 0.563 | 0.763 ± 0.010 | 8.9 | differs |" in text
    assert "| b |  | 1.5 |  | not printed |" in text
    assert "0 of 1 comparable printed numbers in tables lie within" in text


def test_quotes_are_renewed_and_unknown_ones_refused(tmp_path):
    record.run("couplings", "table-9", result, Scale(), tmp_path)
    results = record.read(tmp_path)
    text = "It is <!-- couplings/table-9: a; .2f -->0.99<!-- -->, not <!-- couplings/table-9: b -->7<!-- -->."
    renewed = page.quoted(text, results)
    assert "a; .2f -->0.76<!-- -->, not <!-- couplings/table-9: b -->1.5<!-- -->." in renewed
    assert page.quoted(renewed, results) == renewed
    with pytest.raises(KeyError):
        page.quoted("<!-- couplings/table-9: c -->1<!-- -->", results)
    with pytest.raises(KeyError):
        page.quoted("<!-- couplings/table-8: a -->1<!-- -->", results)
    with pytest.raises(ValueError, match="1 quotes end, and 0 can be read"):
        page.quoted("<!-- couplings/table-9, a -->1<!-- -->", results)


def test_page_matches_the_results():
    results = record.read()
    assert [key for key, content in results.items() if content["quick"]] == []
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results)


@pytest.mark.parametrize("path", list(page.texts()), ids=lambda path: path.name)
def test_readme_and_docs_quote_the_results(path):
    text = path.read_text(encoding="utf-8")
    assert page.quoted(text, record.read()) == text


def test_every_figure_of_a_paper_has_its_file():
    known = {f"{paper}/{name}" for paper, name, _ in papers.figures()}
    assert set(record.read()) == known


def test_every_figure_of_a_paper_is_listed():
    """Figures of our own have no paper that they could lack."""
    own = {f"{paper}/{name}" for paper, name, _ in papers.figures() if paper != "own"}
    assert set(lists.FACTS) == own
    words = {fact.partition(":")[0] for facts in lists.FACTS.values() for fact in facts}
    assert words == set(lists.WORDS)


def test_nothing_is_compared_where_something_is_missing():
    for key, content in record.read().items():
        if key in lists.FACTS and not lists.FACTS[key].is_counted:
            values = record.values_of(content)
            assert (record.counts(values), record.claims(values)) == ((0, 0, 0), (0, 0, 0)), key


def test_unknown_papers_are_refused():
    with pytest.raises(ValueError, match="no couplings/table-99, poetry; the papers are"):
        list(papers.figures("poetry,couplings/table-99"))
