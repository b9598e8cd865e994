"""Softmax sampling in a language model: how far laws of the next word by random features are from the true ones.

The hybrid paper samples from the softmax of a language model trained on Penn Treebank, which cannot be had freely;
this is its use at the size of a laptop. The text is the language reference that every CPython carries
(`pydoc_data.topics`, so figures depend a little on the version of Python, which is printed), in lower case, words and
punctuation; words seen less than three times are one class. The model reads four words, embedded in 32 numbers each,
through a hidden layer of 256; the vector x of the context and those of the words c have length 1 / .3, so that
logits are cosines times 11.1 (inverse temperature .3^-2 of Rawat et al. 2019); 64 numbers each. Topics repeat each
other's passages, the last tenth too, which makes perplexities low.

Protocol, fixed before the results were seen. Trained with the exact softmax by AdamW (rate 2e-3, weight decay .1,
batches of 256, 6 epochs) on the first nine tenths; the last tenth gives the perplexity and 200 contexts. Methods, with
m projections from 64 to 1,024: trigonometric and positive features over i.i.d. Gaussian projections, positive ones over
"orthogonal" and "monotone-antithetic", the bipolar hybrid with lambda = 1/2 and the angular one with 8 signs over
orthogonal ones, with both signs of the positive part. Hybrids have several
features for each projection: their number is printed, and the comparison at equal numbers is along the columns.
- Share of negative estimates; Wasserstein distance with words at 0 ... 1 in the order of their frequency;
  Kolmogorov-Smirnov distance in the same order; total variation: means over contexts, mean and standard error over ten
  draws of the projections.
- The Wasserstein distance between the word vectors (POT) for the 500 most frequent words as the classes: ten contexts,
  three draws.
A second model, with lengths 1 / .6, was added after the results of the first were seen, where no estimator is good.

    python -m benchmarks.studies.language_model
"""

import math
import platform
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from pydoc_data import topics

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from rfgp import couplings
from rfgp.couplings import Frequencies
from rfgp.features import softmax
from rfgp.features.softmax import FeaturePair
from rfgp.features.softmax.coefficients import Constant
from rfgp.sampling import SoftmaxSampler

CONTEXT, EMBEDDED, HIDDEN, WIDTH, TEMPERATURES = 4, 32, 256, 64, (0.3, 0.6)
EPOCHS, BATCH, LEAST = 6, 256, 3
SIZES, DRAWS, JUDGED = (64, 256, 1024), 10, 200
MOVED, MOVED_CONTEXTS, MOVED_DRAWS, SIGNS = 500, 10, 3, 8


Make = Callable[[int, torch.Generator], FeaturePair]
"""From m, a number of projections, to a pair."""


def of(coupling: str, estimator: Callable[[Frequencies], FeaturePair]) -> Make:
    return lambda m, generator: estimator(couplings.by_name(coupling).sample(m, WIDTH, generator=generator))


def angular(m: int, generator: torch.Generator) -> FeaturePair:
    return softmax.angular_hybrid(4 * (SIGNS + 1) * m, WIDTH, num_signs=SIGNS, generator=generator)


METHODS: dict[str, Make] = {
    "trigonometric": of("iid", softmax.Trigonometric),
    "positive": of("iid", softmax.Positive),
    "positive, orthogonal": of("orthogonal", softmax.Positive),
    "positive, monotone-antithetic": of("monotone-antithetic", softmax.Positive),
    "bipolar hybrid": of("orthogonal", lambda omega: softmax.bipolar(omega, Constant(0.5), antithetic=True)),
    "angular hybrid": angular,
}


def read_text() -> tuple[Tensor, list[str]]:
    """Return the text as classes (n,), and the words of these, the most frequent first."""
    words = re.findall(r"[a-z]+|\d+|[^\w\s]", "\n".join(map(topics.topics.__getitem__, sorted(topics.topics))).lower())
    counts = Counter(words)
    rare = sum(count for count in counts.values() if count < LEAST)
    counts = Counter({"<rare>": rare, **{word: count for word, count in counts.items() if count >= LEAST}})
    names = [word for word, _ in counts.most_common()]
    places = {word: i for i, word in enumerate(names)}
    return torch.tensor([places.get(word, places["<rare>"]) for word in words]), names


