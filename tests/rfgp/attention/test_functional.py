import math

import numpy as np
import pytest
import torch
from refusals import refused
from torch.utils._python_dispatch import TorchDispatchMode

import rfgp
from rfgp import couplings
from rfgp.attention import HeadFrequencies, random_feature_attention
from rfgp.features import softmax

DOUBLE = torch.float64
KINDS = ("softmax", "gaussian")


def normals(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(dtype)


def frequencies(m=12, d=4, name="iid", **options):
    return couplings.by_name(name, **options).sample(m, d, seed=7)


def inputs(L=9, S=9, lead=(2, 3), E=4, Ev=5, size=1.0, dtype=DOUBLE):
    q, k, v = (normals(*lead, *shape, seed=i) for i, shape in enumerate(((L, E), (S, E), (S, Ev))))
    return tuple(x.to(dtype) for x in (size * q, size * k, v))


def dense(q, k, v, drawn, hidden=None, causal=False, scale=None, bias=0.0):
    """Form the scores (L, S) of positive features in the logarithm, and normalize them, in float64."""
    q, k, v = (x.detach().double() for x in (q, k, v))
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    left, right = (root * x @ drawn.dense().T - 0.5 * (root * x).square().sum(-1, keepdim=True) for x in (q, k))
    logs = (left[..., :, None, :] + right[..., None, :, :] + drawn.weights.log()).logsumexp(-1) + bias
    if hidden is not None:
        logs = logs.masked_fill(hidden[..., None, :], -math.inf)
    if causal:
        logs = logs.masked_fill(torch.ones(logs.shape[-2:]).triu(1).bool(), -math.inf)
    return (logs.softmax(-1).nan_to_num() @ v).numpy()  # zeros if a query sees no key


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
        each = torch.from_numpy(np.random.default_rng(0).random((2, 3, 20)) < 0.7)
        check_twin(*inputs(20, 20), frequencies(), each, causal, "gaussian")
        (q, k, v), pair, bias = inputs(20, 20), softmax.Positive(frequencies()), normals(20, seed=5)
        one, other, both = (
            random_feature_attention(q, k, v, pair, key_padding_mask=mask, is_causal=causal, chunk_size=4)
            for mask in (hidden, torch.zeros(hidden.shape, dtype=DOUBLE).masked_fill(hidden, -torch.inf), bias)
        )
        assert torch.equal(one, other)
        np.testing.assert_allclose(both, dense(q, k, v, frequencies(), causal=causal, bias=bias), atol=1e-12)

    def test_many_blocks(self):
        """With 4,096 features a block has 128 keys or queries."""
        for L, S in ((2, 300), (300, 2)):
            check_twin(*inputs(L, S, lead=()), frequencies(4096))

    def test_cross_attention_shapes_and_scales(self):
        check_twin(*inputs(3, 17, lead=()), frequencies())
        check_twin(*inputs(17, 3, lead=(4,)), frequencies(), scale=0.9)
        check_twin(*inputs(5, 5, lead=(2, 1, 2), Ev=1), frequencies(m=1), causal=True, chunk_size=2)
        for L, S in ((0, 4), (4, 0)):
            check_twin(*inputs(L, S), frequencies())
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


def hybrid(kernel, m=200):
    """The angular hybrid with both signs of its positive part."""
    signs = softmax.coefficients.Angular(couplings.by_name("iid").sample(4, 4, seed=3))
    return softmax.bipolar(frequencies(m, name="orthogonal"), signs, antithetic=True, kernel=kernel)


PAIRS = {
    "positive": lambda: softmax.Positive(frequencies()),
    "trigonometric": lambda: softmax.Trigonometric(frequencies(900), "gaussian"),
    "hybrid": lambda: hybrid("gaussian"),
}


class TestCausal:
    @pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
    @pytest.mark.parametrize("kind", PAIRS)
    @pytest.mark.parametrize(
        ("size", "at", "dtype"),
        [(2.0, 1, DOUBLE), (40.0, 16, torch.float32), (40.0, 21, DOUBLE), (1e4, 39, torch.float32)],
    )
    def test_the_future_leaves_the_past_as_it_is(self, kind, size, at, dtype):
        """The outputs before a change are the same to the bit."""
        q, k, v = inputs(40, 40, lead=(2,), dtype=dtype)
        outputs = []
        for factor in (1.0, -size, size):
            changed = [torch.cat([x[:, :at], factor * x[:, at:]], 1) for x in (q, k, v)]
            outputs.append(random_feature_attention(*changed, PAIRS[kind](), is_causal=True, chunk_size=16)[:, :at])
        assert torch.equal(outputs[0], outputs[1])
        assert torch.equal(outputs[0], outputs[2])


class TestPadding:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("rubbish", [1e30, float("nan")])
    def test_padded_values_have_no_effect(self, causal, rubbish):
        (q, k, v), hidden = inputs(20, 20, dtype=torch.float32), torch.arange(20) % 4 == 1

        def attend(k, v):
            options = {"key_padding_mask": hidden, "is_causal": causal, "chunk_size": 8}
            return random_feature_attention(q, k, v, PAIRS["positive"](), **options)

        clean = attend(k, v)
        k, v = (x.masked_fill(hidden[:, None], rubbish).requires_grad_() for x in (k, v))
        again = attend(k, v)
        assert torch.equal(clean, again)
        again.square().sum().backward()
        for x in (k, v):
            assert torch.isfinite(x.grad).all()
            assert (x.grad[..., hidden, :] == 0).all()

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("kind", ["positive", "trigonometric"])
    def test_no_key_gives_zero(self, causal, kind):
        (q, k, v), pair = (x.requires_grad_() for x in inputs(6, 6, size=0.5)), PAIRS[kind]()
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
    @pytest.mark.parametrize("name", ["key", "value", "query", "key_padding_mask"])
    @pytest.mark.parametrize(("kind", "rubbish"), [("positive", math.inf), ("trigonometric", math.nan)])
    def test_one_token(self, kind, name, causal, rubbish):
        arguments = dict(zip(("query", "key", "value"), inputs(20, 20, lead=()), strict=True))
        arguments["key_padding_mask"] = torch.zeros(20, dtype=DOUBLE)
        arguments[name][9] = rubbish
        out = random_feature_attention(**arguments, pair=PAIRS[kind](), is_causal=causal, chunk_size=8).isfinite()
        rows = torch.arange(20)
        wanted = rows == 9 if name == "query" else (rows >= 9 if causal else rows >= 0)
        assert torch.equal(~out.all(-1), wanted)
        assert torch.equal(~out.any(-1), wanted)

    @pytest.mark.parametrize("causal", [False, True])
    def test_padding_before_large_queries(self, causal):
        """exp(log l) of a query that has seen no key overflows; it is not needed."""
        pair, q = softmax.Positive(torch.ones(1, 256)), torch.full((1, 2, 256), 4.0).requires_grad_()
        options = {"is_causal": causal, "key_padding_mask": torch.tensor([[True, False]])}
        out = random_feature_attention(q, torch.zeros(1, 2, 256), torch.ones(1, 2, 1), pair, **options)
        assert out.flatten().tolist() == [0.0 if causal else 1.0, 1.0]
        out.sum().backward()
        assert (q.grad == 0).all()


@pytest.mark.parametrize(
    ("kind", "causal", "recompute"),
    [
        pytest.param("gaussian", False, True, marks=pytest.mark.slow),
        ("positive", True, False),
        pytest.param("signed", True, True, marks=pytest.mark.slow),
        ("signed", False, False),
        pytest.param("hybrid", True, False, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_differences(kind, causal, recompute):
    hidden, signs = torch.arange(5) == 2, softmax.coefficients.Angular(frequencies(3, 2))
    kernel = "softmax" if kind == "positive" else "gaussian"
    makers = {
        "signed": softmax.Trigonometric,
        "hybrid": lambda drawn, kernel: softmax.bipolar(drawn, signs, antithetic=True, kernel=kernel),
    }

    def call(q, k, v, matrix):
        drawn = couplings.Frequencies(matrix, torch.tensor([0.5, 1.5, 0.8, 1.2], dtype=DOUBLE))
        pair = makers.get(kind, softmax.Positive)(drawn, kernel)
        options = {"is_causal": causal, "chunk_size": 2, "recompute": recompute}
        return random_feature_attention(q, k, v, pair, key_padding_mask=hidden, **options)

    q, k, v = (x.requires_grad_() for x in inputs(5, 5, lead=(), E=2, Ev=2, size=0.5))
    assert torch.autograd.gradcheck(call, (q, k, v, normals(4, 2, seed=3).requires_grad_()))


class TestPrecision:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("size", [5.0, 60.0])
    def test_large_scores(self, size, causal):
        """Scores of several hundred and of several thousand; float32 has an error of eps times them."""
        drawn = frequencies(64)
        check_twin(*inputs(60, 60, size=size), drawn, causal=causal, chunk_size=16, tolerance=1e-8)
        q, k, v = (x.requires_grad_() for x in inputs(60, 60, size=size, dtype=torch.float32))
        for key in (k, -q):
            found = random_feature_attention(q, key, v, softmax.Positive(drawn), is_causal=causal)
            np.testing.assert_allclose(found.detach(), dense(q, key, v, drawn, causal=causal), atol=2e-2)
            assert (found.abs() > 0).any(-1).all()
            assert all(torch.isfinite(x).all() for x in torch.autograd.grad(found.sum(), (q, v)))

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
        options = {"key_padding_mask": hidden, "is_causal": causal, "chunk_size": 8}
        got = random_feature_attention(q, k, v, PAIRS[kind](), **options)
        other = hybrid("softmax") if kind == "hybrid" else softmax.Trigonometric(frequencies(900))
        scores = other(q.double() / 2**0.5, k.double() / 2**0.5).masked_fill(hidden[..., None, :], 0)
        scores = scores.tril() if causal else scores
        wanted = scores @ v.double() / scores.sum(-1, keepdim=True)
        np.testing.assert_allclose(got.double(), wanted, rtol=0, atol=tolerance)

    def test_features_that_overflow_are_refused(self):
        pair = softmax.Trigonometric(frequencies())
        refused(lambda: random_feature_attention(*inputs(), pair), rfgp.InvalidArgumentError, 'kernel="gaussian"')


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
    q, k, v = (x.requires_grad_() for x in inputs(8192, 8192, lead=(), dtype=torch.float32))
    pair = softmax.Positive(frequencies(64, 4))
    with Largest() as largest:
        random_feature_attention(q, k, v, pair, is_causal=causal, recompute=True).sum().backward()
    assert largest.size <= 2**19


ZEROS = torch.zeros(3, 9, 4, dtype=DOUBLE)


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("attn_mask", {"attn_mask": torch.zeros(9, 9)}),
        ("share E and S", {"query": torch.zeros(9, 3)}),
        ("one dtype", {"query": torch.zeros(9, 4)}),
        ("as many", {"query": torch.zeros(8, 4, dtype=DOUBLE), "is_causal": True}),
        ("broadcast", {"query": ZEROS, "key": ZEROS[:2]}),
        ("fit the keys", {"key_padding_mask": torch.zeros(1, dtype=torch.bool)}),
        ("chunk_size", {"chunk_size": 0}),
        ("floor", {"floor": 0.0}),
        ("FeaturePair", {"pair": None}),
        ("4 heads", {"pair": softmax.Positive(HeadFrequencies(normals(4, 6, 4), torch.ones(4, 6)))}),
    ],
)
def test_bad_arguments_are_named(word, change):
    q, k, v = inputs(lead=())
    arguments = {"query": q, "key": k, "value": v, "pair": softmax.Positive(frequencies()), **change}
    refused(lambda: random_feature_attention(**arguments), rfgp.InvalidArgumentError, word)
