"""Steps of a model's life in any order, drawn by hypothesis."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.fuzz.rules import FoundError, bounded
from tests.fuzz.session import Session

SEEDS = st.integers(0, 30)
ROWS = {"seed": SEEDS, "n": st.integers(1, 20), "noise": st.booleans(), "weight": st.booleans()}
FACTORS = st.dictionaries(
    st.integers(0, 9).map(str), st.sampled_from([0.1, 0.5, 0.9, 1.5, 4.0]), min_size=1, max_size=3
)
COUPLINGS = ["iid", "orthogonal", "halton", "pairwise", "monotone", "structured", "simplex", "simplex-plus"]


@st.composite
def tables(draw):
    """Options of a model on a table, as JSON."""
    features = draw(st.sampled_from(["fourier", "laplace", "exact", "none", "residual"]))
    spectra = ["gaussian"] if features == "laplace" else ["gaussian", "matern", "rational-quadratic"]
    spectrum = draw(st.sampled_from(spectra[: 2 if features in ("none", "residual") else 3]))
    local = draw(st.sampled_from([None, None, "gaussian", "matern"])) if features != "none" else spectrum
    local = None if features == "residual" else local
    learned = features == "fourier" and draw(st.integers(0, 4)) == 0
    return {
        "family": "table",
        "features": features,
        "spectrum": spectrum,
        "local": local,
        "m": draw(st.sampled_from([1, 2, 4, 5, 16])),
        "coupling": draw(st.sampled_from([c for c in COUPLINGS if c != "structured" or spectrum == "gaussian"])),
        "frequencies": "learned" if learned else "fixed",
        "ard": draw(st.booleans()),
        "standardize": draw(st.booleans()),
        "outputs": draw(st.sampled_from([0, 0, 1, 2])),
        "single": draw(st.integers(0, 4)) == 0,
        "tensors": draw(st.booleans()),
        "seed": draw(SEEDS),
    }


@st.composite
def nodes(draw):
    """Options of a model on a graph, as JSON."""
    return {
        "family": "graph",
        "features": draw(st.sampled_from(["exact", "walks", "chebyshev", "taylor", "spectrum"])),
        "kernel": draw(st.sampled_from(["diffusion", "matern", "regularized-laplacian"])),
        "lengths": draw(st.sampled_from(["iid", "antithetic", "systematic", "sigma"])),
        "outputs": draw(st.sampled_from([0, 0, 1, 2])),
        "seed": draw(SEEDS),
    }


class Machine(RuleBasedStateMachine):
    """A model beside its twin. `setups` are the options that it may have."""

    setups = tables()

    def __init__(self):
        super().__init__()
        self.session, self.has_failed = None, False

    @initialize(data=st.data())
    def begin(self, data):
        self.session = Session(data.draw(self.setups))

    def do(self, name, **arguments):
        self.tell({**self.session.plan, "steps": [*self.session.steps, [name, arguments]]})
        self._guarded(lambda: self.session.do(name, **arguments))

    def tell(self, plan):
        """Hear what is done next."""

    def fail(self, error):
        """Raise a finding, with the plan that shows it."""
        raise error

    def _guarded(self, call):
        try:
            with bounded():
                call()
        except AssertionError as error:
            self.has_failed = True
            found = error if isinstance(error, FoundError) else FoundError(" ".join(str(error).split())[:600])
            found.plan = self.session.plan
            self.fail(found)
        except Exception as error:
            self.has_failed = True
            found = FoundError(f"{type(error).__name__}: {str(error)[:300]}")
            found.__cause__, found.plan = error, self.session.plan
            self.fail(found)

    @rule(**ROWS)
    def condition(self, **rows):
        self.do("condition", **rows)

    @rule(**ROWS)
    def update(self, **rows):
        self.do("update", **rows)

    @rule(**ROWS, iterations=st.integers(1, 3), fixed=st.sampled_from([[], ["noise"], ["outputscale", "mean"]]))
    def fit(self, **rows):
        self.do("fit", **rows)

    @precondition(lambda self: self.session.state.numbers)
    @rule(factors=FACTORS)
    def set(self, factors):
        self.do("set", **factors)

    @rule(seed=SEEDS, m=st.integers(1, 12), coupling=st.sampled_from(COUPLINGS))
    def redraw(self, **changes):
        self.do("redraw", **changes)

    @rule()
    def exact(self):
        self.do("exact")

    @rule(data=st.booleans())
    def save_and_load(self, data):
        self.do("save_and_load", data=data)

    @rule(name=st.sampled_from(["deepcopy", "pickle", "leave_one_out"]))
    def plain(self, name):
        self.do(name)

    @rule(seed=SEEDS, n=st.integers(2, 12))
    def shallow_copy(self, seed, n):
        self.do("shallow_copy", seed=seed, n=n)

    @rule(kind=st.sampled_from(["length", "nan", "columns", "unknown", "text"]))
    def bad_update(self, kind):
        self.do("bad_update", kind=kind)

    @precondition(lambda self: self.session.state.numbers)
    @rule(seed=SEEDS, name=st.sampled_from(["compare", "compare", "sample"]))
    def ask(self, seed, name):
        self.do(name, seed=seed)

    def teardown(self):
        if self.session is not None and not self.has_failed:
            self._guarded(self.session.finish)


class GraphMachine(Machine):
    """The same on a graph."""

    setups = nodes()
