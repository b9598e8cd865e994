"""Softmax sampling in a language model: distances of estimated distributions of the next word to the true ones.

The hybrid paper samples from the softmax of a language model trained on Penn Treebank, which is not freely available.
This is its application at the size of a laptop.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from pydoc_data import topics

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import couplings
from rfgp.couplings import Frequencies
from rfgp.features import softmax
from rfgp.features.softmax import FeaturePair
from rfgp.features.softmax.coefficients import Constant
from rfgp.sampling import SoftmaxSampler

CONTEXT, EMBEDDED, HIDDEN, WIDTH, TEMPERATURES = 4, 32, 256, 64, (0.3, 0.6)
EPOCHS, BATCH, LEAST = 6, 256, 3
SIZES, DRAWS, JUDGED = (64, 256, 1024), 10, 200
DISTANCES = ("negative", "Wasserstein", "Kolmogorov-Smirnov", "total variation")
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
    """Return the model, held-out contexts (200, 4), and its perplexity on such contexts."""
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
    """Return the number of features, and the scores of `SamplingReport` (draws, 5)."""
    found = []
    for draw in range(draws):
        pair = METHODS[name](m, torch.Generator().manual_seed(draw))
        found.append(astuple(SoftmaxSampler(pair, classes).report(queries, ground=ground)))
    return pair.num_features, np.array(found)


@torch.no_grad()
def _judged(model: LanguageModel, contexts: Tensor, draws: int) -> list[Value]:
    """Return the distances of each method, and at the most frequent words the one between vectors."""
    queries, classes = model.queries(contexts).double(), model.classes().double()
    values = []
    for name in METHODS:
        for m in SIZES:
            count, found = reports(name, m, queries, classes, draws)
            label = f"length {1 / model.temperature:.1f}, {name}, {count} features"
            means, errors = found.mean(0), found.std(0, ddof=1) / draws**0.5
            values += [Value(f"{label}: {w}", means[i], errors[i]) for i, w in enumerate(DISTANCES)]
            _, few = reports(name, m, queries[:MOVED_CONTEXTS], classes[:MOVED], min(draws, MOVED_DRAWS), "vectors")
            moved = few[:, 1]
            values.append(Value(f"{label}: between vectors", moved.mean(), moved.std(ddof=1) / len(moved) ** 0.5))
    return values


@figure("softmax sampling in a small language model")
def language_model(scale: Scale) -> Entries:
    """Return distances of estimated distributions of the next word from the true ones.

    Fixed before the results were seen, but for the second length. The text is the language reference that every CPython
    carries (`pydoc_data.topics`), in lower case, words and punctuation; words seen less than {LEAST} times are one
    class. The model reads {CONTEXT} words, embedded in {EMBEDDED} numbers each, through a hidden layer of {HIDDEN};
    vectors of contexts and words have one length, and {WIDTH} numbers. Trained with the exact softmax by AdamW (rate
    2e-3, weight decay 0.1, batches of {BATCH}, {EPOCHS} epochs) on the first nine tenths; the last tenth gives the
    perplexity and {JUDGED} contexts. Topics repeat each other's passages, the last tenth too, which makes perplexities
    low. Positive ones and hybrids over orthogonal directions where it says so, hybrids with lambda = 1/2 or the angular
    one with {SIGNS} signs; m = 64, 256, 1024 projections, features as counted. Share of negative estimates; Wasserstein
    distance with words at 0 ... 1 in the order of their frequency; Kolmogorov-Smirnov distance in the same order; total
    variation: means over contexts, errors over {DRAWS} draws. Between vectors: the Wasserstein distance between word
    vectors for the {MOVED} most frequent words as the classes, {MOVED_CONTEXTS} contexts, {MOVED_DRAWS} draws.
    """
    text, names = read_text()
    frequency = torch.bincount(text).double() / len(text)
    unigram = float((-frequency * frequency.log()).sum().exp())
    values, draws = [Value("classes", len(names)), Value("perplexity by frequency alone", unigram)], scale(DRAWS)
    for temperature in TEMPERATURES:
        model, contexts, perplexity = train(text, len(names), temperature)
        values.append(Value(f"length {1 / temperature:.1f}: perplexity", perplexity))
        values += _judged(model, contexts, draws)
    return values, (
        "A second model, with lengths 1 / 0.6, was added after the results of the first were seen, where no estimator"
        " is good.",
    )


FIGURES: dict[str, Figure] = {"language-model": language_model}
