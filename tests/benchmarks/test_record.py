"""Results as files: verdicts, the page that is made of them, and what README and docs quote."""

import dataclasses
import json
import math
import re

import pytest

from benchmarks import page, record, tables
from benchmarks.papers import __main__ as papers
from benchmarks.papers import lists
from benchmarks.record import Result, Scale, Value


def result(scale):
    values = [Value("a", 0.563 + 0.02 * scale(10), 0.01, "0.563", 0.02), Value("b", 1.5)]
    return Result("Of two things", "Read as it stands.", values, ["A note."], missing=["its errors"])


def test_a_figure_agrees_or_differs_by_all_errors_together():
    one = Value("a", 0.60, 0.01, "0.56", 0.02)
    assert one.distance == pytest.approx(0.04 / math.sqrt(0.01**2 + 0.02**2 + 0.01**2 / 12), rel=1e-12)
    verdicts = {0.50: "close", 0.60: "agrees", 0.62: "close", 0.64: "differs"}
    assert {ours: dataclasses.replace(one, ours=ours).verdict for ours in verdicts} == verdicts
    assert dataclasses.replace(one, ours=9.0, comparable=False).verdict == "not compared"


def test_a_claim_holds_or_fails_by_two_standard_errors():
    values = [Value("a", ours, 0.1, printed) for printed in ("< 1", "> 1") for ours in (0.7, 0.85, 1.15, 1.3)]
    found = [value.verdict for value in values]
    assert found == ["holds", "undecided", "undecided", "fails", "fails", "undecided", "undecided", "holds"]
    assert record.claims([*values, Value("b", 0.9, 0.0, "< 1"), Value("c", 1.0, 0.1, "1.0")]) == (3, 4, 2)


def test_results_are_files_a_page_and_quotes(tmp_path):
    path = record.run("couplings", "table-9", result, Scale(), tmp_path)
    content = json.loads(path.read_text())
    assert path == tmp_path / "couplings" / "table-9.json"
    assert {"python", "torch", "commit", "machine"} <= set(content["made_with"])
    results = record.read(tmp_path)
    assert record.values_of(results["couplings/table-9"]) == list(result(Scale()).values)
    assert "| a | 0.563 | 0.763 ± 0.010 | 8.9 | differs |" in page.full("couplings", results)
    assert "| couplings/table-9 | a | 0.563 | 0.763 ± 0.010 | not known |" in page.page(results)
    text = "It is <!-- couplings/table-9: a; .2f -->0.99<!-- -->, not <!-- couplings/table-9: b -->7<!-- -->."
    renewed = page.quoted(text, results)
    assert "a; .2f -->0.76<!-- -->, not <!-- couplings/table-9: b -->1.5<!-- -->." in renewed
    with pytest.raises(KeyError):
        page.quoted("<!-- couplings/table-8: a -->1<!-- -->", results)
    with pytest.raises(ValueError, match="1 quotes end, and 0 can be read"):
        page.quoted("<!-- couplings/table-9, a -->1<!-- -->", results)


def test_page_matches_the_results():
    results = record.read()
    assert [key for key, content in results.items() if content["quick"]] == []
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results)


def test_readme_and_docs_quote_the_results():
    results = record.read()
    for path in page.texts():
        text = path.read_text(encoding="utf-8")
        assert page.quoted(text, results) == text, path


def test_every_figure_of_a_paper_has_its_file_and_is_listed():
    """Figures of our own have no paper that they could lack."""
    known = {f"{paper}/{name}": paper for paper, name, _ in papers.figures()}
    assert set(record.read()) == set(known)
    assert set(lists.FACTS) == {key for key, paper in known.items() if paper != "own"}
    words = {fact.partition(":")[0] for facts in lists.FACTS.values() for fact in facts}
    assert words == set(lists.WORDS)


def test_tables_of_our_own_figures_are_complete():
    assert {name for name, _ in tables.tables(record.read())} == set(tables.TABLES)


def test_figures_that_cannot_be_compared_have_no_verdict():
    text = page.full("simplex", record.read())
    table = text[text.index("## Figure 10") :]
    assert "not compared" in table
    assert not re.search("agrees|close|differs", table)
