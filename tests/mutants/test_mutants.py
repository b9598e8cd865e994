"""Mutants change a module in memory, and each error of a loop has the tests that reach the callers of the loop."""

import importlib.util
import json

from tests.mutants.code import PLANTED, Callers, TextMutant, Unchanged, mutants_of, planted


def imported(mutant):
    """Return the module of a mutant."""
    module = importlib.util.module_from_spec(mutant.find_spec(mutant.name))
    mutant.exec_module(module)
    return module


def test_a_module_is_imported_with_the_error():
    mutant = TextMutant("rfgp/parameters.py", "return found[0]", "return 'wrong'")
    assert imported(mutant).find_path("b", ["a.b"]) == "wrong"
    assert mutant.find_spec("rfgp.messages") is None


def test_mutants_of_a_tree_differ_from_their_file():
    mutants = list(mutants_of("rfgp/random.py"))
    assert len(mutants) > 10
    same = Unchanged(mutants[0]).code()
    assert sum(mutant.code() == same for mutant in mutants) == 0


def test_errors_in_loops_are_reached_through_their_callers():
    loops = {mutant.loop for mutant in mutants_of("rfgp/local/loops.py")} - {""}
    lines, _ = Callers().of(min(loops))
    assert loops
    assert any(not path.endswith("loops.py") for path in lines)


def test_each_planted_text_is_in_the_code():
    assert len(planted()) == len(json.loads(PLANTED.read_text(encoding="utf-8")))


def test_an_error_in_a_function_is_put_into_the_imported_one(monkeypatch):
    from rfgp import parameters

    monkeypatch.setattr(parameters.find_path, "__code__", parameters.find_path.__code__)
    mutant = TextMutant("rfgp/parameters.py", "return found[0]", "return 'wrong'")
    mutant.exchange()
    assert (len(mutant.functions), parameters.find_path("b", ["a.b"])) == (1, "wrong")


def test_errors_in_what_an_import_runs_are_not_those_of_functions():
    assert TextMutant("rfgp/limits.py", "frozen=True", "frozen=False").functions is None
