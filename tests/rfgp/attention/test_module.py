import copy
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from named_options import named
from refusals import refused
from torch import nn

import rfgp
from rfgp import couplings
from rfgp.attention import HeadFrequencies, RandomFeatureAttention
from rfgp.features import softmax

E, H = 16, 4


@pytest.fixture(autouse=True)
def _parameters():
    """torch draws parameters from its global state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def layer(seed=0, **options):
    options = {"num_features": 32, "batch_first": True, "dtype": torch.float64, **options}
    return RandomFeatureAttention(E, H, seed=seed, **options)


def normals(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def exact(like, **options):
    """An exact layer with the parameters of another."""
    other = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64, **options)
    other.load_state_dict({key: value for key, value in like.state_dict().items() if key in other.state_dict()})
    return other


def causal_mask(count):
    return torch.ones(count, count, dtype=torch.bool).triu(1)


VARIANTS = ({}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 10}, {"bias": False})


class TestAgainstTheExactLayer:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("options", VARIANTS, ids=str)
    def test_weights_have_the_zeros_and_sums_of_exact_ones(self, options, causal):
        mine = layer(**options)
        inputs = normals(2, 9, E), normals(2, 9, mine.kdim, seed=1), normals(2, 9, mine.vdim, seed=2)
        hidden = torch.arange(9) > torch.tensor([[8], [5]])
        arguments = {"key_padding_mask": hidden, "attn_mask": causal_mask(9) if causal else None, "is_causal": causal}
        out, weights = mine(*inputs, need_weights=True, average_attn_weights=False, **arguments)
        known = exact(mine, **options)(*inputs, average_attn_weights=False, **arguments)[1]
        assert torch.equal(weights == 0, known == 0)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        torch.testing.assert_close(mine(*inputs, need_weights=True, **arguments)[1], weights.mean(1))
        if not options:  # the output is that of the weights
            values = nn.functional.linear(inputs[2], mine.in_proj_weight[2 * E :], mine.in_proj_bias[2 * E :])
            merged = (weights @ values.unflatten(-1, (H, -1)).transpose(1, 2)).transpose(1, 2).flatten(-2)
            torch.testing.assert_close(mine.out_proj(merged), out)

    @pytest.mark.slow
    @pytest.mark.parametrize("options", VARIANTS, ids=str)
    def test_it_tends_to_it_as_features_grow(self, options):
        """The error falls as 1 / sqrt(F): by 4 for 16 times as many, give or take what 12 draws leave open."""
        mine = layer(**options)
        inputs = 0.3 * normals(2, 12, E), 0.3 * normals(2, 12, mine.kdim, seed=1), normals(2, 12, mine.vdim, seed=2)
        other = exact(mine, **options)

        @torch.no_grad()
        def error(count, seed):
            drawn = layer(seed, num_features=count, coupling="iid", **options)
            drawn.load_state_dict(other.state_dict())
            return float((drawn(*inputs)[0] - other(*inputs)[0]).square().mean())

        few, many = (np.mean([error(count, seed) for seed in range(12)]) ** 0.5 for count in (32, 512))
        assert 2.5 < few / many < 6.5

    def test_a_trained_exact_layer_is_loaded(self):
        other = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
        mine = layer()
        draw = mine.frequencies.clone()
        assert not mine.load_state_dict(other.state_dict()).missing_keys
        assert torch.equal(mine.in_proj_weight, other.in_proj_weight)
        assert torch.equal(mine.frequencies, draw)
        refused(lambda: mine.load_state_dict({"in_proj_weight": other.in_proj_weight}), RuntimeError, "Missing key")

    def test_layouts(self):
        first, second = layer(), layer(batch_first=False)
        second.load_state_dict(first.state_dict())
        inputs, hidden = [normals(3, n, E, seed=n) for n in (5, 7, 7)], torch.arange(7) > 4
        out = first(*inputs, hidden.expand(3, 7))[0]
        moved = second(*(x.transpose(0, 1) for x in inputs), hidden.expand(3, 7))[0]
        torch.testing.assert_close(moved.transpose(0, 1), out)
        alone, weights = second(*(x[1] for x in inputs), hidden, need_weights=True)
        torch.testing.assert_close(alone, out[1])
        assert weights.shape == (5, 7)

    def test_it_stays_itself_in_an_encoder(self):
        """torch's layers have a fast path for evaluation, exact and without a call of `forward`."""
        encoder = nn.TransformerEncoderLayer(E, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
        encoder.self_attn = layer()
        x, hidden = normals(2, 9, E), torch.arange(9).expand(2, 9) > 6
        trained = encoder(x, src_key_padding_mask=hidden)
        encoder.eval()
        with torch.no_grad():
            torch.testing.assert_close(encoder(x, src_key_padding_mask=hidden), trained)
            causal = [encoder(x, src_mask=causal_mask(9), is_causal=known) for known in (False, True)]
        torch.testing.assert_close(*causal)


class TestMasks:
    def test_the_causal_one_in_all_forms(self):
        mine, wanted, x = layer(), layer(causal=True), normals(2, 9, E)
        wanted.load_state_dict(mine.state_dict())

        def masked(mask, **options):
            return mine(x, x, x, attn_mask=mask, **options)[0]

        float_mask = nn.Transformer.generate_square_subsequent_mask(9)
        found = [masked(m, is_causal=True) for m in (None, causal_mask(9), float_mask, float_mask.expand(2 * H, 9, 9))]
        assert all(torch.equal(out, wanted(x, x, x)[0]) for out in (*found, masked(causal_mask(9))))
        assert torch.equal(masked(torch.zeros(9, 9)), masked(None))
        assert not torch.equal(masked(None), found[0])

    def test_numbers_added_to_scores_of_keys(self):
        """The logarithm of 2 counts a key twice."""
        mine, x = layer(), normals(2, 9, E)
        twice = torch.zeros(2, 9, dtype=torch.float64)
        twice[:, 3], twice[:, 7] = np.log(2.0), -torch.inf
        other = torch.cat([x[:, :7], x[:, 3:4], x[:, 8:]], 1)
        torch.testing.assert_close(mine(x, x, x, twice)[0], mine(x, other, other)[0])


class TestDraws:
    def test_each_head_has_its_own(self):
        drawn = layer(3).frequencies
        assert drawn.shape == (H, 32, E // H)
        assert len(drawn.flatten(1).unique(dim=0)) == H
        assert torch.equal(drawn, layer(3).frequencies)
        assert len({layer(seed).frequencies[0, 0, 0].item() for seed in (3, 4, None, None)}) == 4

    @pytest.mark.slow
    def test_a_saved_layer_gives_the_same_and_goes_on_alike(self):
        options = {"redraw_interval": 2, "coupling": couplings.Energy("laplace", weighted=True)}
        first, second, x = layer(1, **options), layer(2, **options), normals(2, 9, E)
        for _ in range(3):
            first(x, x, x)
        saved = safetensors.torch.save({key: value.contiguous() for key, value in first.state_dict().items()})
        second.load_state_dict(safetensors.torch.load(saved))
        assert (second.seed, second.num_draws) == (1, 1)
        for _ in range(4):
            assert torch.equal(first(x, x, x)[0], second(x, x, x)[0])
        assert first.num_draws == 3

    def test_the_schedule(self):
        mine, x, draws = layer(redraw_interval=3), normals(2, 9, E), []
        for step in range(10):
            mine.train(step < 7)
            mine(x, x, x)
            draws.append(mine.num_draws)
        assert draws == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
        fresh = layer()
        for _ in range(2):
            fresh.redraw()
        assert torch.equal(mine.frequencies, fresh.frequencies)

    def test_a_redraw_leaves_gradients_of_earlier_calls_alone(self):
        mine, x = layer(), normals(2, 200, E)
        one, other = (mine(x, x, x, is_causal=True)[0].square().sum() for _ in range(2))
        alone = torch.autograd.grad(one, mine.in_proj_weight)[0]
        mine.redraw()
        torch.testing.assert_close(torch.autograd.grad(other, mine.in_proj_weight)[0], alone)


class TestFeatures:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(
        ("name", "count", "error"),
        [("trigonometric", 2048, 0.05), ("hybrid", 2160, 0.1), ("hybrid-one-sign", 1620, 0.1)],
    )
    def test_each_is_near_the_exact_layer(self, name, count, error, causal):
        mine, x = layer(features=name, num_features=count), 0.5 * normals(2, 9, E)
        out = mine(x, x, x, is_causal=causal)[0]
        wanted = exact(mine)(x, x, x, attn_mask=causal_mask(9) if causal else None)[0]
        assert (out - wanted).abs().max() < error
        assert mine.pair.num_features == count
        assert (float(mine.low_share), layer().low_share) == (0, None)
        other = layer(9, features=name, num_features=count)
        other.load_state_dict(mine.state_dict())
        assert torch.equal(other(x, x, x, is_causal=causal)[0], out)

    def test_low_normalizers_issue_a_warning(self):
        mine, x = layer(features="trigonometric", num_features=4, floor=0.1), 8 * normals(2, 30, E)
        with pytest.warns(rfgp.PoorFeaturesWarning, match="above their floor"):
            out = mine(x, x, x)[0]
        assert torch.isfinite(out).all()
        assert 0 < float(mine.low_share) < 1
        mine(*[x[:, :0]] * 3)
        assert float(mine.low_share) == 0


class TestAModuleOfTorch:
    @pytest.mark.slow
    def test_compiled_in_one_graph(self):
        torch.compiler.reset()
        mine, x = layer(chunk_size=4, recompute=True), normals(2, 7, E)
        outs = [
            call(x, x, x, is_causal=True)[0]
            for call in (torch.compile(mine, backend="aot_eager", fullgraph=True), mine)
        ]
        torch.testing.assert_close(*outs)
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), mine.in_proj_weight)[0] for out in outs))

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
    def test_shorter_types(self, dtype, tolerance):
        mine, x = layer(dtype=torch.float32), normals(2, 40, E, dtype=torch.float32)
        short = copy.deepcopy(mine).to(dtype)
        assert short.frequencies.dtype == torch.float32
        with torch.autocast("cpu", dtype):
            mixed = mine(x, x, x)[0]
        for out in (mixed, short(*(3 * [x.to(dtype)]))[0]):
            assert out.dtype == dtype
            torch.testing.assert_close(out.float(), mine(x, x, x)[0], rtol=0, atol=tolerance)

    @pytest.mark.slow
    def test_dropout_is_right_on_average(self):
        mine, x = layer(dropout=0.3, dtype=torch.float32), normals(1, 9, E, dtype=torch.float32)
        many = x.expand(2000, -1, -1)
        outs = mine(many, many, many, is_causal=True)[0].detach()[:, None]
        mine.eval()
        z = (outs.mean(0) - mine(x, x, x, is_causal=True)[0].detach()) / outs.std(0) * 2000**0.5
        assert z.abs().max() < 5.5
        assert torch.equal(mine(x, x, x)[0], mine(x, x, x)[0])