class LanguageModel(nn.Module):
    """Vectors of contexts and of words, of length 1 / temperature."""

    def __init__(self, num_words: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.embed = nn.Embedding(num_words, EMBEDDED)
        self.hidden = nn.Sequential(
            nn.Flatten(), nn.Linear(CONTEXT * EMBEDDED, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)
        )
        self.words = nn.Parameter(torch.randn(num_words, WIDTH))

    def queries(self, contexts: Tensor) -> Tensor:
        return nn.functional.normalize(self.hidden(self.embed(contexts)), dim=-1) / self.temperature

    def classes(self) -> Tensor:
        return nn.functional.normalize(self.words, dim=-1) / self.temperature

    def forward(self, contexts: Tensor) -> Tensor:
        return self.queries(contexts) @ self.classes().mT


def train(text: Tensor, num_words: int, temperature: float) -> tuple[LanguageModel, Tensor, float]:
    """Return the model, contexts (200, 4) that it has not seen, and its perplexity on such."""
    torch.manual_seed(0)
    windows = text.unfold(0, CONTEXT + 1, 1)
    cut = len(windows) * 9 // 10
    seen, held = windows[: cut - CONTEXT], windows[cut:]
    model = LanguageModel(num_words, temperature)
    steps = EPOCHS * math.ceil(len(seen) / BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for batch in torch.split(seen[torch.randperm(len(seen))], BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(held[:, :-1]), held[:, -1])
    return model, held[torch.randperm(len(held))[:JUDGED], :-1], float(loss.exp())


def reports(
    name: str, m: int, queries: Tensor, classes: Tensor, draws: int, ground: str = "index"
) -> tuple[int, np.ndarray]:
    """Return the number of features, and what `SamplingReport` holds (draws, 5)."""
    found = []
    for draw in range(draws):
        pair = METHODS[name](m, torch.Generator().manual_seed(draw))
        found.append(astuple(SoftmaxSampler(pair, classes).report(queries, ground=ground)))
    return pair.num_features, np.array(found)


def cell(values: np.ndarray) -> str:
    return f"{values.mean():.3g} ({values.std(ddof=1) / len(values) ** 0.5:.1g})"


@torch.no_grad()
def compare(model: LanguageModel, contexts: Tensor) -> tuple[Table, Table]:
    queries, classes = model.queries(contexts).double(), model.classes().double()
    title = f"vectors of length 1 / {model.temperature}"
    table = Table(title=f"{title}, {JUDGED} contexts, {DRAWS} draws: mean (standard error)")
    few = Table(title=f"{title}, the {MOVED} most frequent words, {MOVED_CONTEXTS} contexts, {MOVED_DRAWS} draws")
    for column in ("method", "m", "features", "negative", "Wasserstein", "Kolmogorov-Smirnov", "total variation"):
        table.add_column(column)
    for column in ("method", "m", "Wasserstein between vectors"):
        few.add_column(column)
    for name in METHODS:
        for m in SIZES:
            count, found = reports(name, m, queries, classes, DRAWS)
            table.add_row(name, str(m), str(count), *(cell(found[:, i]) for i in range(4)))
            _, found = reports(name, m, queries[:MOVED_CONTEXTS], classes[:MOVED], MOVED_DRAWS, "vectors")
            few.add_row(name, str(m), cell(found[:, 1]))
    return table, few


def main() -> None:
    text, names = read_text()
    frequency = torch.bincount(text).double() / len(text)
    unigram = float((-frequency * frequency.log()).sum().exp())
    console = Console(width=150)
    console.print(
        f"Python {platform.python_version()}: {len(text):,} words, {len(names):,} classes; the perplexity by frequency "
        f"alone, on all words, is {unigram:.0f}"
    )
    for temperature in TEMPERATURES:
        model, contexts, perplexity = train(text, len(names), temperature)
        console.print(f"lengths 1 / {temperature}: perplexity {perplexity:.0f}")
        console.print(*compare(model, contexts))


if __name__ == "__main__":
    main()
