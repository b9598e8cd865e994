import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from torch.utils._python_dispatch import TorchDispatchMode

import rfgp
from rfgp import couplings, random
from rfgp.attention import HeadFrequencies, functional, passes, random_feature_attention
from rfgp.features import softmax
from rfgp.features.softmax import coefficients

DOUBLE = torch.float64
KINDS = ("softmax", "gaussian")


def normals(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, generator=random.generator(seed), dtype=DOUBLE).to(dtype)


TYPES = (DOUBLE, torch.float32, torch.float16, torch.bfloat16)


def frequencies(m=12, d=4, name="iid", **options):
    return couplings.by_name(name, **options).sample(m, d, generator=random.generator(7))


def inputs(L=9, S=9, lead=(2, 3), E=4, Ev=5, size=1.0, dtype=DOUBLE):
    shapes = (*lead, L, E), (*lead, S, E), (*lead, S, Ev)
    scales = size, size, 1.0
    return tuple((a * normals(*s, seed=i)).to(dtype) for i, (s, a) in enumerate(zip(shapes, scales, strict=True)))


def dense(q, k, v, drawn, hidden=None, causal=False, scale=None, bias=None):
    """Form the scores (L, S) of positive features in the logarithm, and normalise them; numpy and float64."""
    q, k, v = (x.detach().double().numpy() for x in (q, k, v))
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    omega, weights = drawn.dense().numpy(), drawn.weights.numpy()
    sides = [root * x @ omega.T - 0.5 * np.square(root * x).sum(-1, keepdims=True) for x in (q, k)]
    logs = logsumexp(sides[0][..., :, None, :] + sides[1][..., None, :, :] + np.log(weights), axis=-1)
    if bias is not None:
        logs = logs + bias.numpy()[..., None, :]
    if hidden is not None:
        logs = np.where(hidden.numpy()[..., None, :], -np.inf, logs)
    if causal:
        logs = np.where(np.triu(np.ones(logs.shape[-2:], dtype=bool), 1), -np.inf, logs)
    top = logs.max(-1, keepdims=True, initial=-np.inf)
    scores = np.exp(logs - np.where(np.isfinite(top), top, 0))
    total = scores.sum(-1, keepdims=True)
    return np.divide(scores @ v, total, out=np.zeros_like(scores @ v), where=total > 0)


def check_twin(q, k, v, drawn, hidden=None, causal=False, kernel="softmax", tolerance=1e-10, **options):
    pair = softmax.Positive(drawn, kernel)
    got = random_feature_attention(q, k, v, pair, key_padding_mask=hidden, is_causal=causal, **options)
    wanted = dense(q, k, v, drawn, hidden, causal, options.get("scale"))
    assert got.shape == wanted.shape
    assert got.dtype == v.dtype
    np.testing.assert_allclose(got.double().numpy(), wanted, rtol=0, atol=tolerance)


