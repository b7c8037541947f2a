"""Blocks on the terminal."""

from rich.console import Console

from fedsim.reports.document import terminal
from fedsim.reports.document.blocks import Label, Listing, Prose, Told, tabulated

ROWS = [["a [red] server", "1.5", "≥ 2"], ["b", "10.25", None]]
TABLE = tabulated(["who", "z", "ε"], ROWS)


def on_terminal(*blocks, width=60):
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(terminal.shown(*blocks))
    return capture.get()


def test_the_terminal_has_numbers_flush_right_and_reads_no_text_as_markup():
    lines = on_terminal(TABLE).splitlines()
    assert [line for line in lines if "[red]" in line] == [" a [red] server   1.5 ≥ 2 "]
    assert [line for line in lines if "10.25" in line] == [" b              10.25   – "]


def test_no_number_is_cut_where_room_is_short():
    shown = on_terminal(terminal.table(TABLE), width=14)
    assert "10.25" in shown and "1.5" in shown and "server" in shown
    assert "…" not in shown


def test_the_terminal_shows_what_stands_around_tables():
    shown = on_terminal(Prose("Said."), Label("Alarm:", "loud"), Listing([("rounds", "3")]))
    assert shown.splitlines()[:2] == ["Said.", "Alarm: loud"]
    assert " rounds 3 " in shown


def test_a_screen_keeps_every_alarm_caution_and_step_and_leaves_out_explanations_first():
    told = Told(
        kind="Study",
        name="small",
        release="Release nothing.",
        answer=["The answer.", "A second sentence."],
        alarms=[f"Alarm {n} is raised. Its details." for n in range(4)],
        legend="What the columns mean.",
        remarks=["A remark."],
        cautions=["Nothing is protected.", "Nor is this."],
        label="A label of several lines. " * 12,
        steps=["First decide.", "Then do."],
    )
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(terminal.told(told))
    shown = capture.get()
    for kept in ("Alarm 0", "Alarm 3", "Nothing is", "Nor is", "First decide.", "Then do."):
        assert kept in shown
    assert "A label" not in shown and "More: add -v." in shown
    assert len(shown.splitlines()) <= terminal.MOST_LINES
