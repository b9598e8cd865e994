import copy
import io
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
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
    names = ("add_bias_kv", "add_zero_attn", "kdim", "vdim", "bias")
    chosen = {name: options[name] for name in names if name in options}
    other = nn.MultiheadAttention(E, H, batch_first=like.batch_first, dtype=torch.float64, **chosen)
    mine = {key: value for key, value in like.state_dict().items() if key in other.state_dict()}
    other.load_state_dict(mine)
    return other


def causal_mask(count):
    return torch.ones(count, count, dtype=torch.bool).triu(1)


VARIANTS = ({}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 10}, {"bias": False})


def values_of(layer, value):
    """The values (N, H, S, D) of the heads of a layer, with those that every query sees."""
    weight = layer.v_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight[2 * E :]
    found = torch.nn.functional.linear(
        value, weight, None if layer.in_proj_bias is None else layer.in_proj_bias[2 * E :]
    )
    if layer.bias_v is not None:
        found = torch.cat([found, layer.bias_v.expand(len(found), 1, E)], 1)
    if layer.add_zero_attn:
        found = torch.cat([found, found.new_zeros(len(found), 1, E)], 1)
    return found.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)


class TestAgainstTheExactLayer:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("options", VARIANTS, ids=str)
    def test_weights_and_output_belong_together(self, options, causal):
        mine = layer(**options)
        query, key, value = normals(2, 9, E), normals(2, 9, mine.kdim, seed=1), normals(2, 9, mine.vdim, seed=2)
        hidden = torch.zeros(2, 9, dtype=torch.bool)
        hidden[1, 6:] = True
        arguments = {"key_padding_mask": hidden, "attn_mask": causal_mask(9) if causal else None, "is_causal": causal}
        out, weights = mine(query, key, value, need_weights=True, average_attn_weights=False, **arguments)
        wanted, known = exact(mine, **options)(query, key, value, average_attn_weights=False, **arguments)
        assert weights.shape == known.shape
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert ((weights == 0) == (known == 0)).all()
        assert out.shape == wanted.shape
        merged = (weights @ values_of(mine, value)).transpose(1, 2).flatten(-2)
        torch.testing.assert_close(mine.out_proj(merged), out)
        averaged = mine(query, key, value, need_weights=True, **arguments)[1]
        torch.testing.assert_close(averaged, weights.mean(1))

    @pytest.mark.slow
    @pytest.mark.parametrize("options", VARIANTS, ids=str)
    def test_it_tends_to_it_as_features_grow(self, options):
        """The error falls as 1 / sqrt(F): by 4 for 16 times as many, give or take what 12 draws leave open."""
        mine = layer(**options)
        query, key, value = normals(2, 12, E), normals(2, 12, mine.kdim, seed=1), normals(2, 12, mine.vdim, seed=2)
        query, key = 0.3 * query, 0.3 * key
        wanted = exact(mine, **options)(query, key, value)[0]
        errors = []
        for count in (32, 512):
            found = []
            for seed in range(12):
                other = layer(seed, num_features=count, coupling="iid", **options)
                other.load_state_dict(exact(mine, **options).state_dict())
                found.append((other(query, key, value)[0] - wanted).square().mean())
            errors.append(torch.stack(found).mean().sqrt().item())
        assert 2.5 < errors[0] / errors[1] < 6.5

    def test_a_trained_exact_layer_is_loaded(self):
        other = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
        mine = layer()
        draw = mine.frequencies.clone()
        assert not mine.load_state_dict(other.state_dict()).missing_keys
        assert torch.equal(mine.in_proj_weight, other.in_proj_weight)
        assert torch.equal(mine.frequencies, draw)
        with pytest.raises(RuntimeError, match="Missing key"):
            mine.load_state_dict({"in_proj_weight": other.in_proj_weight})

    def test_layouts(self):
        first, second = layer(), layer(batch_first=False)
        second.load_state_dict(first.state_dict())
        q, k, v = normals(3, 5, E), normals(3, 7, E, seed=1), normals(3, 7, E, seed=2)
        hidden = torch.arange(7) > 4
        out = first(q, k, v, hidden.expand(3, 7))[0]
        moved = second(*(x.transpose(0, 1) for x in (q, k, v)), hidden.expand(3, 7))[0]
        torch.testing.assert_close(moved.transpose(0, 1), out)
        alone, weights = second(q[1], k[1], v[1], hidden, need_weights=True)
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
            torch.testing.assert_close(
                encoder(x, src_mask=causal_mask(9), is_causal=True), encoder(x, src_mask=causal_mask(9))
            )