class TestTwin:
    @pytest.mark.parametrize("kernel", KINDS)
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("count", [1, 2, 7, 8, 33])
    def test_it_equals_the_dense_one(self, count, causal, kernel):
        for chunk_size in (1, 3, 8, 128):
            check_twin(*inputs(count, count), frequencies(), causal=causal, kernel=kernel, chunk_size=chunk_size)

    @pytest.mark.parametrize("causal", [False, True])
    def test_padding(self, causal):
        hidden = torch.zeros(2, 1, 20, dtype=torch.bool)
        hidden[0, :, 13:], hidden[1, :, ::3] = True, True
        check_twin(*inputs(20, 20), frequencies(), hidden.expand(2, 3, 20), causal, chunk_size=4)
        q, k, v = inputs(20, 20)
        pair = softmax.Positive(frequencies())
        one, other = (
            random_feature_attention(q, k, v, pair, key_padding_mask=mask, is_causal=causal)
            for mask in (hidden, torch.zeros(hidden.shape, dtype=DOUBLE).masked_fill(hidden, -torch.inf))
        )
        assert torch.equal(one, other)

    @pytest.mark.parametrize("causal", [False, True])
    def test_numbers_added_to_scores(self, causal):
        q, k, v = inputs()
        bias = normals(9, seed=5)
        got = random_feature_attention(
            q, k, v, softmax.Positive(frequencies()), key_padding_mask=bias, is_causal=causal, chunk_size=4
        )
        np.testing.assert_allclose(got, dense(q, k, v, frequencies(), causal=causal, bias=bias), atol=1e-12)

    def test_cross_attention_shapes_and_scales(self):
        check_twin(*inputs(3, 17, lead=()), frequencies())
        check_twin(*inputs(17, 3, lead=(4,)), frequencies(), scale=0.9)
        check_twin(*inputs(5, 5, lead=(2, 1, 2), Ev=1), frequencies(m=1), causal=True, chunk_size=2)
        q, k, v = inputs(4, 6, lead=(2, 3))
        got = random_feature_attention(q, k[:, :1], v[:1], softmax.Positive(frequencies()))
        np.testing.assert_allclose(got, dense(q, k[:, :1], v[:1], frequencies()), atol=1e-12)

    def test_many_blocks(self, monkeypatch):
        monkeypatch.setattr(functional, "ENTRIES", 1)
        monkeypatch.setattr(functional, "CHUNK_SIZE", 5)
        check_twin(*inputs(13, 17), frequencies())

    @pytest.mark.parametrize("name", couplings.names())
    def test_every_coupling(self, name):
        for full in (name, f"{name}-antithetic"):
            check_twin(*inputs(), frequencies(8, 4, full), causal=True, chunk_size=4)
        weighted = couplings.Energy("laplace", weighted=True).sample(8, 4, generator=random.generator(0))
        check_twin(*inputs(), weighted)

    def test_heads_with_draws_of_their_own(self):
        q, k, v = inputs(lead=(2, 3))
        matrix, weights = normals(3, 6, 4, seed=9), normals(3, 6, seed=10).exp()
        got = random_feature_attention(q, k, v, softmax.Positive(HeadFrequencies(matrix, weights)), is_causal=True)
        for head in range(3):
            drawn = couplings.Frequencies(matrix[head], weights[head])
            wanted = dense(q[:, head], k[:, head], v[:, head], drawn, causal=True)
            np.testing.assert_allclose(got[:, head], wanted, atol=1e-12)

    def test_value_that_every_query_sees_is_returned(self):
        q, k, v = inputs(lead=())
        more = normals(2, 4, seed=11), normals(2, 5, seed=12)
        pair = softmax.Positive(frequencies())
        got = functional.attend(q, k, v, pair, always=more, is_causal=True, chunk_size=4).output
        for i in range(9):
            seen = torch.cat([more[0], k[: i + 1]]), torch.cat([more[1], v[: i + 1]])
            np.testing.assert_allclose(got[i], dense(q[i : i + 1], *seen, frequencies())[0], atol=1e-12)


class TestPlantedErrors:
    def test_padded_keys_do_not_stay_in_the_normalizer(self, monkeypatch):
        hidden = torch.arange(9) > 5
        arguments = (*inputs(lead=()), frequencies(), hidden)
        check_twin(*arguments)
        monkeypatch.setattr(functional, "hiding_bias", lambda key, mask: (key.new_zeros(9, 1), mask[:, None]))
        assert fails(check_twin, *arguments)

    def test_the_wrong_scale(self, monkeypatch):
        arguments = (*inputs(lead=()), frequencies())
        check_twin(*arguments)
        monkeypatch.setattr(functional, "math", SimpleNamespace(sqrt=lambda x: x, prod=math.prod, inf=math.inf))
        assert fails(check_twin, *arguments)

    def test_a_stabiliser_that_knows_the_future(self, monkeypatch):
        def leaking(log_left, log_right):
            peak = log_right.amax(-2, keepdim=True)
            return ((log_left + peak).exp() @ (log_right - peak).exp().mT).tril()

        check_past(size=40.0)
        monkeypatch.setattr(passes, "past_scores", leaking)
        assert fails(check_past, 40.0)

    def test_the_key_of_the_query_left_out(self, monkeypatch):
        scores = passes.past_scores
        monkeypatch.setattr(passes, "past_scores", lambda a, b: scores(a, b).tril(-1))
        assert fails(lambda: check_twin(*inputs(lead=()), frequencies(), causal=True))


def check_past(size, dtype=torch.float32, pair=None, at=21):
    """The outputs before a change are the same to the bit, and right."""
    q, k, v = inputs(40, 40, lead=(2,), dtype=dtype)
    drawn = frequencies()
    pair = pair or softmax.Positive(drawn)
    outputs = []
    for factor in (1.0, -size, size):
        changed = [torch.cat([x[:, :at], factor * x[:, at:]], 1) for x in (q, k, v)]
        outputs.append(random_feature_attention(*changed, pair, is_causal=True, chunk_size=16)[:, :at])
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    if pair.is_positive:
        np.testing.assert_allclose(outputs[0], dense(q, k, v, drawn, causal=True)[:, :at], atol=2e-5)


