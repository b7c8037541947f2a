"""The site's pages that are made from the code: keys, commands, the report's schema, functions.

mkdocs calls the functions whose names begin with `on_`; `mkdocs.yml` names this file. Nothing that
they write is kept, so that no page is older than the code that it describes.
"""

import inspect
import json
import re
import runpy
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import fedsim
from fedsim.audits.results.conditions import APP
from fedsim.commands import main
from fedsim.configuration import Config
from fedsim.configuration.documentation import every_key
from fedsim.configuration.refused import REFUSED
from fedsim.federation.protocol.consent import BOUNDS
from fedsim.reports.kinds.schema import of_kinds

ROOT = Path(__file__).parents[1]

OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+(?!docs/)([^)#]+)(?:#[^)]*)?\)")
"""A link from a page to a file of the repository that is no page of the site."""

COMMANDS = "reference/commands.md"

WHOLE = re.compile(r"\A(?:\.\./)+")


def on_config(config: Any) -> Any:
    """Name the repository, if its owner is known, and list the pages of the commands."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    if not hook["owner"].startswith("_"):  # the placeholder of RELEASING.md
        config.repo_url = hook["urls"]["Source"].replace("{owner}", hook["owner"])
    for chapter in config.nav:
        for pages in chapter.values():
            for page in pages if isinstance(pages, list) else ():
                if COMMANDS in page.values():
                    (name,) = page
                    page[name] = [COMMANDS, *_entries()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site's files."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # an extra: the tests do without it

    for path, page in generated_pages().items():
        files.append(File.generated(config, path, content=page))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Name the files of the repository that a page links to, which the site does not hold."""
    depth = page.file.src_uri.count("/")

    def named(found: re.Match[str]) -> str:
        words, path = found[1], found[2]
        above = WHOLE.match(found[0][found[0].index("](") + 2 :])
        if above is None or above[0].count("../") <= depth:
            return found[0]  # another chapter
        return words if path in words else f"{words} (`{path}`)"

    return OUTSIDE.sub(named, markdown)


def generated_pages() -> dict[str, str]:
    """Return the pages by their path within `docs/`."""
    return {
        "reference/keys.md": "\n".join(_keys_page()),
        COMMANDS: "\n".join(_commands_page()),
        "reference/report-schema.md": "\n".join(_schema_page()),
        "reference/functions.md": "\n".join(_functions_page()),
        "reference/client-files.md": "\n".join(_client_page()),
    } | {_place(name): "\n".join(_command_page(name)) for name in main.everything()}


# --- The Python API


def _functions_page() -> Iterator[str]:
    """Yield what mkdocstrings makes the docstrings of the API of: functions, then classes."""
    yield "# Every function"
    yield ""
    yield "Made from the docstrings. What they are for, with examples: [Python API](api.md)."
    for name, module in sorted(fedsim.API.items(), key=lambda each: (each[0][0].isupper(), each)):
        yield f"\n## fedsim.{name} {{: #fedsim.{name} }}\n\n::: {module}.{name}"


# --- What a client runs


def _client_page() -> Iterator[str]:
    files = runpy.run_path(str(ROOT / "docs" / "client_files.py"))["of_client"]()
    yield "# What a client runs\n"
    yield (
        f"The {len(files)} files of {sum(lines for lines, _ in files.values()):,} lines that a "
        "client's process loads for a training. Calibration, canaries, attacks, and what only some "
        "networks, accountants or data sets need come on top, where a request asks for them.\n"
    )
    yield "| file | lines | what it is for |\n|---|---|---|"
    for path, (lines, words) in files.items():
        yield f"| `{path}` | {lines} | {_cell(words)} |"


# --- Configuration keys


def _keys_page() -> Iterator[str]:
    yield "# Every configuration key\n"
    yield (
        "Made from `fedsim/configuration/` of this version. "
        "[Configuration](configuration.md) says how files and overrides are read.\n"
    )
    for table, keys in groupby(every_key().values(), lambda key: key.key.partition(".")[0]):
        described = Config.model_fields[table].annotation
        yield f"## [{table}]\n"
        yield _cell((inspect.getdoc(described) or "").split("\n\n")[0]) + "\n"
        yield "| key | meaning | values | default |\n|---|---|---|---|"
        for key in keys:
            kind = f"{key.type}: {key.allowed}" if key.allowed else key.type
            default = json.dumps(key.default, ensure_ascii=False)
            yield f"| `{key.key}` | {_cell(key.meaning)} | {_cell(kind)} | `{default}` |"
        yield ""
    yield "## What a server may set\n"
    yield "A deployed client refuses a run beyond these ranges before it reads anything.\n"
    yield "| key | range | reason |\n|---|---|---|"
    for bound in BOUNDS:
        yield f"| `{bound.key}` | {bound.range} | {_cell(bound.why)} |"
    yield "\n## What goes together\n"
    yield "If every statement of the first column holds, every statement of the second must hold.\n"
    yield "| where | needs | because | otherwise |\n|---|---|---|---|"
    for need in REFUSED:
        parts = (" and ".join(each.words for each in part) for part in (need.what, need.needs))
        yield f"| {' | '.join(map(_cell, (*parts, need.why, need.instead)))} |"


# --- Commands


def _place(name: str) -> str:
    """Return the page of a command within `docs/`."""
    return f"reference/commands/{name.replace(' ', '-')}.md"


def _entries() -> list[dict[str, Any]]:
    """Return the navigation's entries of the commands, in the order of the help."""
    names = list(main.everything())
    deploy = [
        {name.removeprefix("deploy "): _place(name)} for name in names if name.startswith("deploy ")
    ]
    top = [{name: _place(name)} for name in names if " " not in name]
    return [*top, {"deploy": deploy}]


def _commands_page() -> Iterator[str]:
    yield "# Every command\n"
    yield "Made from the commands of this version. Each has a page: what its `--help` prints.\n"
    yield (
        "Exit status: 0 done, 1 failed or nothing found, 2 bad input, 3 cannot tell or a condition "
        "of `--fail-if`, 4 contradicted, 130 interrupted. `fedsim audit` says which "
        "[by what it concludes](../how-to/auditing.md#exit-status).\n"
    )
    yield "| command | what it does |\n|---|---|"
    for name, command in main.everything().items():
        link = _place(name).removeprefix("reference/")
        yield f"| [`fedsim {name}`]({link}) | {_cell(command.words)} |"
    yield ""


def _command_page(name: str) -> Iterator[str]:
    described = inspect.cleandoc(main.function(main.everything()[name]).__doc__ or "")
    yield f"# fedsim {name}\n"
    yield re.split(r"\n(?:Args|Returns|Raises):\n", described)[0] + "\n"
    listed = main.arguments(name)
    words = [each.name for each in listed if not each.name.startswith("-")]
    yield f"```text\nfedsim {' '.join([name, *words, '[OPTIONS]'])}\n```\n"
    yield "| argument or option | meaning | default |\n|---|---|---|"
    for each in listed:
        shown = f"{each.name} {each.value}".strip()
        default = f"`{each.default}`" if each.default else ""
        yield f"| `{_cell(shown)}` | {_cell(each.words)} | {default} |"
    yield "\n[Every command](../commands.md)"


# --- The report


def _schema_page() -> Iterator[str]:
    yield "# The report, key by key\n"
    yield (
        "Made from the classes in `fedsim/audits/`. `fedsim report --schema` prints the JSON "
        'Schema that `report.json` of a run or an audit keeps to; infinity is `"Infinity"` there. '
        "[The glossary](../start/glossary.md) has the terms.\n"
    )
    shared: dict[str, Any] = {}
    for kind, schema in of_kinds().items():
        for name, definition in schema["$defs"].items():
            known = shared.setdefault(name, definition)
            if {*known.get("properties", ())} != {*definition.get("properties", ())}:
                shared[f"{name} of {kind}s"] = definition
        yield from _object(f"report.json of {'an' if kind == APP else 'a'} {kind}", schema)
    for name, definition in sorted(shared.items()):
        yield from _object(name, definition)


ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.M)
"""An entry under "Attributes:" in the docstring of a class."""


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    told, _, attributes = schema.get("description", "").partition("\n\nAttributes:")
    yield f"{told}\n"
    meanings = dict(ATTRIBUTE.findall(attributes))
    if properties := schema.get("properties"):
        yield "| key | meaning | value |\n|---|---|---|"
        for key, value in properties.items():
            meaning = value.get("description") or meanings.get(key, "")
            yield f"| `{key}` | {_cell(meaning)} | {_value(value)} |"
        yield ""


def _value(schema: Mapping[str, Any]) -> str:
    """Return in words what a key of the report holds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        options = [_value(option) for option in schema["anyOf"] if not _is_infinity(option)]
        return " or ".join(dict.fromkeys(options))
    if values := schema.get("enum") or [schema[key] for key in schema if key == "const"]:
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    kind = schema.get("type", "anything").replace("boolean", "true or false")
    within = schema.get("additionalProperties" if kind == "object" else "items")
    if kind in WITHIN and isinstance(within, Mapping):
        return f"{WITHIN[kind]} {_value(within)}"
    if "prefixItems" in schema:
        return f"list of {_value({'anyOf': schema['prefixItems']})}"
    return kind


WITHIN = {"array": "list of", "object": "map to"}


def _is_infinity(schema: Mapping[str, Any]) -> bool:
    return "Infinity" in schema.get("enum", ())


def _cell(text: str) -> str:
    """Return text as a cell of a table has it."""
    return " ".join(text.split()).replace("|", "\\|")
