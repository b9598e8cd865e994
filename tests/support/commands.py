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


def succeed(monkeypatch, capsys, *arguments):
    """Return (standard output, standard error) of the command line, which must succeed."""
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 0, err
    return out, err


def fail(monkeypatch, capsys, *arguments):
    """Return the message of the command line, which must fail with code 1, on one line."""
    code, _, err = run(monkeypatch, capsys, *arguments)
    assert code == 1, err
    return " ".join(err.split())
