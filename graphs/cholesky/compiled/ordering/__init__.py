"""Loops of fill-reducing orders: separators, their refinement, and minimum degree."""
