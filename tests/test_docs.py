"""What the pages say of the code is true: their snippets print what stands behind them."""

import re
import shlex
import sys
from importlib import import_module, util
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
from cyclopts import CoercionError, CycloptsError, MissingArgumentError

from adversaries.errors import InputError
from fedsim.commands import main
from fedsim.configuration import KNOWN_KEYS
from fedsim.federation.protocol.consent import BOUNDS
from tests.console import run

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""A change names commands that are gone."""


def _script(path):
    """Return a script, which is no module of a package."""
    name = Path(path).stem
    spec = util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


EXECUTED, DRAWINGS = _script("docs/executed.py"), _script("docs/drawings.py").DRAWINGS
GALLERY = SimpleNamespace(src_uri=EXECUTED.GALLERY)
GENERATED = {
    f"docs/{path}": page for path, page in _script("docs/hooks.py").generated_pages().items()
}
SNIPPET = re.compile(
    r'^(?P<indent> *)python -c "\n(?P<code>.*?)"\n(?:(?P=indent)# (?P<printed>[^\n]*)\n)?',
    re.M | re.S,
)
"""A command of the shell's, alone on its lines, with what it prints in a comment behind it."""

SNIPPETS = [
    pytest.param(dedent(found["code"]), found["printed"], id=f"{page.name}-{place}")
    for page in PAGES
    for place, found in enumerate(SNIPPET.finditer(page.read_text()))
]


@pytest.mark.parametrize(("code", "printed"), SNIPPETS)
def test_a_snippet_prints_what_its_page_says(code, printed, capsys):
    exec(compile(code, "snippet", "exec"), {})
    out = capsys.readouterr().out.strip()
    assert printed is None or out == printed


def test_no_snippet_is_overlooked():
    """Commands with surroundings of their own (a prompt, an environment) are no snippets."""
    begun = sum(len(re.findall(r"^ *python -c", page.read_text(), re.M)) for page in PAGES)
    assert begun == len(SNIPPETS) > 0


def _on_pages(find, pages=PAGES):
    """Return a mark with every page that has something to check, and what that is."""
    found = [
        pytest.param(page, every, id=str(page.relative_to(ROOT)))
        for page in pages
        if (every := list(find(page.read_text())))
    ]
    assert found
    return pytest.mark.parametrize(("page", "found"), found)


IMPORT = re.compile(r"^ *(from (?:fedsim|adversaries)\b.* import .*)$", re.M)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")
PICTURE = re.compile(r"!\[([^]]*)\]\(")


@_on_pages(IMPORT.findall)
def test_what_a_page_imports_exists(page, found):
    for line in found:
        exec(line, {})


@_on_pages(LINK.findall)
def test_what_a_page_links_to_exists(page, found):
    for path, heading in found:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or heading in _anchors(target), (path, heading)


def _anchors(page):
    """Return what the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DRAWINGS)
def test_a_drawing_is_what_the_script_draws(path):
    """Otherwise: python docs/drawings.py."""
    assert (ROOT / path).read_text() == DRAWINGS[path]().svg()


@_on_pages(PICTURE.findall)
def test_a_picture_says_in_words_what_it_shows(page, found):
    for words in found:
        assert len(words.split()) >= 5, words


def test_the_gallery_has_a_row_for_every_kind_of_page():
    page = (ROOT / "docs" / EXECUTED.GALLERY).read_text()
    rows = EXECUTED.ROW.findall(page)
    kinds = [EXECUTED.kind_of(name) for name, _ in rows]
    assert sorted(kinds) == sorted(_script("tests/corpus.py").PAGES)
    assert all(question.endswith("?") for _, question in rows)
    shown = EXECUTED.on_page_markdown(page, SimpleNamespace(file=GALLERY), None, None)
    assert shown.count("<iframe") == len(rows)
    assert all(f'<iframe src="../gallery/{kind}.html"' in shown for kind in kinds)


def test_a_notebook_becomes_a_page_with_its_output(tmp_path):
    new = nbformat.v4
    outputs = [
        new.new_output("stream", text="58%\n"),
        new.new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"}),
    ]
    cells = [
        new.new_markdown_cell("See [more](more.ipynb)."),
        new.new_code_cell("print(1)", outputs=outputs),
    ]
    nbformat.write(new.new_notebook(cells=cells), tmp_path / "one.ipynb")
    text, pictures = EXECUTED.as_markdown(tmp_path / "one.ipynb")
    assert "See [more](more.md).\n\n```python\nprint(1)\n```\n\n```text\n58%\n```" in text
    assert pictures == {"one-1.png": b"hi"}
    assert "](one-1.png)" in text


COMMAND = re.compile(
    r"(?:^|(?<=[$(] )|(?<=&& )|(?<=; ))(?:\S+/bin/)?"
    r"(fedsim (?:'[^']*'|(?!, then|    \d+ trial)[^&|;>)])*)"
)
"""A command of fedsim's: where its line begins, after a prompt, or after another command."""


