"""`python -m rfgp` is `rfgp`."""

from rfgp.cli import main

if __name__ == "__main__":
    main()
