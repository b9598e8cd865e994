"""The library's messages in the words of the command line."""

import re
from pathlib import Path

import pytest
import typer.main
from commands import fail, run

import rfgp
from rfgp.cli import speech
from rfgp.cli.common import show_warning
from rfgp.cli.program import app


def learn(command):
    speech.learn_options(typer.main.get_command(app).commands[command])


@pytest.mark.parametrize(
    ("command", "message", "printed"),
    [
        ("fit", 'Give missing="drop", or missing="mean".', "Give --missing drop, or --missing mean."),
        ("predict", 'it is UTF-16 text; give encoding="utf-16".', "it is UTF-16 text; give --encoding utf-16."),
        ("fit", 'give comment="#" to skip such lines.', "give --comment '#' to skip such lines."),
        ("fit", 'Give decimal="," where', "Give --decimal , where"),
        ("fit", "leave it out with drop='a b'.", "leave it out with --drop 'a b'."),
        ("fit", "leave it out with drop='a'.", "leave it out with --drop 'a'."),
        ("fit", "leave it out with drop=3.", "leave it out with --drop 3."),
        ("fit", "fit_rows must be at least 2, got 1.", "--fit-rows must be at least 2, got 1."),
        ("compare", "draws must be at least 1, got 0.", "--draws must be at least 1, got 0."),
        ("fit", "draws must be at least 1, got 0.", "draws must be at least 1, got 0."),
        ("compare", "so num_walkers must be even, got 3.", "so --num-walkers must be even, got 3."),
        ("compare", "Ask for fewer with num_train and num_test.", "Ask for fewer with --num-train and --num-test."),
        ("fit", "column 'fit_rows' of /a/num_test/fit_rows.csv", "column 'fit_rows' of /a/num_test/fit_rows.csv"),
        ("predict", "needed for update. Call condition(X, y) first, or save it with data=True.",
         "needed for update. Fit it again with --with-data."),
        ("traffic", 'Pass metric="euclidean" for', "Pass --metric euclidean for"),
        ("traffic", "Pass within= for more, or skip=True to", "Pass --within for more, or --skip to"),
        ("mesh", "pass nodes=\"vertices\", or weights='unit'.", "pass --nodes vertices, or --weights unit."),
        ("fit", "leave the column out (drop='a' or categories=\"drop\").",
         "leave the column out (--drop 'a' or categories=\"drop\")."),
        ("mesh", "add them to missing_marks, name the column in as_categories or",
         "add them to --missing-mark, name the column in as_categories or"),
        ("mesh", "the exact process (features='exact', up to 20,000 nodes)",
         "the exact process (--features exact, up to 20,000 nodes)"),
    ],
)  # fmt: skip
def test_arguments_become_options_of_the_command(command, message, printed):
    learn(command)
    assert speech.as_options(message) == printed


def test_warnings_are_translated_as_well(capsys):
    learn("fit")
    show_warning(rfgp.VarianceStarvationWarning("Raise fit_rows."), rfgp.VarianceStarvationWarning)
    assert capsys.readouterr().err == "VarianceStarvationWarning: Raise --fit-rows.\n"


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("Raise max_iterations if they ran out; otherwise fix a hyperparameter or give it a prior.",
         "Another --kernel may help."),
        ("add a term such as k.Matern() with Vecchia()", "add a term such as Matern() to --kernel"),
        ("There is no data set 'x'. rfgp.datasets.names() lists all 35 of them.",
         "There is no data set 'x'. `rfgp datasets` lists all 35 of them."),
        ("Add k.Group('a') to the kernel, or drop the column", "Add Group('a') to --kernel, or --drop 'a'"),
    ],
)  # fmt: skip
def test_some_remedies_of_python_have_their_own_words(message, printed):
    learn("fit")
    assert speech.as_options(message) == printed


def test_the_phrases_are_those_of_the_library():
    """A message that is worded anew in the library must be worded anew here."""
    root = Path(rfgp.__path__[0])
    files = [*root.glob("*.py"), *root.glob("[!c]*/**/*.py"), *(root.parent / "graphs").rglob("*.py")]
    files += [*root.glob("couplings/**/*.py"), *root.glob("columns/*.py")]
    text = "".join(path.read_text("utf-8") for path in files).replace('\\"', '"')
    text = re.sub(r"[\"']\n\s*f?[\"']", "", text)  # texts in two parts
    text = re.sub(
        r"\{arguments\((.*?)\)\}", lambda found: found[1].replace("'", ""), text
    )  # names that adapters change
    assert [pattern for pattern, _ in speech.PHRASES if not re.search(pattern, text)] == []


READING = ["target", "missing", "drop", "as_category", "decimal", "thousands", "comment"]
READING += ["encoding", "missing_mark", "seed", "json"]
MODEL = ["kernel", "approximation", "likelihood", "inference", "log", "time_limit", "memory"]


@pytest.mark.parametrize(
    ("command", "words"), [("fit", READING + MODEL), ("advise", READING + MODEL), ("compare", READING)]
)
def test_commands_take_the_same_words(command, words):
    learn(command)
    assert [name for name in words if not speech.as_options(f"{name} must").startswith("--")] == []


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "default::rfgp.BooleanTargetWarning")
def test_a_mistyped_column_gets_a_hint_and_bad_ones_are_named(monkeypatch, capsys, tmp_path):
    rows = "".join(f"{i},{'x' if i == 3 else i},{'' if i == 5 else i},{i % 4 == 0}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("Size,weight,height,cheap\n" + rows)
    assert "Did you mean 'height'?" in fail(monkeypatch, capsys, "fit", tmp_path / "t.csv", "--target", "hieght")
    err = fail(monkeypatch, capsys, "fit", tmp_path / "t.csv", "--drop", "size")
    assert "no column 'size'. The columns are Size, weight, height, cheap. Did you mean 'Size'?" in err
    options = ("--missing-mark", "x", "--out", tmp_path / "o", "--no-compare", "--kernel", "RBF()")
    err = fail(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options)
    for words in (
        "column 'weight' has 1 missing",
        "column 'height' has 1 missing",
        "Rows count from 0, after the header.",
    ):
        assert words in err

    def stop(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("rfgp.report.study_table", stop)
    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, capsys, "fit", tmp_path / "t.csv", *options, "--missing", "drop")
    err = capsys.readouterr().err
    assert "BooleanTargetWarning: " in err
    assert "the target 'cheap' holds booleans. They are fitted as 0 and 1." in err