def _commands(page):
    """Yield the commands that stand in the blocks of a page, or in its text as `code`."""
    page = re.sub(r"\$\([^)]*\)", "FILE", page.replace("\\\n", " "))
    fenced = re.findall(r"^ *```(?:sh|console|text)?\n(.*?)^ *```", page, re.M | re.S)
    text = re.sub(r"^ *```.*?^ *```", "", page, flags=re.M | re.S)
    blocks = [*fenced, *re.findall(r"(?:^ {4}.*\n)+", text, re.M)]
    for line in (line for block in blocks for line in dedent(block).splitlines()):
        for found in COMMAND.findall(line.partition("[-")[0]):  # before options as a usage has them
            yield shlex.join(shlex.split(found, comments=True))
    yield from re.findall(r"(?<!`)`(fedsim [^`]*)`", text)


def _parse(words):
    """Read a command line as far as its options go. Raises InputError or CycloptsError."""
    words = [word for word in words if word not in ("...", "…")]
    if not words or words[0] in ("--help", "--version", "--install-completion"):
        return
    while words[:1] == ["--allow-code"]:
        words = words[2:]
    if not words:
        return
    name = main.named(words)
    if name != "deploy":
        main.application(name).parse_args(words)


@_on_pages(_commands, CURRENT)
def test_the_commands_of_a_page_exist_with_their_options(page, found):
    for line in found:
        try:
            _parse(shlex.split(line)[1:])
        except (MissingArgumentError, CoercionError):
            pass  # a text names an option without a value, or a stand-in for it
        except (CycloptsError, InputError) as error:
            pytest.fail(f"{line}: {error}")


STAND_INS = {
    **dict.fromkeys(("CONFIG", "FILE", "configs/mnist.toml"), "digits"),
    **dict.fromkeys(("RUN", "RUN_DIR", "RUN_DIRECTORY"), "fedsim-runs/digits"),
    **{"bank.csv": "patients.csv", "readmitted": "diagnosis", "default": "diagnosis"},
    **{"KEY": "privacy.delta", "D": "1e-4", "E": "1", "Z": "1", "K": "30", "Q": "0.1"},
    "privacy.delta=D": "privacy.delta=1e-4",
    **dict.fromkeys(("data.root=DIR", "data.pool=0", "model.weights="), ""),
}
"""What a word of a page stands for: a name, or a file that no clone has."""

ELSEWHERE = re.compile(
    r"deploy (?!certificates|init h|init k)|audit app|--(track|follow|cluster|simulation|open)"
    r"|--auditor|--data-root D|DIRECTORY|\bDIR\b|adult|movielens|fine-tune|bank-choice|texts|cuda"
    r"|\.fedt|transcripts|--allow-code (?!mine:low)|mine:[A-Zt]|MODULE|my-app|A B C|runs/central"
    r"|/\*|client}|secagg|train RUN|choose-belief|…|\.\."
)
"""Commands that need services, other machines, or records and code that no clone has."""

SMALL = {
    "run": ["trials.count=8", "training.rounds=6"],
    "attack": ["trials.count=8", "training.rounds=6"],
    "train": ["training.rounds=6"],
    "choose": ["trials.count=8", "training.rounds=2", "data.records=30", "data.pool=60"],
    "sensitivity": ["data.pool=60"],
    "audit": ["--trials", "20"],
}
"""What makes a command small; of a key's values, the last one counts."""

MINE = """
import numpy as np
def low_loss(targets, shadows):
    return -targets.losses
def train(features, labels, seed):
    return [np.zeros(3)]
def coefficients(features, labels, generator):
    return np.mean(features, axis=0)
"""
DIGITS = "run digits trials.count=8 training.rounds=2 data.records=30 data.pool=60 --out"
MADE = {
    **{f"fedsim-runs/{name}": f"{DIGITS} fedsim-runs/{name}" for name in ("digits", "stricter")},
    **{f"fedsim-runs/{name}": f"{DIGITS} fedsim-runs/{name}" for name in ("vantages", "hospital")},
    "fedsim-runs/model": "train hospital.toml training.rounds=2 --out fedsim-runs/model",
    "hospital.toml": "init hospital.toml --data patients.csv --label diagnosis",
    "bank.toml": "init bank.toml --data patients.csv --label diagnosis",
}
"""The command that makes what the commands of other pages made."""