def hybrid(kernel, m=200):
    """The angular hybrid with both signs of its positive part."""
    signs = coefficients.Angular(couplings.by_name("iid").sample(4, 4, generator=random.generator(3)))
    return softmax.bipolar(frequencies(m, name="orthogonal"), signs, antithetic=True, kernel=kernel)


class TestHybrid:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("dtype", [DOUBLE, torch.float32, torch.float16, torch.bfloat16])
    def test_it_equals_the_dense_one(self, causal, dtype):
        """The twin forms the scores by the same hybrid of the other kernel, in float64."""
        q, k, v = inputs(20, 20, size=0.5, dtype=dtype)
        hidden = torch.zeros(2, 1, 20, dtype=torch.bool)
        hidden[0, :, 13:], hidden[1, :, 1::3] = True, True
        got = random_feature_attention(
            q, k, v, hybrid("gaussian"), key_padding_mask=hidden, is_causal=causal, chunk_size=8
        )
        scores = hybrid("softmax")(q.double() / 2**0.5, k.double() / 2**0.5).masked_fill(hidden[..., None, :], 0)
        scores = scores.tril() if causal else scores
        wanted = scores @ v.double() / scores.sum(-1, keepdim=True)
        tolerance = {DOUBLE: 1e-12, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
        np.testing.assert_allclose(got.double(), wanted, rtol=0, atol=tolerance)
        assert float((got.double() - wanted.roll(1, -2)).abs().max()) > 10 * tolerance  # the planted error

    def test_gradients(self):
        q, k, v = (x.requires_grad_() for x in inputs(4, 4, lead=(), Ev=2, size=0.5))
        for causal in (False, True):
            assert torch.autograd.gradcheck(
                lambda *x, c=causal: random_feature_attention(*x, hybrid("gaussian", 20), is_causal=c, chunk_size=2),
                (q, k, v),
            )


class TestCausal:
    @pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
    @pytest.mark.parametrize("size", [2.0, 40.0, 1e4])
    @pytest.mark.parametrize("at", [1, 16, 21, 39])
    def test_the_future_leaves_the_past_as_it_is(self, size, at, dtype):
        check_past(size, dtype, at=at)

    @pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
    @pytest.mark.parametrize("kind", ["trigonometric", "hybrid"])
    def test_also_with_features_that_change_sign(self, kind):
        pair = softmax.Trigonometric(frequencies(600), "gaussian") if kind == "trigonometric" else hybrid("gaussian")
        for size in (2.0, 40.0):
            check_past(size, pair=pair)
            check_past(size, DOUBLE, pair=pair)


class TestPadding:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("rubbish", [1e4, 1e30, float("inf"), float("nan")])
    def test_padded_values_have_no_effect(self, causal, rubbish):
        q, k, v = inputs(20, 20, dtype=torch.float32)
        hidden = torch.arange(20) % 4 == 1
        pair = softmax.Positive(frequencies())
        clean = random_feature_attention(q, k, v, pair, key_padding_mask=hidden, is_causal=causal, chunk_size=8)
        k, v = (x.masked_fill(hidden[:, None], rubbish).requires_grad_() for x in (k, v))
        again = random_feature_attention(q, k, v, pair, key_padding_mask=hidden, is_causal=causal, chunk_size=8)
        assert torch.equal(clean, again)
        again.square().sum().backward()
        for x in (k, v):
            assert torch.isfinite(x.grad).all()
            assert (x.grad[..., hidden, :] == 0).all()

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("kind", ["positive", "signed"])
    def test_no_key_gives_zero(self, causal, kind):
        q, k, v = (x.requires_grad_() for x in inputs(6, 6))
        pair = (
            softmax.Positive(frequencies())
            if kind == "positive"
            else softmax.Trigonometric(frequencies(900), "gaussian")
        )
        hidden = torch.zeros(2, 3, 6, dtype=torch.bool)
        hidden[0], hidden[1, :, :2] = True, True
        out = random_feature_attention(q, k, v, pair, key_padding_mask=hidden, is_causal=causal, chunk_size=4)
        assert (out[0] == 0).all()
        assert (out[1, :, 2:] != 0).any(-1).all()
        assert bool((out[1, :, :2] == 0).all()) == causal
        out.sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
        assert random_feature_attention(q, k[..., :0, :], v[..., :0, :], pair).eq(0).all()


SIGNED = softmax.Trigonometric(frequencies(900), "gaussian")


class TestWhatIsNotFinite:
    """It is in every row that sees it, and in no other."""

    @pytest.mark.parametrize("rubbish", [math.nan, math.inf])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("name", ["key", "value", "query", "mask"])
    @pytest.mark.parametrize("kind", ["positive", "signed"])
    def test_one_token(self, kind, name, causal, rubbish):
        pair = SIGNED if kind == "signed" else softmax.Positive(frequencies())
        arguments = dict(zip(("query", "key", "value"), inputs(20, 20, lead=()), strict=True))
        arguments["mask"] = torch.zeros(20, 1, dtype=DOUBLE)
        arguments[name][9] = rubbish
        mask = arguments.pop("mask").squeeze(-1)
        out = random_feature_attention(
            **arguments, pair=pair, key_padding_mask=mask, is_causal=causal, chunk_size=8
        ).isfinite()
        rows = torch.arange(20)
        wanted = rows == 9 if name == "query" else (rows >= 9 if causal else rows >= 0)
        assert torch.equal(~out.all(-1), wanted)
        assert torch.equal(~out.any(-1), wanted)

    @pytest.mark.parametrize("causal", [False, True])
    def test_parameters(self, causal):
        drawn = frequencies()
        drawn.dense()[0, 0] = math.nan
        for pair in (softmax.Positive(drawn), softmax.Trigonometric(drawn, "gaussian")):
            assert random_feature_attention(*inputs(), pair, is_causal=causal).isnan().all()

    @pytest.mark.parametrize("causal", [False, True])
    def test_padding_before_large_queries(self, causal):
        """exp(log l) of a query that has seen no key overflows; it is not needed."""
        pair = softmax.Positive(torch.ones(1, 256))
        q = torch.full((1, 2, 256), 4.0).requires_grad_()
        hidden = torch.tensor([[True, False]])
        out = random_feature_attention(
            q, torch.zeros(1, 2, 256), torch.ones(1, 2, 1), pair, is_causal=causal, key_padding_mask=hidden
        )
        assert out.flatten().tolist() == [0.0 if causal else 1.0, 1.0]
        out.sum().backward()
        assert (q.grad == 0).all()


class TestGradients:
    @pytest.mark.thinned(5, slow=2)
    @pytest.mark.parametrize("recompute", [False, True])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("kind", ["positive", "weighted gaussian", "signed"])
    def test_they_are_those_of_differences(self, kind, causal, recompute):
        hidden = torch.tensor([False, False, True, False, False])
        omega = normals(4, 2, seed=3).requires_grad_()

        def call(q, k, v, matrix):
            drawn = couplings.Frequencies(matrix, torch.tensor([0.5, 1.5, 0.8, 1.2], dtype=DOUBLE))
            pair = softmax.Positive(drawn, "gaussian" if "gaussian" in kind else "softmax")
            if kind == "signed":
                pair = softmax.Trigonometric(drawn, "gaussian")
            options = {"is_causal": causal, "chunk_size": 2, "recompute": recompute}
            return random_feature_attention(q, k, v, pair, key_padding_mask=hidden, **options)

        q, k, v = (x.requires_grad_() for x in inputs(5, 5, lead=(), E=2, Ev=2, size=0.5))
        assert torch.autograd.gradcheck(call, (q, k, v, omega))

    def test_the_past_has_no_gradient_in_the_future(self):
        q, k, v = (x.requires_grad_() for x in inputs(40, 40))
        out = random_feature_attention(q, k, v, softmax.Positive(frequencies()), is_causal=True, chunk_size=16)
        out[..., :21, :].square().sum().backward()
        for x in (q, k, v):
            assert (x.grad[..., 21:, :] == 0).all()
            assert (x.grad[..., :21, :] != 0).any()


class TestPrecision:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)]
    )
    def test_outputs_are_rounded_once(self, dtype, tolerance, causal):
        """Values reach 4, so half a unit in the last place is 4 / 2^12 and 4 / 2^9; the rest comes from float32."""
        q, k, v = inputs(100, 100, dtype=dtype)
        check_twin(q, k, v, frequencies(64), causal=causal, tolerance=tolerance)

    def test_normalizer_is_not_in_half_precision(self):
        """2^17 equal keys: their number is beyond float16, and bfloat16 stops counting at 256."""
        count = 2**17
        for dtype in (torch.float16, torch.bfloat16):
            k = torch.zeros(1, 2, dtype=dtype).expand(count, 2)
            v = torch.arange(count).remainder(2).to(dtype)[:, None]
            out = random_feature_attention(k[:3], k, v, softmax.Positive(frequencies(4, 2)))
            torch.testing.assert_close(out, torch.full((3, 1), 0.5, dtype=dtype))

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("size", [5.0, 20.0, 60.0])
    def test_large_scores(self, size, causal):
        """Scores of several hundred and of several thousand; float32 carries them with an error of eps times them."""
        q, k, v = inputs(60, 60, size=size)
        check_twin(q, k, v, frequencies(64), causal=causal, chunk_size=16, tolerance=1e-8)
        check_twin(*inputs(60, 60, size=size, dtype=torch.float32), frequencies(64), causal=causal, tolerance=2e-2)
        opposite = random_feature_attention(
            q.float(), -q.float(), v.float(), softmax.Positive(frequencies(64)), is_causal=causal, chunk_size=16
        )
        assert torch.isfinite(opposite).all()
        assert (opposite.abs() > 0).any(-1).all()
        wanted = dense(q.float(), -q.float(), v.float(), frequencies(64), causal=causal)
        np.testing.assert_allclose(opposite, wanted, atol=2e-2)

    def test_gradients_of_large_scores_are_finite(self):
        q, k, v = (x.requires_grad_() for x in inputs(60, 60, size=30.0, dtype=torch.float32))
        random_feature_attention(q, k, v, softmax.Positive(frequencies()), is_causal=True).sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


