"""A table with a trend, a week, stores and a price: fit the sum, read each term, compare with the exact process.

    python examples/terms.py [PICTURE]

With the path of a PNG file it draws the terms (matplotlib). It drew the picture in the README.
"""

import sys
from pathlib import Path

import numpy as np

import rfgp
from rfgp import kernels as k


def sales(n: int = 400) -> dict[str, np.ndarray]:
    """Return made daily sales of three stores: a dict of columns (n,)."""
    rng = np.random.default_rng(0)
    day, price = np.arange(float(n)), rng.uniform(1, 3, n)
    store = rng.choice(["north", "south", "west"], n)
    units = 20 + 3 * np.sin(day / 50) + 1.5 * np.sin(2 * np.pi * day / 7) - 4 * price + 2 * (store == "west")
    return {"day": day, "store": store, "price": price, "units": units + rng.normal(size=n)}


def draw(gp: rfgp.GP, path: Path) -> None:
    """Draw the effects of the trend and of the week with their 95 % bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    for axes, (term, days) in zip(figure.subplots(1, 2), (("trend", 400), ("week", 14)), strict=True):
        day = np.linspace(0, days, 300)
        new = {"day": day, "store": ["west"] * 300, "price": np.full(300, 2.0)}
        effect = gp.predict(new).terms[term].centered()
        low, high = effect.interval(0.95)
        axes.fill_between(day, low, high, alpha=0.3, lw=0)
        axes.plot(day, effect.mean)
        axes.set(title=term, xlabel="day", ylabel="units")
    figure.savefig(path, dpi=110)


def main() -> None:
    table = sales()
    kernel = (
        k.RBF("day", name="trend") + k.Periodic("day", period=7, name="week") + k.Group("store") + k.Linear("price")
    )
    gp = rfgp.GP(kernel, seed=0).fit(table, "units")
    for name, term in gp.terms.items():
        print(f"{name}: {term.share:.0%} of the variance, {term.degrees_of_freedom:.1f} degrees of freedom")
    new = {"day": [400, 401], "store": ["west", "a new one"], "price": [2.0, 2.0]}
    print(gp.predict(new).mean, gp.predict(new).std)
    near = gp.with_approximation({"trend": rfgp.RandomFeatures(64)})
    rows = {name: column[::20] for name, column in table.items()}
    print("KL to the exact process:", rfgp.metrics.kl_divergence(gp.exact().predict(rows), near.predict(rows)))
    if len(sys.argv) > 1 and sys.argv[1].endswith(".png"):
        draw(gp, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