def first_only(drawn):
    return softmax.Positive(drawn, "gaussian")


class TestCheckpoints:
    @pytest.mark.parametrize("reentrant", [False, True])
    def test_recomputation_uses_the_draw_of_the_first_run(self, reentrant):
        plain, again, x = layer(redraw_interval=1), layer(redraw_interval=1), normals(2, 9, E).requires_grad_()
        again.load_state_dict(plain.state_dict())
        for _ in range(3):
            wanted = torch.autograd.grad(plain(x, x, x)[0].square().sum(), x)[0]
            out = torch.utils.checkpoint.checkpoint(lambda y: again(y, y, y)[0], x, use_reentrant=reentrant)
            x.grad = None
            out.square().sum().backward()
            torch.testing.assert_close(x.grad, wanted)
        assert plain.num_draws == again.num_draws == 2


class TestWhatIsGiven:
    @pytest.mark.parametrize(("features", "dtype"), [("positive", torch.bfloat16), ("hybrid", torch.float32)])
    def test_made_without_memory(self, features, dtype):
        options = {"features": features, "dtype": dtype, "num_features": 36}
        wanted, mine = layer(**options), layer(device="meta", **options)
        mine.to_empty(device="cpu").load_state_dict({k: v for k, v in wanted.state_dict().items() if "proj" in k})
        for name, buffer in wanted.named_buffers():
            assert torch.equal(mine.get_buffer(name), buffer)
            assert buffer.dtype == torch.float32
        again = layer(redraw_interval=1, device="meta", dtype=dtype)
        again.redraw()
        assert not torch.equal(again.to_empty(device="cpu").frequencies, layer(dtype=dtype).frequencies)

    @pytest.mark.parametrize("features", ["trigonometric", "hybrid", first_only])
    def test_pickled(self, features):
        mine, x = layer(features=features, num_features=36), 0.1 * normals(2, 9, E)
        assert torch.equal(pickle.loads(pickle.dumps(mine))(x, x, x)[0], mine(x, x, x)[0])