class TestSigned:
    @pytest.mark.parametrize("causal", [False, True])
    def test_it_equals_the_dense_one(self, causal):
        q, k, v = inputs(20, 20, size=0.7)
        hidden = torch.arange(20) == 4
        pair = softmax.Trigonometric(frequencies(400), "gaussian")
        got = random_feature_attention(q, k, v, pair, key_padding_mask=hidden, is_causal=causal, chunk_size=8)
        other = softmax.Trigonometric(frequencies(400), "softmax")
        scores = (other.left(q / 2**0.5) @ other.right(k / 2**0.5).mT).masked_fill(hidden, 0)
        scores = scores.tril() if causal else scores
        torch.testing.assert_close(got, scores @ v / scores.sum(-1, keepdim=True))

    @pytest.mark.parametrize("causal", [False, True])
    def test_low_normalizers_issue_a_warning(self, causal):
        q, k, v = inputs(30, 30, size=20.0)
        pair = softmax.Trigonometric(frequencies(2), "gaussian")
        with pytest.warns(rfgp.PoorFeaturesWarning, match=r"\d+ of 180 below"):
            out = random_feature_attention(q, k, v, pair, is_causal=causal, floor=0.1)
        assert torch.isfinite(out).all()
        rows = functional.attend(q, k, v, pair, is_causal=causal, floor=0.1)
        assert 0 < rows.low.sum() < rows.low.numel()
        assert rows.low.shape == (2, 3, 30)

    def test_features_that_overflow_are_refused(self):
        with pytest.raises(rfgp.InvalidArgumentError, match='kernel="gaussian"'):
            random_feature_attention(*inputs(), softmax.Trigonometric(frequencies()))


