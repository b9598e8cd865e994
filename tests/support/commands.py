"""The command line within the process of a test."""

from rfgp import cli


def run(monkeypatch, capsys, *arguments):
    """Return (exit code, standard output, standard error) of the command line."""
    monkeypatch.setattr("sys.argv", ["rfgp", *map(str, arguments)])
    try:
        code = cli.main()
    except SystemExit as stop:
        code = stop.code
    out = capsys.readouterr()
    return code or 0, out.out, out.err
