"""Groups of options that several commands share, each as one parameter of a command.

A group is a dataclass whose fields are options, annotated as a command's parameters are.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of its groups one by one, for Typer."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if is_dataclass(each.annotation)
    }
    parameters = [*_parameters(signature.parameters)]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _parameters(parameters: Mapping[str, inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command in their order, with a group's fields in its place."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    for each in parameters.values():
        if not is_dataclass(each.annotation):
            yield each.replace(kind=keyword)
            continue
        hints = get_type_hints(each.annotation, include_extras=True)
        for option in fields(each.annotation):
            yield inspect.Parameter(
                option.name, keyword, default=option.default, annotation=hints[option.name]
            )