def _laid_out(folder):
    """Write the files that the commands of pages name into a folder."""
    for name in ("configs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    people = "".join(f"{age},{age % 7},{age % 2}\n" for age in range(20, 80))
    (folder / "patients.csv").write_text(f"age,visits,diagnosis\n{people}")
    (folder / "scores.csv").write_text("included,score\n" + "1,0.9\n0,0.1\n" * 30)
    for name in ("mine.py", "my_analysis.py"):
        (folder / name).write_text(MINE)
    np.savez(folder / "records.npz", features=np.eye(60), labels=np.arange(60) % 2)
    (folder / "rounds.toml").write_text("[[rounds]]\ncount = 90\nnoise-multiplier = 8.0\n")


def _made(words):
    """Make what a command names, and what that takes, if it is not there."""
    for word in words:
        makes = words[0] == "init" or f"--out {word}" in " ".join(words)
        if word in MADE and not (makes or Path(word).exists()):
            made = MADE[word].split()
            _made(made[:2])
            assert run(made).exit_code == 0


def _run_here():
    """Return each page with the commands that run here and stand on no page before it."""
    seen, pages = set(), []
    for page in CURRENT:
        found = {}
        for line in _commands(page.read_text()):
            words = [STAND_INS.get(word, word) for word in shlex.split(line)[1:]]
            words = [word for word in words if word]
            if not ELSEWHERE.search(line) and len(words) >= 2 + (words[0] == "deploy"):
                found.setdefault(" ".join(words), words)
        if new := [found[each] for each in found if each not in seen]:
            pages.append(pytest.param(new, id=str(page.relative_to(ROOT))))
        seen |= found.keys()
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("commands", _run_here())
def test_the_commands_of_a_page_run_in_small_sizes(commands, tmp_path, monkeypatch):
    """What a page calls bad input, or has no result, is no example."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fedsim.reports.page.Pictures.drawn", {})
    _laid_out(tmp_path)
    for words in commands:
        if "--trials" in words:
            del words[(at := words.index("--trials")) : at + 2]
        _made(words)
        is_run = Path(words[1], "config.toml").exists()
        small = [] if is_run or words[1].endswith(".csv") else SMALL.get(words[0], [])
        line = " ".join(words)
        small = [each for each in small if f"--over {each.partition('=')[0]}" not in line]
        result = run([*words, *small])
        # A search in a small size may find nothing.
        fine = (0, 1, 3, 4) if words[0] == "choose" else (0, 3, 4)
        assert result.exit_code in fine, (words, result.stderr)


PROMPT = re.compile(r"^ *\$ (fedsim account [^\n]*)\n((?: +[^ $\n][^\n]*\n)+)", re.M)
BLOCK = r"^```sh\n(fedsim account [^\n]*)\n(?:[^`]*\n)?```\n\n```text\n(.*?)^```"
"""A command at a prompt, or at the beginning of a block, with the output that stands behind it."""


def _accounts(page):
    """Yield the commands of `account` with the output that stands behind them."""
    yield from PROMPT.findall(page)
    yield from re.findall(BLOCK, page, re.M | re.S)


def _words(text):
    """Return text without line breaks and the lines of tables."""
    return " ".join(re.sub(r"[┃│━─┏┓┗┛┳┻┡┩╇└┘┴┬┼├┤]", " ", text).split())


@pytest.mark.slow
@_on_pages(_accounts)
def test_an_account_prints_what_its_page_shows(page, found, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command, shown in found:
        printed = _words(run(shlex.split(command, comments=True)[1:]).stdout)
        for part in re.split(r"…|\.\.\.", shown):
            assert _words(part) in printed, command


def test_every_key_and_every_command_is_on_a_generated_page():
    keys, commands = GENERATED["docs/reference/keys.md"], GENERATED["docs/reference/commands.md"]
    for key in KNOWN_KEYS:
        assert re.search(rf"^\| `{key}` \| [^|]", keys, re.M), key
    assert all(f"| `{bound.key}` | {bound.range} | {bound.why} |" in keys for bound in BOUNDS)
    for name in ("run", "account", "deploy init"):
        path = f"commands/{name.replace(' ', '-')}.md"
        assert f"| [`fedsim {name}`]({path}) | " in commands
        assert GENERATED[f"docs/reference/{path}"].startswith(f"# fedsim {name}\n")
    assert "| `--workers INT` | " in GENERATED["docs/reference/commands/run.md"]


def test_every_registry_of_the_table_exists():
    page = (ROOT / "docs" / "how-to" / "extending.md").read_text()
    table = next(part for part in page.split("\n\n") if part.startswith("| to add"))
    rows = [row for row in table.splitlines() if row.startswith("|")][2:]
    assert len(rows) > 10
    for row in rows:
        _, write, place, _ = row.removeprefix("|").removesuffix("|").split("|")
        paths = [each for each in re.findall(r"`([^`]+)`", write) if each.endswith(".py")]
        assert all((ROOT / path).exists() for path in paths), row
        *names, path = re.findall(r"`([^`]+)`", place)
        module = import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        for name in names:
            assert getattr(module, name), row
