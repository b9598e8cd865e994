"""Kernels from text: what is read, what is refused, and how long that takes."""

import time

import pytest

import rfgp
from rfgp import kernels as k
from rfgp.expressions import MAX_CHARACTERS
from rfgp.kernels.parsing import KERNELS, MAX_TERMS
from rfgp.saving.values import KERNELS as SAVED


def same(one, other):
    """Say whether two kernels have the same terms."""
    return repr(one) == repr(other) and [t.name for t in one.terms()] == [t.name for t in other.terms()]


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("RBF(t)", k.RBF("t")),
        ("RBF()", k.RBF()),
        ("RBF(0) + RBF((1, 2))", k.RBF(0) + k.RBF((1, 2))),
        ("RBF('t t', name='trend')", k.RBF("t t", name="trend")),
        ("RBF((lon, 'lat'), lengthscale=2)", k.RBF(("lon", "lat"), lengthscale=2)),
        ("RBF([lon, lat], ard=False)", k.RBF(("lon", "lat"), ard=False)),
        ("RBF(columns=t)", k.RBF("t")),
        ("2.0 * RBF(x) * 3", 6.0 * k.RBF("x")),
        ("RBF(t) + Periodic(t, period=7) + Group(store)", k.RBF("t") + k.Periodic("t", period=7) + k.Group("store")),
        ("RBF(t).named('a') + (RBF(t) * Group(s)).named(\"b\")",
         k.RBF("t").named("a") + (k.RBF("t") * k.Group("s")).named("b")),
        ("(RBF(a) + RBF(b)).named('s')", (k.RBF("a") + k.RBF("b")).named("s")),
        ("(RBF(a) + RBF(b)) * Group(s)", (k.RBF("a") + k.RBF("b")) * k.Group("s")),
        ("Linear((a, b), origin=(-1.5, 2))", k.Linear(("a", "b"), origin=(-1.5, 2))),
        ("Additive(columns=(a, b), order=2)", k.Additive(columns=("a", "b"), order=2)),
        ("Additive(base=Matern, columns=a)", k.Additive(k.Matern, ("a",))),
        ("Stationary(t, spectrum='matern')", k.Stationary("t", spectrum="matern")),
        ("Categorical(s, correlation=None) + Constant()", k.Categorical("s") + k.Constant()),
        ("RBF(\n  t)  # a comment", k.RBF("t")),
    ],
)  # fmt: skip
def test_text_is_the_kernel_of_python(text, kernel):
    assert same(k.parse(text), kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        k.Matern(("lon", "lat"), nu=2.5, name="space") + k.Linear(("a", "b")) + k.Constant(),
        (k.Linear("a") * k.RBF(("lon", "lat"))).named("varying") + 2.5 * k.Group("site"),
        k.RationalQuadratic("t", alpha=0.5) + k.Polynomial("a", degree=3) + k.Coregionalization("s", rank=2),
        k.Periodic("t", 1.5, learn_period=True) + k.Harmonics("t", 2.0, num_harmonics=3) + k.Categorical("s"),
        k.RBF(name="rbf") + k.Matern(nu=0.5, name="local"),
    ],
    ids=repr,
)
def test_repr_is_read_back(kernel):
    assert same(k.parse(repr(kernel)), kernel)


def test_factors_of_an_expanded_product_are_shared():
    first, second = k.parse("(RBF(a) + RBF(b)) * Group(s)").terms()
    assert first.factors[1] is second.factors[1]


def test_columns_are_names_or_places_of_a_table():
    names = ("t", "store no", "0")
    found = k.parse("RBF(t) + Group('store no') + RBF(2)", names)
    assert [term.factors[0].columns for term in found.terms()] == [("t",), ("store no",), ("0",)]
    for text, words in (("RBF(T)", "Did you mean 't'"), ("RBF((t, u))", "t, store no, 0"), ("RBF(3)", "got 3")):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            k.parse(text, names)


