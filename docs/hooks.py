"""The site's pages that are made from the code: keys, commands, the report's schema, functions.

mkdocs calls the functions whose names begin with `on_`; `mkdocs.yml` names this file. Nothing that
they write is kept, so that no page is older than the code that it describes.
"""

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import typer

import fedsim
from fedsim.audits.results.conditions import APP
from fedsim.cli.main import app
from fedsim.config import Config
from fedsim.config.documentation import every_key
from fedsim.config.refused import REFUSED
from fedsim.report.kinds.schema import of_kinds

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
                    page[name] = [COMMANDS, *_entries("fedsim", typer.main.get_command(app))]
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
    (_, whole), *others = commands()
    return {
        "reference/keys.md": "\n".join(_keys_page()),
        COMMANDS: "\n".join(_commands_page(whole)),
        "reference/report-schema.md": "\n".join(_schema_page()),
        "reference/functions.md": "\n".join(_functions_page()),
    } | {_place(path): "\n".join(_command_page(path, each)) for path, each in others}


# --- The Python API


def _functions_page() -> Iterator[str]:
    """Yield what mkdocstrings makes the docstrings of the API of: functions, then classes."""
    yield "# Every function"
    yield ""
    yield "Made from the docstrings. What they are for, with examples: [Python API](api.md)."
    for name, module in sorted(fedsim.API.items(), key=lambda each: (each[0][0].isupper(), each)):
        yield f"\n## fedsim.{name} {{: #fedsim.{name} }}\n\n::: {module}.{name}"


# --- Configuration keys


def _keys_page() -> Iterator[str]:
    yield "# Every configuration key\n"
    yield (
        "Made from `fedsim/config/` of this version. "
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
    yield "## What goes together\n"
    yield "If every statement of the first column holds, every statement of the second must hold.\n"
    yield "| where | needs | because | otherwise |\n|---|---|---|---|"
    for need in REFUSED:
        parts = (" and ".join(each.words for each in part) for part in (need.what, need.needs))
        yield f"| {' | '.join(map(_cell, (*parts, need.why, need.instead)))} |"


# --- Commands


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that help lists, with its whole name."""
    yield from _within("fedsim", typer.main.get_command(app))


def _within(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, each in _children(path, command):
        yield from _within(name, each)


def _children(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group that help lists; nothing of another command."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            if not each.hidden:
                yield f"{path} {name}", each


def _place(path: str) -> str:
    """Return the page of a command within `docs/`; that of `fedsim` lists all."""
    _, *words = path.split()
    return f"reference/commands/{'-'.join(words)}.md" if words else COMMANDS


def _entries(path: str, command: click.Command) -> list[dict[str, Any]]:
    """Return the navigation's entries of a group's commands, in the order of the help."""
    return [
        {name.rpartition(" ")[2]: [_place(name), *inner] if inner else _place(name)}
        for name, each in _children(path, command)
        for inner in [_entries(name, each)]
    ]


def _commands_page(fedsim_command: click.Command) -> Iterator[str]:
    yield "# Every command\n"
    yield "Made from the commands of this version. Each has a page: what its `--help` prints.\n"
    yield (
        "Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted. `fedsim audit` has more, "
        "[by what it concludes](../how-to/auditing.md#exit-status), and so have `--fail-if` and "
        "`fedsim verify` ([release gate](../how-to/release-gate.md)).\n"
    )
    yield from _listed(((path, each) for path, each in commands() if path != "fedsim"), "commands/")
    yield from _usage("fedsim", fedsim_command)


def _listed(listed: Iterable[tuple[str, click.Command]], folder: str) -> Iterator[str]:
    yield "| command | what it does |\n|---|---|"
    for path, command in listed:
        link = folder + _place(path).rpartition("/")[2]
        yield f"| [`{path}`]({link}) | {_cell(command.get_short_help_str(200))} |"
    yield ""


def _command_page(path: str, command: click.Command) -> Iterator[str]:
    yield f"# {path}\n"
    yield inspect.cleandoc(command.help or "").replace("\f", "") + "\n"
    if isinstance(command, click.Group):
        yield from _listed(_children(path, command), "")
    else:
        yield from _usage(path, command)
    yield "[Every command](../commands.md)"


def _usage(path: str, command: click.Command) -> Iterator[str]:
    usage = " ".join([path, *command.collect_usage_pieces(click.Context(command))])
    yield f"```text\n{usage}\n```\n"
    rows = [row for row in map(_parameter, command.params) if row]
    if rows:
        yield "| argument or option | meaning | default |\n|---|---|---|"
        yield from rows
        yield ""


def _parameter(parameter: click.Parameter) -> str:
    """Return the row of an argument or option; nothing for what help hides."""
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    metavar = parameter.make_metavar(click.Context(click.Command("fedsim")))
    if isinstance(parameter, click.Option):
        flags = parameter.opts + parameter.secondary_opts
        shown = " ".join([", ".join(flags), *([] if parameter.is_flag else [metavar])])
    else:
        shown = metavar
    default = parameter.default
    if callable(default) or default in (None, False, ()) or getattr(parameter, "required", False):
        default = ""
    words = _cell(getattr(parameter, "help", None) or "")
    return f"| `{_cell(shown)}` | {words} | {f'`{default}`' if default != '' else ''} |"


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
