"""Approximations from text."""

import pytest

import rfgp
from rfgp import approximations
from rfgp.approximations.parsing import APPROXIMATIONS
from rfgp.saving.values import APPROXIMATIONS as SAVED


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("auto", "auto"),
        ("Exact", rfgp.Exact()),
        ("Exact()", rfgp.Exact()),
        ("RandomFeatures(256, learn_frequencies=True)", rfgp.RandomFeatures(256, learn_frequencies=True)),
        ("RandomFeatures(coupling='orthogonal', seed=3)", rfgp.RandomFeatures(coupling="orthogonal", seed=3)),
        ("InducingPoints(64, residual=Vecchia(20))", rfgp.InducingPoints(64, residual=rfgp.Vecchia(20))),
        ("InducingPoints(residual=Vecchia)", rfgp.InducingPoints(residual=rfgp.Vecchia())),
        ("trend=Vecchia(30), local=RandomFeatures(128)",
         {"trend": rfgp.Vecchia(30), "local": rfgp.RandomFeatures(128)}),
        ("{'group(store)': Exact(), 'a': Vecchia}", {"group(store)": rfgp.Exact(), "a": rfgp.Vecchia()}),
    ],
)  # fmt: skip
def test_text_is_the_value_of_python(text, value):
    assert approximations.parse(text) == value


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_repr_is_read_back(name):
    value = APPROXIMATIONS[name]()
    assert approximations.parse(repr(value)) == value
    assert approximations.parse(repr({"a b": value})) == {"a b": value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "RandomFeatures, EquispacedFourier"),
        ("Vechia(30)", "Did you mean 'Vecchia'"),
        ("RandomFeatures('a')", "num_frequencies"),
        ("RandomFeatures(1000000000)", "at most"),
        ("RandomFeatures(learn_frequencies='yes')", "True or False"),
        ("RandomFeatures(coupling='x')", "coupling"),
        ("RandomFeatures(coupling=energy)", "Put quotes"),
        ("RandomFeatures(frequencies=3)", "got 'frequencies'"),
        ("InducingPoints(residual=Exact)", "residual"),
        ("Exact() + Exact()", "expression"),
        ("a=Exact(), Vecchia()", "approximation"),
        ("Exact(), Vecchia()", "one value"),
        ("trend=Exact(), trend=Vecchia()", "Use only"),
        ("trend=auto", "got 'auto'"),
        ("Exact), _(Exact", "brackets"),
        ("{}", "at least one"),
        ("{1: Exact()}", "Use only"),
        ("**x", "Use only"),
        ("Exact() for x in y", "Use only"),
        ("RandomFeatures(__import__('os'))", "got '__import__'"),
        ("os.system('x')", "Use only"),
        ("3", "got 3"),
        ("", "text"),
        ("(" * 5000, "at most 32"),
    ],
)
def test_anything_else_is_refused(text, words):
    with pytest.raises(rfgp.InvalidArgumentError, match=words):
        approximations.parse(text)


def test_every_approximation_is_read():
    assert {*APPROXIMATIONS} == {*SAVED.names}
