"""Claims of a text or a caption, where a figure has no numbers."""

from benchmarks.record import Value


def claim(name: str, ours: float, error: float, bound: float, why: str = "") -> Value:
    """Return the claim that something is below a bound: how many standard errors it is above it, if it is."""
    excess = ours - bound
    z = 0.0 if excess <= 0 else excess / error if error > 0 else float("inf")
    return Value(name, ours, error, f"< {bound:g}", why=why, z=min(z, 99.0))
