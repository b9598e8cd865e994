"""Compare with other packages: scores of races, the page of docs/rivals.md, and its pictures."""