CODE = [
    "__import__('os').system('ls')", "RBF.__class__", "().__class__", "[RBF(x) for x in y]", "lambda: RBF(t)",
    "(lambda: RBF(t))()", "RBF(t) if t else RBF(s)", "RBF(t := 3)", "RBF(f'{t}')", "RBF(*t)", "RBF(**t)", "RBF(b't')",
    "RBF(1j)", "RBF(...)", "RBF(t) - RBF(t)", "RBF(t) ** 2", "-RBF(t)", "+RBF(t)", "not RBF(t)", "RBF(t)[0]", "{t}",
    "{'a': RBF(t)}", "RBF(t).matrix(3)", "RBF(t) and RBF(s)", "RBF(t) < 3", "import os", "t = 3", "RBF(t); RBF(s)",
    "open('x')", "RBF(open('x'))", "eval('1')", "RBF(t, lengthscale=[x for x in y])", "RBF(await t)", "(yield)",
    "RBF", "t", "3", "2 * 3", "'RBF(t)'", "", "  ", "RBF(t", "RBF(t))", "RBF(t) RBF(s)", "RBF(class)", "RBF(t)\0",
    "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", CODE)
def test_anything_else_is_refused(text):
    with pytest.raises(rfgp.InvalidArgumentError, match=r"(?i)kernel|column"):
        k.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Rbf(t)", "Did you mean 'RBF'"),
        ("Mesh('/etc/passwd')", "Build it in Python"),
        ("RBF(t, lenghtscale=3)", "Did you mean 'lengthscale'"),
        ("RBF(t, 1, 2)", "too many"),
        ("Periodic(t)", "period"),
        ("RBF(t, ard='x')", "ard must be True or False"),
        ("RBF(t, lengthscale=price)", "Put quotes"),
        ("RBF(t, lengthscale=RBF(t))", "lengthscale must be a number"),
        ("RBF(t, lengthscale=-1)", "positive"),
        ("RBF(t, lengthscale=1e999)", "lengthscale"),
        ("Linear(t, origin='a')", "origin must be a number"),
        ("Polynomial(t, degree=1000000000)", "degree must be at most"),
        ("Coregionalization(s, rank=1001)", "rank must be at most 1,000"),
        ("RBF(t, ard=True, ard=False)", "Use only"),
        ("RBF(t).named(x)", "name of a term"),
        ("RBF(t).named('a', 'b')", "named"),
        ("RBF(1.5)", "column of RBF"),
        ("RBF(True)", "column of RBF"),
        ("RBF((a, a))", "distinct"),
        ("RBF(())", "at least one"),
        ("Additive((a, b))", "columns="),
        ("Additive(base=Group)", "base must be one of"),
        ("0 * RBF(t)", "positive"),
        ("True * RBF(t)", "variance"),
        ("RBF(t) + 3", "got 3"),
        ("RBF(a, name='s') + RBF(b, name='s')", "unique names"),
        (f"RBF(t, lengthscale={'9' * 400})", r"2\*\*63"),
    ],
)
def test_wrong_arguments_are_named(text, words):
    with pytest.raises(rfgp.InvalidArgumentError, match=words):
        k.parse(text).terms()


HUGE = {
    "characters": "x" * 10_000_000,
    "brackets": "(" * 5000,
    "calls": "RBF(" * 2000,
    "lists": "[" * 4000,
    "signs": "-" * 9000 + "1",
    "negations": "not " * 2400 + "a",
    "functions": "lambda:" * 1400 + "1",
    "conditions": "a if b else " * 800 + "c",
    "attributes": "a" + ".b" * 4900,
    "chained calls": "f" + "(x)" * 3300,
    "names": "RBF(t)" + ".named('a')" * 900,
    "digits": "9" * 9000,
    "terms": "RBF(t)" + "+RBF(t)" * 1400,
    "products": "*".join(["(RBF(a)+RBF(b))"] * 600),
    "pairs": f"Additive(columns=({','.join(f'c{i}' for i in range(1500))}), order=2)",
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_are_refused_at_once(name):
    start = time.process_time()
    with pytest.raises(rfgp.InvalidArgumentError):
        k.parse(HUGE[name])
    assert time.process_time() - start < 2


def test_limits_are_far_from_ordinary_kernels():
    columns = tuple(f"column_{i}" for i in range(200))
    text = " + ".join(f"RBF({name})" for name in columns)
    assert len(text) < MAX_CHARACTERS
    assert len(k.parse(text, columns).terms()) == 200 < MAX_TERMS
    assert len(k.parse(f"Additive(columns=({', '.join(columns)}))").terms()) == 200


def test_every_kernel_is_read_or_refused_by_name():
    assert {*KERNELS, "Nodes", "Roads", "Mesh", "Centered"} == {*SAVED.names}