class TestMasks:
    def test_the_causal_one_in_all_forms(self):
        mine, x = layer(), normals(2, 9, E)
        wanted = layer(causal=True)
        wanted.load_state_dict(mine.state_dict())
        target = wanted(x, x, x)[0]
        float_mask = nn.Transformer.generate_square_subsequent_mask(9)
        for mask in (None, causal_mask(9), float_mask, float_mask.expand(2 * H, 9, 9)):
            assert torch.equal(mine(x, x, x, attn_mask=mask, is_causal=True)[0], target)
        assert torch.equal(mine(x, x, x, attn_mask=causal_mask(9))[0], target)
        assert not torch.equal(mine(x, x, x, attn_mask=torch.zeros(9, 9))[0], target)
        assert torch.equal(mine(x, x, x, attn_mask=torch.zeros(9, 9))[0], mine(x, x, x)[0])

    def test_numbers_added_to_scores_of_keys(self):
        mine, x = layer(), normals(2, 9, E)
        hidden = torch.arange(9).expand(2, 9) > 6
        added = torch.zeros(2, 9, dtype=torch.float64).masked_fill(hidden, -torch.inf)
        assert torch.equal(mine(x, x, x, added)[0], mine(x, x, x, hidden)[0])
        twice = torch.zeros(2, 9, dtype=torch.float64)
        twice[:, 3] = np.log(2.0)
        doubled = torch.cat([x, x[:, 3:4]], 1)
        torch.testing.assert_close(mine(x, x, x, twice)[0], mine(x, doubled, doubled)[0])


