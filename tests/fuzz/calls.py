"""Public calls."""

TARGETS = []
