"""A small vision transformer on scikit-learn's digits, with exact attention and with random features.

The papers train ViT-B/16 on ImageNet. This is their protocol at the size of a laptop, and no substitute for it. There
are 1,797 images of 8 x 8 pixels, each pixel a token (n = 64). The model has two layers of width 32 with two heads of
16, and 40 epochs. The number of epochs was chosen with exact and iid attention on a split (seed 100) that is not used
below.

Protocol, fixed before the results were seen. There are five seeds. Each splits the images 80 : 20 (stratified), and
draws the initial weights and the order of the batches, the same for all methods. Training uses AdamW, rate 2e-3 along a
cosine, weight decay 0.01, batches of 64, labels smoothed by 0.1, and no augmentation. The last epoch is evaluated, and
nothing is chosen on the test images. Attention is exact, or has positive features with m = 16 by each coupling. These
are drawn again every 10 steps in training, separately for each head, and evaluated with one fixed draw. "learned" is
the result of `rfgp.learn.learn_attention`, m = 16, for the queries and keys of the exact model of the same seed on four
training images.
- Accuracy on the test images: mean and standard error over seeds, and the differences from exact attention and from
  "iid" with paired t-tests. P-values are adjusted by Holm's method over all that are printed.
- Seconds of training, relative to exact attention in the same run.
- Attention error: the relative Frobenius error of the row-normalized scores by m = 16 features, for queries and keys of
  the exact model on 32 test images. It is a mean over layers, heads and 20 draws, with its standard error over seeds.

    python -m benchmarks.papers.own.digits [EPOCHS [SEEDS]]
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from rfgp import couplings, learn, random
from rfgp.attention import RandomFeatureAttention, random_feature_attention
from rfgp.features import softmax

WIDTH, HEADS, LAYERS, FEATURES, BATCH, RATE = 32, 2, 2, 16, 64, 2e-3
COUPLINGS = ("iid", "orthogonal", "pairwise", "monotone", "orthogonal-antithetic", "monotone-antithetic", "learned")
DRAWS, JUDGED = 20, 32


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention, self.first, self.second = attention, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        x = x + self.attention(inner, inner, inner, need_weights=False)[0]
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    def __init__(self, coupling: str | couplings.Coupling | None, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.place = nn.Linear(1, WIDTH), nn.Parameter(0.3 * torch.randn(64, WIDTH))
        blocks = [Block(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)) for _ in range(LAYERS)]
        if coupling is not None:
            for number, block in enumerate(blocks):
                options: dict[str, Any] = {"num_features": FEATURES, "coupling": coupling, "redraw_interval": 10}
                other = RandomFeatureAttention(WIDTH, HEADS, batch_first=True, seed=1000 * seed + number, **options)
                other.load_state_dict(block.attention.state_dict(), strict=False)  # the same initial weights
                block.attention = other
        self.blocks, self.norm, self.out = nn.ModuleList(blocks), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images[..., None]) + self.place
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.out(self.norm(x).mean(1)))


def split(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 8 - 1, labels, test_size=0.2, stratify=labels, random_state=seed)
    return tuple(torch.as_tensor(p).float() if p.ndim > 1 else torch.as_tensor(p) for p in parts)  # type: ignore[return-value]


def train(coupling: str | couplings.Coupling | None, seed: int, epochs: int) -> tuple[Transformer, float, float]:
    """Return the model, its accuracy on the test images, and the seconds of its training."""
    images, test, labels, truth = split(seed)
    model, begun = Transformer(coupling, seed), time.perf_counter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    steps = epochs * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    loss, generator = nn.CrossEntropyLoss(label_smoothing=0.1), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss(model(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    took = time.perf_counter() - begun
    model.eval()
    with torch.no_grad():
        return model, float((model(test).argmax(1) == truth).double().mean()), took


def scores_of(model: Transformer, images: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return queries and keys (images, heads, 64, 16) of each layer of the exact model, over the root of root d."""
    found, x = [], model.embed(images[..., None]) + model.place
    for block in model.blocks:
        inner, layer = block.first(x), block.attention
        projected = nn.functional.linear(inner, layer.in_proj_weight, layer.in_proj_bias)
        q, k, _ = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in projected.chunk(3, -1))
        found.append((q / q.shape[-1] ** 0.25, k / k.shape[-1] ** 0.25))
        x = block(x)
    return found


def learned_coupling(model: Transformer, images: Tensor) -> couplings.Coupling:
    with torch.no_grad():
        found = scores_of(model, images)
    q, k = (torch.stack([layer[side] for layer in found]).flatten(0, 2).double() for side in (0, 1))
    return learn.learn_attention(learn.attention_error(q, k, scale=1.0), FEATURES, 16, progress=False).coupling


def attention_error(model: Transformer, coupling: str | couplings.Coupling, images: Tensor) -> float:
    errors, generator = [], random.generator(0)
    with torch.no_grad():
        for q, k in scores_of(model, images):
            q, k = q.double(), k.double()
            exact, places = (q @ k.mT).softmax(-1), torch.eye(k.shape[-2], dtype=k.dtype).expand(*k.shape[:-2], -1, -1)
            for _ in range(DRAWS):
                draw = couplings.by_name(coupling).sample(FEATURES, q.shape[-1], generator=generator)
                estimate = random_feature_attention(q, k, places, softmax.Positive(draw), scale=1.0)
                error = (estimate - exact).norm(dim=(-2, -1)) / exact.norm(dim=(-2, -1))
                errors.append(float(error.mean()))
    return float(np.mean(errors))


def holm(p: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method."""
    order, out, largest = np.argsort(p), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        out[i] = largest
    return out


def main() -> None:
    epochs, seeds = (int(a) for a in (*sys.argv[1:], *("40", "5")[len(sys.argv) - 1 :]))
    methods = (None, *COUPLINGS)
    accuracy, seconds, errors = ({m: [] for m in methods} for _ in range(3))
    accurate, images = Transformer(None, 0), torch.zeros(0, 64)
    for seed in range(seeds):
        for method in methods:
            coupling = learned_coupling(accurate, split(seed)[0][:4]) if method == "learned" else method
            model, right, took = train(coupling, seed, epochs)
            accuracy[method].append(100 * right)
            seconds[method].append(took)
            if method is None:
                accurate, images = model, split(seed)[1][:JUDGED]
            else:
                errors[method].append(attention_error(accurate, coupling, images))
            print(seed, method or "exact", f"{100 * right:.1f} %, {took:.0f} s", errors[method][-1:], flush=True)
    pairs = [(m, base) for m in COUPLINGS for base in (None, "iid") if m != base]
    raw = [float(stats.ttest_rel(accuracy[m], accuracy[base]).pvalue) for m, base in pairs]
    adjusted = dict(zip(pairs, holm([1.0 if np.isnan(p) else p for p in raw]), strict=True))
    table = Table(title=f"Digits, {epochs} epochs, {seeds} seeds, m = {FEATURES}: mean (standard error)")
    for column in ("attention", "accuracy %", "p, exact", "p, iid", "seconds / exact", "attention error"):
        table.add_column(column)
    for m in methods:
        ratio = np.array(seconds[m]) / np.array(seconds[None])
        cells = [_cell(accuracy[m], 1), *(f"{adjusted[m, b]:.2g}" if (m, b) in adjusted else "" for b in (None, "iid"))]
        table.add_row(m or "exact", *cells, _cell(list(ratio), 2), _cell(errors[m], 3) if errors[m] else "")
    Console(width=110).print(table)


def _cell(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ({stats.sem(values):.{digits}f})"


if __name__ == "__main__":
    main()