class TestDraws:
    def test_each_head_has_its_own(self):
        drawn = layer().frequencies
        assert drawn.shape == (H, 32, E // H)
        assert len({tuple(head.flatten().tolist()) for head in drawn}) == H
        assert torch.equal(layer(3).frequencies, layer(3).frequencies)
        assert not torch.equal(layer(3).frequencies, layer(4).frequencies)
        assert layer(None).seed != layer(None).seed

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
        mine, x = layer(redraw_interval=3), normals(2, 9, E)
        draws = []
        for _ in range(7):
            mine(x, x, x)
            draws.append(mine.num_draws)
        assert draws == [0, 0, 0, 1, 1, 1, 2]
        mine.eval()
        for _ in range(7):
            mine(x, x, x)
        assert mine.num_draws == 2
        fresh = layer()
        for _ in range(2):
            fresh.redraw()
        assert torch.equal(mine.frequencies, fresh.frequencies)

    def test_a_redraw_leaves_gradients_of_earlier_calls_alone(self):
        mine, x = layer(), normals(2, 200, E)
        alone = torch.autograd.grad(mine(x, x, x, is_causal=True)[0].square().sum(), mine.in_proj_weight)[0]
        out = mine(x, x, x, is_causal=True)[0].square().sum()
        mine.redraw()
        torch.testing.assert_close(torch.autograd.grad(out, mine.in_proj_weight)[0], alone)


class TestFeatures:
    @pytest.mark.parametrize("causal", [False, True])
    def test_that_change_sign(self, causal):
        mine, x = layer(features="trigonometric", num_features=2048), 0.5 * normals(2, 9, E)
        out = mine(x, x, x, is_causal=causal)[0]
        wanted = exact(mine)(x, x, x, attn_mask=causal_mask(9) if causal else None)[0]
        assert (out - wanted).abs().max() < 0.05
        assert float(mine.low_share) == 0
        assert layer().low_share is None

    def test_low_normalizers_issue_a_warning(self):
        mine, x = layer(features="trigonometric", num_features=4, floor=0.1), 8 * normals(2, 30, E)
        with pytest.warns(rfgp.PoorFeaturesWarning, match="above their floor"):
            out = mine(x, x, x)[0]
        assert torch.isfinite(out).all()
        assert 0 < float(mine.low_share) < 1
        mine(*[x[:, :0]] * 3)
        assert float(mine.low_share) == 0

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize(("name", "each"), [("hybrid", 36), ("hybrid-one-sign", 27)])
    def test_hybrid(self, name, each, causal):
        mine, x = layer(features=name, num_features=each * 60), 0.5 * normals(2, 9, E)
        assert mine.pair.num_features == each * 60
        wanted = exact(mine)(x, x, x, attn_mask=causal_mask(9) if causal else None)[0]
        assert (mine(x, x, x, is_causal=causal)[0] - wanted).abs().max() < 0.1
        other = layer(9, features=name, num_features=each * 60)
        other.load_state_dict(mine.state_dict())
        assert torch.equal(other(x, x, x)[0], mine(x, x, x)[0])


class TestAModuleOfTorch:
    @pytest.mark.slow
    @pytest.mark.parametrize("causal", [False, True])
    def test_compiled_in_one_graph(self, causal):
        torch.compiler.reset()
        mine, x = layer(chunk_size=4, recompute=causal), normals(2, 7, E)
        compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
        out = compiled(x, x, x, is_causal=causal)[0]
        torch.testing.assert_close(out, mine(x, x, x, is_causal=causal)[0])
        found = torch.autograd.grad(out.square().sum(), mine.in_proj_weight)[0]
        wanted = torch.autograd.grad(mine(x, x, x, is_causal=causal)[0].square().sum(), mine.in_proj_weight)[0]
        torch.testing.assert_close(found, wanted)

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
    def test_shorter_types(self, dtype, tolerance):
        mine, x = layer(dtype=torch.float32), normals(2, 40, E, dtype=torch.float32)
        wanted = mine(x, x, x)[0]
        with torch.autocast("cpu", dtype):
            mixed = mine(x, x, x)[0]
        assert mixed.dtype == dtype
        torch.testing.assert_close(mixed.float(), wanted, rtol=0, atol=tolerance)
        short = copy.deepcopy(mine).to(dtype)
        assert short.frequencies.dtype == torch.float32
        out = short(*(3 * [x.to(dtype)]))[0]
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), wanted, rtol=0, atol=tolerance)

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
    def test_an_ensemble(self):
        layers, x = [layer(seed) for seed in range(3)], normals(2, 9, E)
        parameters, buffers = torch.func.stack_module_state(layers)
        base = copy.deepcopy(layers[0]).to("meta")

        def call(p, b):
            return torch.func.functional_call(base, (p, b), (x, x, x))[0]

        found = torch.vmap(call)(parameters, buffers)
        torch.testing.assert_close(found, torch.stack([one(x, x, x)[0] for one in layers]))

    @pytest.mark.parametrize("features", ["positive", "hybrid"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
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

    @pytest.mark.parametrize("features", ["positive", "trigonometric", "hybrid", "hybrid-one-sign", first_only])
    def test_pickled(self, features):
        mine, x = layer(features=features, num_features=36), 0.1 * normals(2, 9, E)
        stream = io.BytesIO()
        torch.save(mine, stream)
        stream.seek(0)
        for other in (pickle.loads(pickle.dumps(mine)), torch.load(stream, weights_only=False)):
            assert torch.equal(other(x, x, x)[0], mine(x, x, x)[0])


class TestLoads:
    @pytest.mark.parametrize("wrong", ["weights", "_extra_state", "in_proj_bias"])
    def test_a_refused_one_leaves_the_draw(self, wrong):
        mine, other = layer(0), layer(1, redraw_interval=1)
        other.redraw()
        draw, state = mine.frequencies.clone(), other.state_dict()
        state[wrong] = state[wrong][..., :-1]
        with pytest.raises(RuntimeError, match=wrong):
            mine.load_state_dict(state)
        assert (mine.seed, mine.num_draws) == (0, 0)
        assert torch.equal(mine.frequencies, draw)


class TestHeads:
    def test_pairs_of_heads_are_served_and_plain_ones_refused(self):
        def plain(drawn):
            return softmax.Positive(couplings.Frequencies.paired(drawn.dense(), drawn.weights))

        with pytest.raises(rfgp.InvalidArgumentError, match="of 4 heads"):
            layer(features=plain, num_features=4, coupling="iid")
        mine, x = (
            layer(features=lambda d: softmax.Positive(d.with_negatives()), num_features=4, coupling="iid"),
            normals(2, 9, E),
        )
        assert mine.pair.num_features == 8
        assert torch.isfinite(mine(x, x, x)[0]).all()
        rows, weights = normals(H, 3, 4), normals(H, 3).exp()
        paired = HeadFrequencies(rows, weights).with_negatives()
        assert torch.equal(paired.dense()[2, 4:], torch.stack([rows[2, 2], -rows[2, 2]]))
        assert torch.equal(paired.weights, weights.repeat_interleave(2, -1)[:, None])

    def test_a_hybrid_with_both_signs(self):
        """Each head's pair is that of its own frequencies alone."""

        def make(drawn):
            half = softmax.coefficients.Constant(0.4)
            return softmax.bipolar(drawn, half, antithetic=True, kernel="gaussian")

        mine, x, y = (
            layer(features=make, num_features=6, coupling="orthogonal"),
            normals(2, H, 9, 4),
            normals(2, H, 7, 4),
        )
        found, one_sign = mine.pair(x, y), softmax.Positive(HeadFrequencies(mine.frequencies, mine.weights))
        assert mine.pair.num_features == 6 * 4
        for h in range(H):
            alone = make(couplings.Frequencies(mine.frequencies[h], mine.weights[h]))
            torch.testing.assert_close(found[:, h], alone(x[:, h], y[:, h]))
            assert not torch.allclose(found[:, h], one_sign(x, y)[:, h])
        assert torch.isfinite(mine(*[normals(2, 9, E)] * 3)[0]).all()

    @pytest.mark.filterwarnings("ignore:.*nested tensors")
    def test_nested_tensors(self):
        one = nn.TransformerEncoderLayer(E, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
        encoder = nn.TransformerEncoder(one, 2).eval()
        for number, block in enumerate(encoder.layers):
            block.self_attn = layer(number)
        x, hidden = normals(2, 9, E), torch.arange(9) > torch.tensor([[5], [8]])
        with torch.no_grad():
            with pytest.raises(rfgp.InvalidArgumentError, match="use_nested_tensor = False"):
                encoder(x, src_key_padding_mask=hidden)
            encoder.use_nested_tensor = False
            out = encoder(x, src_key_padding_mask=hidden)
            torch.testing.assert_close(out[:1, :6], encoder(x[:1, :6]))


X, STATE = normals(2, 9, E), torch.bool
MADE = [
    *(("num_heads", {"num_heads": heads}) for heads in (2.0, "2", 3)),
    ("embed_dim", {"embed_dim": 0}),
    ("num_features", {"num_features": 0}),
    ("even", {"num_features": 31}),
    ("features", {"features": "linear"}),
    ("redraw_interval", {"redraw_interval": 0}),
    ("chunk_size", {"chunk_size": 0}),
    *(("floor", {"floor": floor}) for floor in (2.0, "a")),
    ("antithetic", {"features": "trigonometric", "coupling": "iid-antithetic"}),
    ("antithetic", {"features": "hybrid", "coupling": "iid-antithetic"}),
    ("FeaturePair", {"features": lambda _: None}),
    ('kernel="gaussian"', {"features": softmax.Trigonometric, "coupling": "iid"}),
]
CALLED = [
    *(("causal mask", {"attn_mask": mask}) for mask in (causal_mask(9).mT, causal_mask(9).triu(2), normals(9, 9))),
    ("causal mask", {"attn_mask": causal_mask(9).mT, "is_causal": True}),
    *(("attn_mask", {"attn_mask": mask}) for mask in (causal_mask(12), torch.zeros(9, dtype=STATE))),
    ("attn_mask", {"attn_mask": torch.zeros(2, 9, 9, dtype=STATE)}),
    *(("boolean", {"attn_mask": mask}) for mask in (torch.zeros(9, 9, dtype=torch.int64), [[0.0]])),
    ("3 dimensions", {"query": X[0]}),
    ("3 dimensions", {"key_padding_mask": torch.zeros(9, dtype=STATE)}),
    *(("fit the keys", {"key_padding_mask": torch.zeros(*shape, dtype=STATE)}) for shape in ((1, 9), (2, 1))),
    *(("boolean", {"key_padding_mask": mask}) for mask in ([[True]], torch.zeros(2, 9, dtype=torch.int64))),
    ("one batch size", {"key": X[:1], "value": X[:1]}),
    ("one length", {"key": X[:, :8]}),
    ("16 columns", {"key": X[..., :8]}),
    ("key must be", {"key": None}),
    ("as many queries as keys", {"key": X[:, :8], "value": X[:, :8], "is_causal": True}),
]


@pytest.mark.parametrize(("word", "options"), MADE)
def test_bad_options_of_a_layer_are_named(word, options):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        RandomFeatureAttention(**{"embed_dim": 8, "num_heads": 2, **options})


def test_bad_calls_are_named_and_count_as_none():
    mine = layer(redraw_interval=1)
    mine(X, X, X)
    for word, options in CALLED:
        with pytest.raises(rfgp.InvalidArgumentError, match=word):
            mine(**{"query": X, "key": X, "value": X, **options})
    long = torch.zeros(1, 1, E, dtype=torch.float64).expand(1, 2**13 + 1, E)
    with pytest.raises(rfgp.InvalidArgumentError, match="need_weights=False"):
        layer()(long, long, long, need_weights=True)
    assert mine.get_extra_state().tolist() == [0, 0, 1, 1]
