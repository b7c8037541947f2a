"""The documentation has one pooled table, and every number in a note of its source."""

from papers import notes
from papers.findings import MadeItem, Number, Reference, Reproduced


def _made(name, *numbers):
    finding = Reproduced("It holds.", numbers)
    return MadeItem("xiao", name, f"Item {name}: δ′", "full", "0", "", 0.0, f"make {name}", finding)


def _number(name, ours, source=None, why=""):
    exact = () if source is None else (Reference(source, (source - 0.01, source + 0.01)),)
    return Number(name, ours, (ours - 0.05, ours + 0.05), None, exact, why)


AGREES = _made("one", _number("a, x", 0.5, 0.52), _number("a, y", 0.25), _number("|b|, x", 0.75))
DEPARTS = _made("two", _number("first", 0.5, 0.5), _number("second", 0.5, 0.9, "C is another"))
ALONE = _made("three", _number("only", 0.5))


def test_the_pooled_table_shows_what_departs_before_what_agrees():
    text = notes.pooled([AGREES, DEPARTS, ALONE], "notes")
    link = "[Item one: δ′](notes/xiao.md#item-one-δ)"
    ours = "0.500 (0.450 to 0.550)"
    assert f"| {link} | a, x | 0.520 | {ours} | – | 1 of 1 agree |" in text
    assert f"| second | 0.900 | {ours} | – | 1 of 2 depart |" in text
    assert "Item three" not in text


def test_a_note_has_every_number_in_a_grid_where_names_make_one():
    grid, listed = notes.note("xiao", [AGREES, DEPARTS]).split("## Item two")
    shown = "0.500 (0.450 to 0.550); 0.520 published, agrees"
    assert f"| number | x | y |\n|---|---|---|\n| a | {shown} | 0.250 (0.200 to 0.300) |" in grid
    assert "| \\|b\\| | 0.750 (0.700 to 0.800) |  |" in grid
    assert "| second | 0.500 (0.450 to 0.550); 0.900 published, departs |" in listed
    assert "Departs because C is another." in listed


def test_a_sparse_grid_is_a_list():
    names = ("a: x", "b: y", "c: z")
    note = notes.note("xiao", [_made("four", *(_number(name, 0.5) for name in names))])
    assert all(f"| {name} | 0.500 (0.450 to 0.550) |" in note for name in names)


def test_a_folder_gets_a_note_of_each_source(tmp_path):
    notes.write_notes(tmp_path, [AGREES], "above\n\n")
    assert (tmp_path / "xiao.md").read_text("utf-8") == notes.note("xiao", [AGREES], "above\n\n")
