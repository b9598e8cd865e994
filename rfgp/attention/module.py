"""Multi-head attention with random features, a replacement of `torch.nn.MultiheadAttention`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rfgp import random
from rfgp.attention.draws import HeadFrequencies, draw_heads, estimator
from rfgp.attention.functional import CHUNK_SIZE, FLOOR, Attention, check_causal, check_numbers, warn_of_low
from rfgp.couplings import Coupling, Frequencies, by_name
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax import FeaturePair
from rfgp.messages import check_count, counted

MAX_WEIGHTS = 2**28  # the largest number of attention weights that a call returns
_DRAWN = ("frequencies", "weights", "other_frequencies", "_extra_state")


class RandomFeatureAttention(nn.MultiheadAttention):
    """Multi-head attention with random features, in time and memory linear in the number of positions.

    Arguments, parameters and masks are those of `torch.nn.MultiheadAttention`. It loads the `state_dict` of an exact
    layer, so that a trained one can be approximated without changes. Each head has a draw of its own. The `state_dict`
    of this layer also has the draw, the seed and the position in the redraw schedule as tensors. A module with the same
    arguments, including the coupling, that loads them gives the same outputs and the same next draws. The draw stays in
    float32 or float64 if the module is cast to a shorter type, and so do features and normalizer
    (`random_feature_attention`).

    There are three differences. `need_weights` is False by default, and weights take time and memory L S. `attn_mask`
    must be the causal one, or one that hides nothing. Dropout drops the value of a key for all queries of a head at
    once. The marginal distribution of each weight is that of the exact layer.

    Source: Choromanski et al. (2021). Couplings for attention: Reid et al. (2024), section 3.3.

    Args:
        embed_dim: The width of the queries and of the output.
        num_heads: H, a divisor of embed_dim.
        dropout: The probability with which a value is dropped in training.
        bias: Whether projections have biases.
        add_bias_kv: Whether a learned key and value are added, which all queries see.
        add_zero_attn: Whether a key and value of zeros are added, which all queries see.
        kdim: The width of the keys. If None, embed_dim.
        vdim: The width of the values. If None, embed_dim.
        batch_first: Whether inputs are (N, L, E) rather than (L, N, E).
        device: The device of the parameters and the draw.
        dtype: The dtype of the parameters.
        num_features: The largest number of features of a head. One frequency of "trigonometric" takes 2 and one of
            "hybrid" 36, so that 256 allow 252 of these.
        features: "positive", or "hybrid" or "trigonometric", which can change sign. "hybrid" is angular (Choromanski et
            al. 2022) with both signs of the positive part. "hybrid-one-sign" has one sign and 27 features for each
            frequency. Or a function from the `HeadFrequencies` (H, m, d) of num_features frequencies to a stable
            `FeaturePair`, see `random_feature_attention`. It is called in each pass, and its result must depend on the
            frequencies only.
        coupling: The coupling of the frequencies of a head, or its name, also a learned one (`rfgp.learn`). If None,
            "monotone-antithetic" for positive features, and "orthogonal" for others.
        redraw_interval: The number of training passes after which the frequencies are redrawn. If None, never. With
            `torch.compile` it breaks the graph. Passes that `torch.utils.checkpoint` repeats in the backward pass are
            not counted. They use the same draw if no other pass redrew since the first run.
        causal: Whether every call is causal.
        chunk_size: The number of positions of a chunk of causal attention.
        floor: The smallest normalizer of features that change sign, relative to the keys' weights.
        recompute: Whether features are recomputed for gradients. If None, only if there are many.
        seed: The seed of the draws. If None, one from the system, kept as `.seed`.

    Attributes:
        seed: The seed of the draws.
        num_draws: How often frequencies were redrawn.
        low_share: The share of the last call's normalizers that were raised to the floor, 0-d. None for positive
            features.

    Raises:
        InvalidArgumentError: If arguments do not agree, or for the reasons of `Coupling.sample`.

    Examples:
        >>> from rfgp import attention
        >>> layer = attention.RandomFeatureAttention(16, 2, num_features=32, batch_first=True, seed=0)
        >>> x = torch.randn(3, 100, 16)
        >>> layer(x, x, x, is_causal=True)[0].shape
        torch.Size([3, 100, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        num_features: int = 256,
        features: str | Callable[[Frequencies], FeaturePair] = "positive",
        coupling: str | Coupling | None = None,
        redraw_interval: int | None = None,
        causal: bool = False,
        chunk_size: int = CHUNK_SIZE,
        floor: float = FLOOR,
        recompute: bool | None = None,
        seed: int | None = None,
    ) -> None:
        if check_count("embed_dim", embed_dim) % check_count("num_heads", num_heads):
            raise InvalidArgumentError(f"num_heads must divide embed_dim, got {num_heads} and {embed_dim}.")
        check_numbers(chunk_size, floor)
        if redraw_interval is not None:
            check_count("redraw_interval", redraw_interval)
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        # In evaluation torch's encoder layers replace layers with a true value by their own exact kernel.
        self._qkv_same_embed_dim = False
        self.estimator = estimator(features)
        self.num_frequencies = self.estimator.num_frequencies(num_features)
        self.coupling = by_name(self.estimator.coupling if coupling is None else coupling)
        if self.coupling.is_antithetic and not self.estimator.of_pairs:
            raise InvalidArgumentError(
                f"coupling must not be antithetic for {features!r} features, got {coupling!r}. Use the coupling "
                "without -antithetic, or positive features."
            )
        self.redraw_interval, self.causal, self.recompute = redraw_interval, causal, recompute
        self.chunk_size, self.floor = chunk_size, floor
        self.seed, self.num_draws, self._num_passes = random.resolve_seed(seed), -1, 0
        self.low_share: Tensor | None = None
        place = self.out_proj.weight
        wide = torch.float64 if place.dtype == torch.float64 else torch.float32
        for name in _DRAWN[:3]:
            self.register_buffer(name, torch.empty(0, dtype=wide, device=place.device))
        if not self.estimator.num_others:
            self.other_frequencies = None
        self.redraw()
        self._check_pair(is_given=callable(features))

    frequencies: Tensor  # (H, m, d)
    weights: Tensor  # (H, m)
    other_frequencies: Tensor | None  # (H, n, d)
    _antithetic: bool

    # --- the draw ------------------------------------------------------------------------------------------------

    @torch.compiler.disable
    def redraw(self) -> None:
        """Redraw the frequencies of all heads: the next draw of the seed."""
        self.num_draws += 1
        self._draw()

    def _draw(self) -> None:
        """Make the draw with the current number."""
        key = (self.seed, random.Role.FREQUENCIES, self.num_draws)
        drawn = draw_heads(self.coupling, self.num_heads, self.num_frequencies, self.head_dim, key=(*key, 0))
        self._antithetic = drawn.antithetic
        like = self.frequencies
        self.frequencies, self.weights = drawn.dense().to(like), drawn.weights.squeeze(1).to(like)
        if self.estimator.num_others:
            count = self.estimator.num_others
            others = draw_heads(by_name("orthogonal"), self.num_heads, count, self.head_dim, key=(*key, 1))
            self.other_frequencies = others.dense().to(like)

    @property
    def pair(self) -> FeaturePair:
        """The features of the current draw, constructed from the buffers."""
        others = None
        if self.other_frequencies is not None:
            others = HeadFrequencies(self.other_frequencies, torch.ones_like(self.other_frequencies[..., 0]))
        drawn = HeadFrequencies(self.frequencies, self.weights, self._antithetic)
        return self.estimator.make(drawn, others)

    def _check_pair(self, is_given: bool) -> None:
        """Refuse a pair that attention cannot use, from a function that is given or not.

        Raises:
            InvalidArgumentError: If the pair cannot be constructed, is not stable, or does not use each head's own
                frequencies.
        """
        wrong = (
            f"features must be a function from `HeadFrequencies` (H, m, d) of {counted(self.num_heads, 'head')} to a "
            "pair, got an error: {}. Use `frequencies.with_negatives()` for both signs."
        )
        try:
            pair = self.pair
        except (RuntimeError, ValueError, IndexError) as error:
            if not is_given:
                raise
            raise InvalidArgumentError(wrong.format(error)) from error
        Attention.of(pair, self.chunk_size, self.floor)
        for side in pair.modules():
            drawn = getattr(side, "frequencies", None)
            if isinstance(drawn, Frequencies) and drawn.antithetic and not isinstance(drawn, HeadFrequencies):
                raise InvalidArgumentError(wrong.format("its antithetic frequencies do not belong to a head"))

    @torch.compiler.disable
    def _follow_schedule(self) -> None:
        """Count a training pass, and redraw if it is due.

        A pass inside a backward pass repeats one that was counted (`torch.utils.checkpoint`). It must have the draw of
        its first run. It does not if another forward pass redrew between the two.
        """
        if torch._C._current_graph_task_id() != -1:
            return
        if self._num_passes and self.redraw_interval and self._num_passes % self.redraw_interval == 0:
            self.redraw()
        self._num_passes += 1

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> "RandomFeatureAttention":
        before: dict[str, Any] = {name: self._buffers[name] for name in _DRAWN[:3]}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype not in (torch.float32, torch.float64):
                self._buffers[name] = torch.empty_like(new, dtype=old.dtype) if old.is_meta else old.to(new.device)
        if before["frequencies"].is_meta and not self.frequencies.is_meta:
            self._draw()
        return self

    def get_extra_state(self) -> Tensor:
        """Return the numbers that determine the draw and the next ones, (4,), int64.

        They are the seed, the number of the draw, that of training passes, and whether frequencies are paired.
        """
        return torch.tensor([self.seed, self.num_draws, self._num_passes, self._antithetic])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the result of `get_extra_state`, (4,)."""
        self.seed, self.num_draws, self._num_passes, antithetic = (int(value) for value in state)
        self._antithetic = bool(antithetic)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load all of the draw or nothing of it. An exact layer has none, and the current draw is kept."""
        place, drawn = prefix + "_extra_state", {prefix + name for name in _DRAWN}
        before = {name: x if x is None else x.clone() for name in _DRAWN[:3] for x in [self._buffers[name]]}
        errors: list[str] = []
        rest = {name: value for name, value in state_dict.items() if name != place}
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, errors)
        if not drawn & set(state_dict):
            missing_keys[:] = [key for key in missing_keys if key not in drawn]
        elif place in state_dict:
            missing_keys[:] = [key for key in missing_keys if key != place]
            if not errors and not drawn & set(missing_keys):
                errors += self._load_extra_state(place, state_dict[place])
        if errors or drawn & set(missing_keys):
            self._buffers.update(before)
        error_msgs += errors

    def _load_extra_state(self, place: str, state: Tensor) -> list[str]:
        """Set the extra state, or return why it does not fit this layer."""
        if state.shape != (4,):
            return [f"{place} must have 4 entries, got shape {tuple(state.shape)}."]
        if state[3] and not self.estimator.of_pairs:
            return [f"{place} must not be of antithetic frequencies for the features of this layer, got such."]
        self.set_extra_state(state)
        return []

    # --- the call ------------------------------------------------------------------------------------------------

    def forward(
        self,
        query: Tensor,  # (L, N, embed_dim), (N, L, embed_dim) or (L, embed_dim)
        key: Tensor,  # (S, N, kdim), (N, S, kdim) or (S, kdim)
        value: Tensor,  # (S, N, vdim), (N, S, vdim) or (S, vdim)
        key_padding_mask: Tensor | None = None,  # (N, S) or (S,)
        need_weights: bool = False,
        attn_mask: Tensor | None = None,  # (L, S) or (N H, L, S)
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, shaped like the query, and the weights or None.

        Args:
            query: (L, N, embed_dim), (N, L, embed_dim) if batch_first, or (L, embed_dim).
            key: (S, N, kdim), (N, S, kdim) or (S, kdim).
            value: (S, N, vdim), (N, S, vdim) or (S, vdim).
            key_padding_mask: (N, S) or (S,), True for excluded keys, or numbers that are added to their scores.
            need_weights: Whether to return the weights, (N, L, S), or (N, H, L, S) if they are not averaged.
            attn_mask: None, the causal mask, which makes the call causal, or one that hides nothing.
            average_attn_weights: Whether weights are averaged over heads.
            is_causal: Whether the call is causal. It does not need a mask.

        Raises:
            InvalidArgumentError: If shapes do not agree, or a mask is not supported.
        """
        batched = self._check_inputs((query, key, value), key_padding_mask, attn_mask)
        count, keys = (x.shape[-2 if self.batch_first or not batched else 0] for x in (query, key))
        causal = self._is_causal(attn_mask, is_causal)
        check_causal(causal, count, keys)
        if need_weights:
            self._check_weights(query.shape[:-1].numel(), keys)
        if self.training and self.redraw_interval:
            self._follow_schedule()
        pair = self.pair
        mask = None if key_padding_mask is None else key_padding_mask[..., None, :]
        q, k, v = self._heads(query, key, value, batched)
        always, given = self._always(k), {"key_padding_mask": mask, "is_causal": causal}
        dropped = None if always is None else (always[0], self._drop(always[1]))
        rows = self._attend(pair, q, k, self._drop(v), always=dropped, **given)
        output = self.out_proj(rows.transpose(-3, -2).flatten(-2))
        output = output.transpose(0, 1) if batched and not self.batch_first else output
        if not need_weights:
            return output, None
        weights = self._weights(pair, q, k, always, **given)
        return output, weights.mean(-3) if average_attn_weights else weights

    def _check_inputs(self, inputs: tuple[Tensor, Tensor, Tensor], padding: Tensor | None, mask: Tensor | None) -> bool:
        """Return whether query, key and value are batched, if they and the masks have types and sizes that fit.

        Raises:
            InvalidArgumentError: If types or shapes do not agree.
        """
        names = ("query", "key", "value")
        for name, x in zip(names, inputs, strict=True):
            if not isinstance(x, Tensor) or not x.is_floating_point():
                kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
                raise InvalidArgumentError(f"{name} must be a floating-point tensor, got {kind}.")
            if x.is_nested:
                raise InvalidArgumentError(
                    f"{name} must be a dense tensor, got a nested one. torch.nn.TransformerEncoder makes them of "
                    "padded batches in evaluation. Set encoder.use_nested_tensor = False, or make the encoder with "
                    "enable_nested_tensor=False."
                )
        dims = [x.ndim for x in inputs]
        if dims not in ([2] * 3, [3] * 3):
            raise InvalidArgumentError(f"query, key and value must all have 3 dimensions, or all 2, got {tuple(dims)}.")
        batched = dims[0] == 3
        query, key, value = (x.transpose(0, 1) if batched and not self.batch_first else x for x in inputs)
        widths = self.embed_dim, self.kdim, self.vdim
        for name, x, width in zip(names, inputs, widths, strict=True):
            if x.shape[-1] != width:
                raise InvalidArgumentError(f"{name} must have {counted(width, 'column')}, got shape {tuple(x.shape)}.")
        lead, count, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
        if key.shape[:-2] != lead or value.shape[:-2] != lead or value.shape[-2] != keys:
            raise InvalidArgumentError(
                "query, key and value must have one batch size, and key and value one length, got (batch first) "
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
            )
        full = (lead.numel() * self.num_heads, count, keys)
        masks = ("key_padding_mask", padding, [(*lead, keys)]), ("attn_mask", mask, [(count, keys), full])
        for name, given, sizes in masks:
            if given is None:
                continue
            if not (isinstance(given, Tensor) and (given.dtype.is_floating_point or given.dtype == torch.bool)):
                kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
                raise InvalidArgumentError(f"{name} must be a boolean or floating-point tensor, got {kind}.")
            if given.shape not in sizes:
                fitting = " or ".join(map(str, sizes))
                raise InvalidArgumentError(f"{name} must fit the keys, {fitting}, got shape {tuple(given.shape)}.")
        return batched

    def _heads(self, query: Tensor, key: Tensor, value: Tensor, batched: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return projected queries, keys and values, each (N, H, n, head_dim) or (H, n, head_dim)."""
        inputs = (query, key, value)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        else:
            matrices = self.in_proj_weight.chunk(3)
        projected = [functional.linear(*parts) for parts in zip(inputs, matrices, biases, strict=True)]
        if batched and not self.batch_first:
            projected = [x.transpose(0, 1) for x in projected]
        q, k, v = (x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2) for x in projected)
        return q, k, v

    def _always(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return keys and values that all queries see, each (N, H, A, head_dim), or None."""
        pairs = []
        if self.bias_k is not None and self.bias_v is not None:
            size = (self.num_heads, 1, self.head_dim)
            pairs.append((self.bias_k.reshape(size), self.bias_v.reshape(size)))
        if self.add_zero_attn:
            zero = like.new_zeros(self.num_heads, 1, self.head_dim)
            pairs.append((zero, zero))
        if not pairs:
            return None
        keys, values = (torch.cat(side, dim=-2).to(like) for side in zip(*pairs, strict=True))
        return keys.expand(*like.shape[:-2], -1, -1), values.expand(*like.shape[:-2], -1, -1)

    def _drop(self, value: Tensor) -> Tensor:
        if not self.training or self.dropout == 0:
            return value
        return value * functional.dropout(torch.ones_like(value[..., :1]), self.dropout)

    def _attend(self, pair: FeaturePair, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        """Return the outputs (..., H, L, Ev), with the keyword arguments of `Attention`."""
        rows = Attention.of(pair, self.chunk_size, self.floor, self.recompute)(q, k, v, **given)
        if not pair.is_positive:
            self.low_share = rows.low.to(torch.float32).sum() / max(1, rows.low.numel())
            if not torch.compiler.is_compiling():
                warn_of_low(rows.low)
        return rows.output

    def _check_weights(self, queries: int, keys: int) -> None:
        if queries * self.num_heads * (keys + (self.bias_k is not None) + self.add_zero_attn) > MAX_WEIGHTS:
            raise InvalidArgumentError(
                f"The attention weights must be at most {MAX_WEIGHTS} numbers, got more for "
                f"{counted(queries, 'query', 'queries')}, {keys} keys and {counted(self.num_heads, 'head')}. Use "
                "need_weights=False."
            )

    def _weights(
        self, pair: FeaturePair, q: Tensor, k: Tensor, always: tuple[Tensor, Tensor] | None, **given: Any
    ) -> Tensor:
        """Return the weights (..., H, L, S + A), the result of attention for the identity matrix as values."""
        extra, count = 0 if always is None else always[0].shape[-2], k.shape[-2]
        ones = torch.eye(count + extra, dtype=k.dtype, device=k.device)
        values = ones.expand(*k.shape[:-2], -1, -1)
        fixed = None if always is None else (always[0], values[..., count:, :])
        return self._attend(pair, q, k, values[..., :count, :], always=fixed, **given)

    def _is_causal(self, mask: Tensor | None, hint: bool) -> bool:
        if mask is None or (hint and torch.compiler.is_compiling()):
            return hint or self.causal
        if _is_causal_mask(mask):
            return True
        if hint or bool((mask if mask.dtype == torch.bool else mask != 0).any()):  # it hides a key, or changes a score
            raise InvalidArgumentError(
                f"attn_mask must be the causal mask or hide nothing, got another {tuple(mask.shape)}. Attention with "
                "features has no scores to mask. Use is_causal=True, key_padding_mask, or torch.nn.MultiheadAttention."
            )
        return self.causal


def _is_causal_mask(
    mask: Tensor,  # (..., L, S)
) -> bool:
    """Return whether a mask hides exactly the keys after each query, by True or -inf."""
    if mask.shape[-1] != mask.shape[-2]:
        return False
    future = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    if mask.dtype == torch.bool:
        return bool((mask == future).all())
    return bool((mask == torch.zeros_like(mask).masked_fill(future, -torch.inf)).all())
