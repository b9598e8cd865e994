import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from torch.utils._python_dispatch import TorchDispatchMode

import rfgp
from rfgp import couplings
from rfgp.attention import HeadFrequencies, random_feature_attention
from rfgp.features import softmax

DOUBLE = torch.float64
KINDS = ("softmax", "gaussian")


def normals(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(dtype)


TYPES = (DOUBLE, torch.float32, torch.float16, torch.bfloat16)


def frequencies(m=12, d=4, name="iid", **options):
    return couplings.by_name(name, **options).sample(m, d, seed=7)


def inputs(L=9, S=9, lead=(2, 3), E=4, Ev=5, size=1.0, dtype=DOUBLE):
    shapes = (*lead, L, E), (*lead, S, E), (*lead, S, Ev)
    scales = size, size, 1.0
    return tuple((a * normals(*s, seed=i)).to(dtype) for i, (s, a) in enumerate(zip(shapes, scales, strict=True)))


def dense(q, k, v, drawn, hidden=None, causal=False, scale=None, bias=None):
    """Form the scores (L, S) of positive features in the logarithm, and normalize them; numpy and float64."""
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


class TestDense:
    """Positive features equal the dense attention of their definition."""

    @pytest.mark.parametrize("kernel", KINDS)
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(("count", "chunks"), [(1, (1, 8)), (7, (3,)), (8, (8, 3)), (33, (1, 8, 128))])
    def test_any_number_of_tokens(self, count, chunks, causal, kernel):
        for chunk_size in chunks:
            check_twin(*inputs(count, count), frequencies(), causal=causal, kernel=kernel, chunk_size=chunk_size)

    @pytest.mark.parametrize("causal", [False, True])
    def test_masks_of_keys(self, causal):
        """Hidden keys, numbers that are added to scores, and both in one."""
        hidden = torch.zeros(2, 1, 20, dtype=torch.bool)
        hidden[0, :, 13:], hidden[1, :, ::3] = True, True
        check_twin(*inputs(20, 20), frequencies(), hidden.expand(2, 3, 20), causal, chunk_size=4)
        (q, k, v), pair, bias = inputs(20, 20), softmax.Positive(frequencies()), normals(20, seed=5)
        options = {"is_causal": causal, "chunk_size": 4}
        one, other, both = (
            random_feature_attention(q, k, v, pair, key_padding_mask=mask, **options)
            for mask in (hidden, torch.zeros(hidden.shape, dtype=DOUBLE).masked_fill(hidden, -torch.inf), bias)
        )
        assert torch.equal(one, other)
        np.testing.assert_allclose(both, dense(q, k, v, frequencies(), causal=causal, bias=bias), atol=1e-12)

    def test_many_blocks(self):
        """With 4,096 features a block has 128 keys or queries."""
        for L, S in ((2, 300), (300, 2)):
            check_twin(*inputs(L, S, lead=()), frequencies(4096))

    @pytest.mark.parametrize("name", ["structured", "simplex", "energy-antithetic", "sobol-antithetic", "adapted"])
    def test_couplings(self, name):
        check_twin(*inputs(), frequencies(8, 4, name), causal=True, chunk_size=4)

    def test_cross_attention_shapes_and_scales(self):
        check_twin(*inputs(3, 17, lead=()), frequencies())
        check_twin(*inputs(17, 3, lead=(4,)), frequencies(), scale=0.9)
        check_twin(*inputs(5, 5, lead=(2, 1, 2), Ev=1), frequencies(m=1), causal=True, chunk_size=2)
        q, k, v = inputs(4, 6, lead=(2, 3))
        got = random_feature_attention(q, k[:, :1], v[:1], softmax.Positive(frequencies()))
        np.testing.assert_allclose(got, dense(q, k[:, :1], v[:1], frequencies()), atol=1e-12)

    def test_heads_with_draws_of_their_own(self):
        q, k, v = inputs(lead=(2, 3))
        matrix, weights = normals(3, 6, 4, seed=9), normals(3, 6, seed=10).exp()
        got = random_feature_attention(q, k, v, softmax.Positive(HeadFrequencies(matrix, weights)), is_causal=True)
        for head in range(3):
            drawn = couplings.Frequencies(matrix[head], weights[head])
            wanted = dense(q[:, head], k[:, head], v[:, head], drawn, causal=True)
            np.testing.assert_allclose(got[:, head], wanted, atol=1e-12)


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
    signs = softmax.coefficients.Angular(couplings.by_name("iid").sample(4, 4, seed=3))
    return softmax.bipolar(frequencies(m, name="orthogonal"), signs, antithetic=True, kernel=kernel)


class TestCausal:
    @pytest.mark.parametrize(
        ("size", "at", "dtype"),
        [(2.0, 1, DOUBLE), (40.0, 16, torch.float32), (40.0, 21, DOUBLE), (1e4, 39, torch.float32)],
    )
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
    @pytest.mark.parametrize("rubbish", [1e30, float("inf"), float("nan")])
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
        q, k, v = (x.requires_grad_() for x in inputs(6, 6, size=0.5))
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


class TestWhatIsNotFinite:
    """It is in every row that sees it, and in no other."""

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("name", ["key", "value", "query", "mask"])
    @pytest.mark.parametrize(("kind", "rubbish"), [("positive", math.inf), ("signed", math.nan)])
    def test_one_token(self, kind, name, causal, rubbish):
        signed = softmax.Trigonometric(frequencies(900), "gaussian")
        pair = signed if kind == "signed" else softmax.Positive(frequencies())
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
    @pytest.mark.parametrize(
        ("kind", "causal", "recompute"),
        [
            pytest.param("positive", False, True, marks=pytest.mark.slow),
            pytest.param("positive", True, False),
            pytest.param("gaussian", False, False, marks=pytest.mark.slow),
            pytest.param("signed", True, True, marks=pytest.mark.slow),
            pytest.param("signed", False, False),
            pytest.param("hybrid", True, False, marks=pytest.mark.slow),
            pytest.param("hybrid", False, False, marks=pytest.mark.slow),
        ],
    )
    def test_they_are_those_of_differences(self, kind, causal, recompute):
        hidden = torch.tensor([False, False, True, False, False])
        signs = softmax.coefficients.Angular(frequencies(3, 2))

        def call(q, k, v, matrix):
            drawn = couplings.Frequencies(matrix, torch.tensor([0.5, 1.5, 0.8, 1.2], dtype=DOUBLE))
            kernel = "softmax" if kind == "positive" else "gaussian"
            pair = {
                "signed": lambda: softmax.Trigonometric(drawn, kernel),
                "hybrid": lambda: softmax.bipolar(drawn, signs, antithetic=True, kernel=kernel),
            }.get(kind, lambda: softmax.Positive(drawn, kernel))()
            options = {"is_causal": causal, "chunk_size": 2, "recompute": recompute}
            return random_feature_attention(q, k, v, pair, key_padding_mask=hidden, **options)

        q, k, v = (x.requires_grad_() for x in inputs(5, 5, lead=(), E=2, Ev=2, size=0.5))
        assert torch.autograd.gradcheck(call, (q, k, v, normals(4, 2, seed=3).requires_grad_()))

    def test_the_past_has_no_gradient_in_the_future(self):
        q, k, v = (x.requires_grad_() for x in inputs(40, 40))
        out = random_feature_attention(q, k, v, softmax.Positive(frequencies()), is_causal=True, chunk_size=16)
        out[..., :21, :].square().sum().backward()
        for x in (q, k, v):
            assert (x.grad[..., 21:, :] == 0).all()
            assert (x.grad[..., :21, :] != 0).any()


class TestPrecision:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("size", [5.0, 60.0])
    def test_large_scores(self, size, causal):
        """Scores of several hundred and of several thousand; float32 has an error of eps times them."""
        q, k, v = inputs(60, 60, size=size)
        check_twin(q, k, v, frequencies(64), causal=causal, chunk_size=16, tolerance=1e-8)
        q, k, v = (x.requires_grad_() for x in inputs(60, 60, size=size, dtype=torch.float32))
        for key in (k, -q):
            found = random_feature_attention(q, key, v, softmax.Positive(frequencies(64)), is_causal=causal)
            wanted = dense(q, key, v, frequencies(64), causal=causal)
            np.testing.assert_allclose(found.detach(), wanted, atol=2e-2)
            assert (found.abs() > 0).any(-1).all()
            gradients = torch.autograd.grad(found.sum(), (q, v))
            assert all(torch.isfinite(x).all() for x in gradients)

    @pytest.mark.slow
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


class TestSigned:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(
        ("kind", "dtype", "tolerance"),
        [
            ("trigonometric", DOUBLE, 1e-10),
            ("hybrid", DOUBLE, 1e-10),
            ("hybrid", torch.float32, 1e-4),
            ("hybrid", torch.bfloat16, 4e-2),
        ],
    )
    def test_it_equals_the_dense_one(self, kind, dtype, tolerance, causal):
        """Scores by the same estimator of the other kernel, in float64."""
        q, k, v = inputs(20, 20, size=0.5, dtype=dtype)
        hidden = torch.zeros(2, 1, 20, dtype=torch.bool)
        hidden[0, :, 13:], hidden[1, :, 1::3] = True, True
        mine, other = (
            hybrid(kernel) if kind == "hybrid" else softmax.Trigonometric(frequencies(400), kernel)
            for kernel in ("gaussian", "softmax")
        )
        options = {"key_padding_mask": hidden, "is_causal": causal, "chunk_size": 8}
        got = random_feature_attention(q, k, v, mine, **options)
        scores = other(q.double() / 2**0.5, k.double() / 2**0.5).masked_fill(hidden[..., None, :], 0)
        scores = scores.tril() if causal else scores
        wanted = scores @ v.double() / scores.sum(-1, keepdim=True)
        np.testing.assert_allclose(got.double(), wanted, rtol=0, atol=tolerance)

    def test_features_that_overflow_are_refused(self):
        with pytest.raises(rfgp.InvalidArgumentError, match='kernel="gaussian"'):
            random_feature_attention(*inputs(), softmax.Trigonometric(frequencies()))


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


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_grows_faster_than_the_inputs(causal):
    pair = softmax.Positive(frequencies(64, 4))
    sizes = []
    for count in (2048, 8192):
        q, k, v = (x.requires_grad_() for x in inputs(count, count, lead=(), dtype=torch.float32))
        with Largest() as largest:
            random_feature_attention(q, k, v, pair, is_causal=causal, recompute=True).sum().backward()
        sizes.append(largest.size)
    assert max(sizes) <= 2**19


ZEROS = torch.zeros(3, 9, 4, dtype=DOUBLE)


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("attn_mask", {"attn_mask": torch.zeros(9, 9)}),
        ("share E and S", {"query": torch.zeros(9, 3)}),
        ("share E and S", {"value": torch.zeros(8, 5, dtype=DOUBLE)}),
        ("one dtype", {"query": torch.zeros(9, 4)}),
        ("as many", {"query": torch.zeros(8, 4, dtype=DOUBLE), "is_causal": True}),
        ("columns", {"query": torch.zeros(9, 0, dtype=DOUBLE), "key": torch.zeros(9, 0, dtype=DOUBLE)}),
        ("key must", {"key": [1.0]}),
        ("broadcast", {"query": ZEROS, "key": ZEROS[:2]}),
        *(("fit the keys", {"key_padding_mask": torch.zeros(*s, dtype=torch.bool)}) for s in ((8,), (1,), (1, 9))),
        ("boolean", {"key_padding_mask": torch.zeros(9, dtype=torch.int64)}),
        ("chunk_size", {"chunk_size": 0}),
        *(("floor", {"floor": value}) for value in (0.0, "a")),
        *(("scale", {"scale": value}) for value in (-1.0, "a")),
        ("FeaturePair", {"pair": None}),
        ("4 heads", {"pair": softmax.Positive(HeadFrequencies(normals(4, 6, 4), torch.ones(4, 6)))}),
    ],
)
def test_bad_arguments_are_named(word, change):
    q, k, v = inputs(lead=())
    arguments = {"query": q, "key": k, "value": v, "pair": softmax.Positive(frequencies()), **change}
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        random_feature_attention(**arguments)
