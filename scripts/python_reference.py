"""Writes docs/python-reference.md from the signatures and docstrings of the public names.

`python -m scripts.reference` writes it with the other pages.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any

import pushlane
from pushlane import testing
from pushlane.producers.task_options import TaskOptions

PAGE = "python-reference.md"
_DOCS = Path(__file__).parent.parent / "docs"
_WIDTH = 96

_HEAD = """# Python reference

Made by `python -m scripts.python_reference` from docstrings. How these are used together is in
[python.md](python.md). All names are in `pushlane`, but those of tests.
"""

_SECTIONS = {
    "Submit and steer": "Client SyncClient SubmitRequest SubmitResult SubmitProgress TaskView "
    "TaskNow ChangedTask DeadLetter",
    "Push one by one": "Producer ProducerOptions ProducerStats",
    "Deliver": "Dispatcher Sink Delivery Outcome Push on batch open_sink",
    "Events of devices": "PushEvent Event",
    "Values": "Arrival DeliveryMode FieldType Kind Level Limit Masks OnUnknown Process Progress "
    "Resting Scope Sensitivity State Subject Task Weights",
    "Settings and backends": "Settings load_settings Backend connect MemoryBackend",
    "Errors": "PushlaneError UserError BadInput InvalidChange TaskConflict UnknownTask "
    "UnknownFormat Unreachable BufferFull OversizedPush StorageFull",
}
_WITH_MEMBERS = frozenset(
    {"Client", "Producer", "Dispatcher", "Sink", "Outcome", "Push", "MemoryBackend"}
)
_UNSIGNED = frozenset({"Settings", "Sink", "Backend"})


def python_page() -> str:
    """Return the page. Raises ValueError for a public name that has no place on it."""
    placed = {name for names in _SECTIONS.values() for name in names.split()}
    if missing := placed ^ set(pushlane.__all__):
        raise ValueError(f"in only one of the page and `pushlane`: {', '.join(sorted(missing))}")
    parts = [_HEAD]
    for section, names in _SECTIONS.items():
        parts.append(f"## {section}\n")
        parts += [_entry(name, getattr(pushlane, name)) for name in names.split()]
    parts.append("## Tests\n\nIn `pushlane.testing`, with `MemoryBackend`.\n")
    parts += [_entry(name, getattr(testing, name)) for name in ("Receiver", "run_until_idle")]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    lines = [f"### {name}\n", *_described(name, value)]
    if inspect.isclass(value) and issubclass(value, Enum):
        lines.append("One of " + ", ".join(f"`{one.value}`" for one in value) + ".\n")
    if name in _WITH_MEMBERS or value is testing.Receiver:
        for member, found in sorted(_members(value), key=lambda pair: pair[0]):
            lines += [f"#### {name}.{member}\n", *_described(member, found, is_member=True)]
    return "\n".join(lines)


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that have a docstring, those of its bases too."""
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        is_shown = inspect.isfunction(found) or isinstance(found, property)
        if not name.startswith("_") and is_shown and inspect.getdoc(found):
            yield name, found


def _described(name: str, value: Any, *, is_member: bool = False) -> Iterator[str]:
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    is_values = inspect.isclass(value) and issubclass(value, Enum)
    if callable(value) and not (is_error or is_values or name in _UNSIGNED):
        yield f"```python\n{_signature(name, value, is_member)}\n```\n"
    yield _text(inspect.getdoc(value) or "") + "\n"
    if value is pushlane.SubmitRequest:
        yield _text(inspect.getdoc(TaskOptions) or "") + "\n"


def _signature(name: str, value: Any, is_member: bool) -> str:
    wrapped = inspect.unwrap(value)
    signature = inspect.signature(wrapped)
    given = list(signature.parameters.values())
    if is_member and given and given[0].name in ("self", "cls"):
        given = given[1:]
    parts = list(_parts(given))
    returned = signature.return_annotation
    has_return = not inspect.isclass(value) and returned is not inspect.Signature.empty
    end = f" -> {_annotation(returned)}" if has_return else ""
    start = f"{'async ' if inspect.iscoroutinefunction(wrapped) else ''}{name}"
    if inspect.isasyncgenfunction(wrapped):  # behind `asynccontextmanager`
        end = end.replace("AsyncIterator", "AbstractAsyncContextManager")
    line = f"{start}({', '.join(parts)}){end}"
    if len(line) <= _WIDTH:
        return line
    return f"{start}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _parts(given: list[inspect.Parameter]) -> Iterator[str]:
    is_named = False
    for one in given:
        if one.kind is one.KEYWORD_ONLY and not is_named:
            is_named = True
            yield "*"
        stars = "*" if one.kind is one.VAR_POSITIONAL else ""
        stars = "**" if one.kind is one.VAR_KEYWORD else stars
        kind = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        yield f"{stars}{one.name}{kind}{_default(one.default)}"


def _annotation(given: Any) -> str:
    shown = given if isinstance(given, str) else inspect.formatannotation(given)
    return re.sub(r"\b(?:pushlane|typing|collections|pathlib)\.(?:\w+\.)*", "", shown)


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, Enum):
        return f" = {type(value).__name__}.{value.name}"
    if callable(value):
        return f" = {getattr(value, '__name__', '...')}"
    shown = json.dumps(value) if isinstance(value, str) else repr(value)
    return f" = {'...' if '<' in shown else shown}"


def _text(doc: str) -> str:
    """Return a docstring as Markdown: what it raises as a list, examples as code."""
    blocks = doc.split("\n\n")
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    if block.startswith("    "):
        return f"```python\n{dedent(block)}\n```"
    if not block.startswith("Raises:\n"):
        return block
    lines = dedent(block.removeprefix("Raises:\n")).split("\n")
    joined = re.sub(r"\n\s+", " ", "\n".join(lines))
    listed = (re.sub(r"^([\w, ]+):", _named, line) for line in joined.split("\n"))
    return "Raises:\n\n" + "\n".join(f"- {line}" for line in listed)


def _named(found: re.Match[str]) -> str:
    return ", ".join(f"`{name}`" for name in found[1].split(", ")) + ":"


if __name__ == "__main__":
    (_DOCS / PAGE).write_text(python_page())
