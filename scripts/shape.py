"""Measures the shape of the product's code: how much there is, and how much of it one has to know.

    python scripts/shape.py [REVISION ...]

One column for each git revision, and one for the files as they are now. It needs the standard
library alone. The way of a push is what `core/loop.py` and `core/publish.py` import at their tops,
for types too, what that imports, and so on: what is behind a port is loaded by nobody there, so an
adapter does not count. Of `core` what functions import counts as well. In earlier revisions the
two lie in `dispatcher` and `producers`, and in the first of all the parts lie beside the package,
which has links to them. What lies in `dev/` was product in those: it is counted apart, and the
whole with it.
"""

from __future__ import annotations

import ast
import graphlib
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parent.parent
PACKAGE = "pushlane"
PARTS = ("lanes", "dispatcher", "producers", "diagnosis", "pipeline", "cli")
ASIDE = "dev"
STARTS = ("core.loop", "core.publish")
EARLIER_STARTS = ("dispatcher.loop", "producers.publish")
LISTS = "dispatcher.line"
PORTS = ("core.ports", "backends.ports", "backends.guard_ports", "lanes.ports")
BLOCK = 6
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """A product file: its dotted name without `pushlane.`, its path from the root, its code."""

    name: str
    path: str
    lines: int
    tree: ast.Module


def modules(root: Path = ROOT) -> list[Module]:
    """Every product file. Links are not followed: each file counts once."""
    return [_module(root, path) for folder in (*PARTS, PACKAGE) for path in _files(root / folder)]


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    return [path for path in found if not any(parent.is_symlink() for parent in path.parents)]


def _module(root: Path, path: Path) -> Module:
    text = path.read_text()
    place = path.relative_to(root)
    parts = place.with_suffix("").parts
    is_nested = parts[0] == PACKAGE and len(parts) > 1
    name = ".".join(parts[is_nested:]).removesuffix(".__init__")
    return Module(name, str(place), text.count("\n"), ast.parse(text))


def classes(found: Iterable[Module]) -> dict[str, list[str]]:
    """The files that define a class of each name, at any depth."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in found:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.path)
    return places


def repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """Of names and their places, those with more than one."""
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def function_lengths(found: Iterable[Module]) -> dict[str, int]:
    """Lines of each function, from `def` to its end, docstring included."""
    return {
        f"{module.path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, _FUNCTIONS)
    }


def port_sizes(found: Iterable[Module]) -> dict[str, int]:
    """How many methods each protocol of the ports has, those that it inherits not counted."""
    return {
        node.name: sum(isinstance(part, _FUNCTIONS) for part in node.body)
        for module in found
        if module.name.startswith(PORTS)
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    }


def on_a_pushs_way(found: Iterable[Module]) -> list[Module]:
    """The modules that one meets who follows a push, by imports from where it starts.

    Raises:
        LookupError: a start is not there, so that a way of nothing would be measured.
    """
    by_name = {module.name: module for module in found}
    starts = EARLIER_STARTS if "dispatcher.loop" in by_name else STARTS
    if missing := [name for name in starts if name not in by_name]:
        raise LookupError(f"no module {', '.join(missing)}, where the way of a push starts")
    return _reached(by_name, starts)


def on_its_lists(found: Iterable[Module]) -> list[Module]:
    """What is optional on a push's way: the modules of `dispatcher` that a line hangs on it."""
    way = {module.name for module in on_a_pushs_way(found)}
    reached = _reached({module.name: module for module in found}, [LISTS])
    return [
        module
        for module in reached
        if module.name.startswith("dispatcher.") and module.name not in way
    ]