def sums(name, count=1000):
    """Numerators and normalisers of random draws, (count, L, Ev + 1), by absorbing the keys in two blocks."""
    q, k, v = (0.3 * x for x in inputs(2, 4, lead=(), E=3, Ev=2))
    generator, found = random.generator(5), []
    zero = k.new_zeros(4)
    for _ in range(count):
        one = passes.PositivePass(softmax.Positive(couplings.by_name(name).sample(6, 3, generator=generator)))
        state = one.start(k, v)
        for rows in (slice(0, 1), slice(1, 4)):
            state = one.absorb(state, k[rows], v[rows], zero[rows])
        left = one.pair.left.log_values(q) + state.peak
        found.append(torch.cat([left.exp() @ state.values, left.exp() @ state.total[:, None]], -1))
    return torch.stack(found).numpy()


def check_unbiased(samples):
    q, k, v = (0.3 * x.numpy() for x in inputs(2, 4, lead=(), E=3, Ev=2))
    scores = np.exp(q @ k.T)
    assert_mean(samples, np.concatenate([scores @ v, scores.sum(-1, keepdims=True)], -1))


@pytest.mark.parametrize("name", ["iid", "monotone-antithetic", "simplex"])
def test_numerator_and_normalizer_are_unbiased(name):
    check_unbiased(sums(name))