class TestLoads:
    @pytest.mark.parametrize("wrong", ["weights", "_extra_state", "in_proj_bias"])
    def test_a_refused_one_leaves_the_draw(self, wrong):
        mine, other = layer(0), layer(1, redraw_interval=1)
        draw, state = mine.frequencies.clone(), other.state_dict()
        state[wrong] = state[wrong][..., :-1]
        refused(lambda: mine.load_state_dict(state), RuntimeError, wrong)
        assert (mine.seed, mine.num_draws) == (0, 0)
        assert torch.equal(mine.frequencies, draw)


class TestHeads:
    def test_pairs_of_heads_are_served_and_plain_ones_refused(self):
        def with_features(make):
            return layer(features=make, num_features=4, coupling="iid")

        def plain(drawn):
            return softmax.Positive(couplings.Frequencies.paired(drawn.dense(), drawn.weights))

        refused(lambda: with_features(plain), rfgp.InvalidArgumentError, "of 4 heads")
        mine = with_features(lambda drawn: softmax.Positive(drawn.with_negatives()))
        assert mine.pair.num_features == 8
        assert torch.isfinite(mine(*[normals(2, 9, E)] * 3)[0]).all()
        paired = HeadFrequencies(normals(H, 3, 4), normals(H, 3).exp()).with_negatives()
        assert torch.equal(paired.dense()[:, ::2], -paired.dense()[:, 1::2])

    @pytest.mark.filterwarnings("ignore:.*nested tensors")
    def test_nested_tensors(self):
        one = nn.TransformerEncoderLayer(E, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
        encoder = nn.TransformerEncoder(one, 2).eval()
        for number, block in enumerate(encoder.layers):
            block.self_attn = layer(number)
        x, hidden = normals(2, 9, E), torch.arange(9) > torch.tensor([[5], [8]])
        with torch.no_grad():
            word = "use_nested_tensor = False"
            refused(lambda: encoder(x, src_key_padding_mask=hidden), rfgp.InvalidArgumentError, word)
            encoder.use_nested_tensor = False
            out = encoder(x, src_key_padding_mask=hidden)
            torch.testing.assert_close(out[:1, :6], encoder(x[:1, :6]))


X, STATE = normals(2, 9, E), torch.bool
BAD = {"num_heads": 3, "embed_dim": 0, "num_features": 0, "features": "linear", "redraw_interval": 0, "chunk_size": 0}


def made(**options):
    return RandomFeatureAttention(**{"embed_dim": 8, "num_heads": 2, **options})


MADE = [
    *named(made, **BAD, floor=2.0),
    (lambda: made(num_features=31), "even"),
    (lambda: made(features="hybrid", coupling="iid-antithetic"), "antithetic"),
    (lambda: made(features=lambda _: None), "FeaturePair"),
    (lambda: made(features=softmax.Trigonometric, coupling="iid"), 'kernel="gaussian"'),
]
CALLED = [
    *(("causal mask", {"attn_mask": mask}) for mask in (causal_mask(9).triu(2), normals(9, 9))),
    ("causal mask", {"attn_mask": causal_mask(9).mT, "is_causal": True}),
    *(("attn_mask", {"attn_mask": torch.zeros(*shape, dtype=STATE)}) for shape in ((12, 12), (2, 9, 9))),
    ("boolean", {"attn_mask": torch.zeros(9, 9, dtype=torch.int64)}),
    ("3 dimensions", {"query": X[0]}),
    ("fit the keys", {"key_padding_mask": torch.zeros(1, 9, dtype=STATE)}),
    ("one batch size", {"key": X[:1], "value": X[:1]}),
    ("one length", {"key": X[:, :8]}),
    ("as many queries as keys", {"key": X[:, :8], "value": X[:, :8], "is_causal": True}),
]


@pytest.mark.parametrize(("call", "word"), MADE)
def test_bad_options_of_a_layer_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)


@pytest.mark.parametrize("wrong", [{"chunk_size": 0}, {"floor": 1.0}])
def test_bad_numbers_are_named_before_anything_is_drawn(wrong):
    before = torch.get_rng_state()
    refused(lambda: made(**wrong), rfgp.InvalidArgumentError, *wrong)
    assert torch.equal(torch.get_rng_state(), before)


def test_bad_calls_are_named_and_count_as_none():
    mine = layer(redraw_interval=1)
    mine(X, X, X)
    for word, options in CALLED:
        arguments = {"query": X, "key": X, "value": X, **options}
        refused(lambda given=arguments: mine(**given), rfgp.InvalidArgumentError, word)
    long = torch.zeros(1, 1, E, dtype=torch.float64).expand(1, 2**13 + 1, E)
    refused(lambda: mine(long, long, long, need_weights=True), rfgp.InvalidArgumentError, "need_weights=False")
    assert mine.get_extra_state().tolist() == [0, 0, 1, 1]
