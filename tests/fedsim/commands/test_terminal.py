"""Names that would command a terminal or Rich are shown, and end nothing."""

from rich.table import Table
from rich.text import Text

from fedsim.commands.terminal import Terminal

NAME = "[/red] :smile: \x1b[2J\x9b\u202e"


def test_a_run_ends_well_whatever_its_directory_is_named(fedsim, experiment, tmp_path):
    few = ("trials.count=4", "training.rounds=1")
    status, out, _ = fedsim("run", experiment, *few, "--out", tmp_path / NAME)
    assert status == 0
    (said,) = [line for line in out.splitlines() if line.startswith("Report: ")]
    assert said.endswith("[/red] :smile: \ufffd[2J\ufffd\ufffd/report.html")
    status, _, err = fedsim("run", experiment, *few, "--out", tmp_path / NAME)
    assert (status, "finished" in err, "\x1b" in err) == (0, True, False)
    status, _, err = fedsim("report", tmp_path / NAME, tmp_path / NAME)
    assert (status, "\x1b" in err) == (2, False)


def test_cells_titles_and_styled_text_are_cleaned_too(capsys):
    table = Table("[b]heading", title="[/title]")
    table.add_row("[/cell]\x07")
    Terminal().print(table, Text("\x1b[31mtext", "bold"), "[/]")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert all(part in shown for part in ("[b]heading", "[/title]", "[/cell]", "[31mtext", "[/]"))


def test_lines_in_a_file_end_where_their_words_end(capsys):
    table = Table("name", "what", box=None)
    table.add_row("a", "longer than its heading")
    table.add_row("b", "short")
    Terminal().print(table)
    assert all(line == line.rstrip() for line in capsys.readouterr().out.split("\n"))