def test_planted_a_state_that_is_not_rescaled(monkeypatch):
    monkeypatch.setattr(passes.PositivePass, "absorb", not_rescaled)
    assert fails(check_unbiased, sums("iid"))


def not_rescaled(self, state, key, value, bias):
    logs = self.pair.right.log_values(key) + self.key_bias(key, bias)[..., None]
    peak = torch.maximum(state.peak, logs.amax(-2))
    right = (logs - peak).exp()
    return passes.State(state.values + right.mT @ value, state.total + right.sum(-2), peak, state.mass)


@st.composite
def problems(draw):
    causal = draw(st.booleans())
    L = draw(st.integers(0, 12))
    S = L if causal else draw(st.integers(0, 12))
    lead = tuple(draw(st.lists(st.integers(1, 2), max_size=2)))
    width = draw(st.integers(1, 5))
    q, k, v = inputs(L, S, lead, width, draw(st.integers(1, 3)), draw(st.sampled_from([0.1, 1.0, 6.0])))
    count = S * math.prod(lead)  # each batch and head has a mask of its own
    hidden = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=torch.bool)
    m = draw(st.integers(1, 9))
    return q, k, v, frequencies(m, width), hidden.reshape(*lead, S), causal


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems(), st.sampled_from(TYPES), st.integers(1, 9), st.sampled_from(KINDS))
def test_any_shape_mask_and_type(problem, dtype, chunk_size, kernel):
    q, k, v, drawn, hidden, causal = problem
    tolerance = {DOUBLE: 1e-10, torch.float32: 1e-3, torch.float16: 8e-3, torch.bfloat16: 6e-2}[dtype]
    q, k, v = (x.to(dtype) for x in (q, k, v))
    check_twin(q, k, v, drawn, hidden, causal, kernel, tolerance, chunk_size=chunk_size)


class Largest(TorchDispatchMode):
    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            self.size = max(self.size, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_grows_faster_than_the_inputs(causal):
    pair = softmax.Positive(frequencies(64, 4))
    sizes = []
    for count in (2048, 8192):
        q, k, v = (x.requires_grad_() for x in inputs(count, count, lead=(), dtype=torch.float32))
        with Largest() as largest:
            random_feature_attention(q, k, v, pair, is_causal=causal, recompute=True).sum().backward()
        sizes.append(largest.size)
    assert max(sizes) <= max(8192 * 5, functional.ENTRIES, 128 * 128, 128 * 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_mask": torch.zeros(9, 9)}, "attn_mask must be None"),
        ({"query": torch.zeros(9, 3)}, "must share E and S"),
        ({"value": torch.zeros(8, 5, dtype=DOUBLE)}, "must share E and S"),
        ({"query": torch.zeros(9, 4)}, "one dtype"),
        ({"query": torch.zeros(8, 4, dtype=DOUBLE), "is_causal": True}, "as many queries as keys"),
        ({"key": [1.0]}, "key must be a floating-point tensor"),
        ({"query": torch.zeros(3, 9, 4, dtype=DOUBLE), "key": torch.zeros(2, 9, 4, dtype=DOUBLE)}, "must broadcast"),
        ({"key_padding_mask": torch.zeros(8, dtype=torch.bool)}, "must fit the keys"),
        ({"key_padding_mask": torch.zeros(9, dtype=torch.int64)}, "boolean or floating-point"),
        ({"chunk_size": 0}, "chunk_size must be"),
        ({"floor": 0.0}, "floor must be"),
        ({"scale": -1.0}, "scale must be"),
        ({"floor": "a"}, "floor must be"),
        ({"scale": "a"}, "scale must be"),
        ({"key_padding_mask": torch.zeros(1, dtype=torch.bool)}, "must fit the keys"),
        ({"key_padding_mask": torch.zeros(1, 9, dtype=torch.bool)}, "must fit the keys"),
        ({"pair": None}, "FeaturePair"),
        ({"query": torch.zeros(9, 0, dtype=DOUBLE), "key": torch.zeros(9, 0, dtype=DOUBLE)}, "must have columns"),
        ({"pair": softmax.Positive(HeadFrequencies(normals(4, 6, 4), torch.ones(4, 6)))}, "for 4 heads"),
    ],
)
def test_what_is_refused(change, message):
    q, k, v = inputs(lead=())
    arguments = {"query": q, "key": k, "value": v, "pair": softmax.Positive(frequencies()), **change}
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        random_feature_attention(**arguments)