def cycle(found: Iterable[Module]) -> list[str]:
    """The names of modules that import each other in a circle; none where there is no circle.

    That a module loads the packages that it lies in makes no circle.
    """
    by_name = {module.name: module for module in found}
    graph = {
        name: {
            one
            for one in _imports(module)
            if one in by_name and not f"{name}.".startswith(f"{one}.")
        }
        for name, module in by_name.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _reached(by_name: dict[str, Module], starts: Iterable[str]) -> list[Module]:
    """The modules that one meets from these, these among them."""
    reached = dict.fromkeys(name for name in starts if name in by_name)
    waiting = list(reached)
    while waiting:
        for name in _imports(by_name[waiting.pop()]):
            if name in by_name and name not in reached:
                reached[name] = None
                waiting.append(name)
    return [by_name[name] for name in reached]


def _imports(module: Module) -> Iterator[str]:
    """The names of ours that a module imports; of a package's, its modules too.

    Those inside functions count in core alone, those that are for types alone everywhere.
    """
    is_core = module.name.partition(".")[0] == "core"
    for node in ast.walk(module.tree) if is_core else _at_the_top(module.tree.body):
        if isinstance(node, ast.ImportFrom) and node.module:
            base = node.module.removeprefix("pushlane.")
            yield base
            yield from (f"{base}.{alias.name}".removeprefix("pushlane.") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("pushlane.") for alias in node.names)


def _at_the_top(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what is run, or read for types, when a module is loaded."""
    for node in statements:
        yield node
        if isinstance(node, ast.If):
            yield from _at_the_top([*node.body, *node.orelse])


def repeated_blocks(found: Iterable[Module]) -> list[tuple[int, str, str]]:
    """Runs of at least six lines that stand in another place too: length, file, first line.

    Formatting, comments, docstrings and imports do not count. Each place of a block is named.
    """
    code = {module.path: _plain_code(module.tree) for module in found}
    windows = Counter(window for lines in code.values() for window in _windows(lines))
    blocks: list[tuple[int, str, str]] = []
    for path, lines in code.items():
        start: int | None = None
        for place, window in enumerate([*_windows(lines), ()]):
            if windows[window] > 1:
                start = place if start is None else start
            elif start is not None:
                blocks.append((place - start + BLOCK - 1, path, lines[start].strip()))
                start = None
    return sorted(blocks, reverse=True)


def _windows(lines: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(lines[place : place + BLOCK]) for place in range(len(lines) - BLOCK + 1))


def _plain_code(tree: ast.Module) -> list[str]:
    """The code in one form of writing, without docstrings and imports."""
    plain = _Plain().visit(ast.parse(ast.unparse(tree)))
    return [line for line in ast.unparse(plain).splitlines() if line.strip()]


class _Plain(ast.NodeTransformer):
    """Leaves out imports, and texts that stand alone."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def measures(root: Path) -> dict[str, str]:
    """All that is measured of the files in a folder, by what it is called."""
    found = modules(root)
    aside = [_module(root, path) for path in _files(root / ASIDE)]
    lengths = function_lengths(found)
    longest = max(lengths, key=lambda name: lengths[name])
    way, lists = on_a_pushs_way(found), on_its_lists(found)
    all_classes = classes(found)
    blocks = repeated_blocks(found)
    ports = port_sizes(found)
    return {
        "files": f"{len(found):,}",
        "lines": f"{_lines(found):,}",
        f"in {ASIDE}/, and all with it": f"{len(aside)} files, {_lines(aside):,} lines; "
        f"{len(found) + len(aside)} files, {_lines(found) + _lines(aside):,} lines",
        "longest file": _longest_file(found),
        "files under 40 lines": f"{sum(module.lines < 40 for module in found):,}",
        "functions": f"{len(lengths):,}",
        "function median / p95 / longest": f"{median(lengths.values()):g} / "
        f"{quantiles(lengths.values(), n=20)[-1]:.0f} / {lengths[longest]}",
        "longest function": longest,
        "classes": f"{sum(map(len, all_classes.values())):,}",
        "class names defined twice or more": f"{len(repeated(all_classes))}",
        "modules on a push's way": f"{len(way)}",
        "classes on a push's way": _count(way),
        "options on its lists": f"{len(lists)} modules, {_count(lists)} classes",
        "a circle of imports": " > ".join(cycle(found)) or "none",
        "repeated blocks": f"{len(blocks)}, {sum(length for length, _, _ in blocks)} lines",
        "methods a port": ", ".join(f"{name} {count}" for name, count in ports.items()),
    }


def _count(found: Iterable[Module]) -> str:
    return str(sum(map(len, classes(found).values())))


def _lines(found: Iterable[Module]) -> int:
    return sum(module.lines for module in found)


def _longest_file(found: list[Module]) -> str:
    longest = max(found, key=lambda module: module.lines)
    return f"{longest.path} {longest.lines}"


def at_revision(revision: str) -> dict[str, str]:
    """The measures of a revision, of a copy that is removed again."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", revision], check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder)  # noqa: S202 - git has made it
        return measures(Path(folder))


def show(columns: dict[str, dict[str, str]]) -> Iterator[str]:
    """Each measure with one line for each column."""
    width = max(map(len, columns))
    for name in next(iter(columns.values())):
        yield name
        yield from (f"  {column:<{width}}  {found[name]}" for column, found in columns.items())


def main() -> None:
    columns = {revision: at_revision(revision) for revision in sys.argv[1:]}
    lines = [*show({**columns, "now": measures(ROOT)}), "", "class names defined twice or more"]
    found = modules()
    lines += [f"  {name}: {', '.join(at)}" for name, at in repeated(classes(found)).items()]
    lines += ["", "options on the lists of a push's way"]
    lines += [f"  {_count([module]):>3}  {module.name}" for module in on_its_lists(found)]
    lines += ["", "repeated blocks"]
    lines += [f"  {length:>3}  {path}: {first}" for length, path, first in repeated_blocks(found)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
