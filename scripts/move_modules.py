"""Moves and merges modules as `moves.json` says, and rewrites whatever names them.

    python scripts/move_modules.py [--root CHECKOUT] [--only-moves]

It changes a checkout in place, the same way on every branch that has the old layout: a module that
the map does not know stays where it is, one that is not there is skipped with a note. With
`--only-moves` the largest file of each target takes its new place and nothing is merged: this is
the commit by which `git log --follow` finds the way. A second run then merges.

To carry over a branch B that forked from BASE, whose moved form is MOVED on the main line:

    run the script on BASE and commit (A), run it on B and commit the tree with A as its parent (C),
    then `git rebase --onto MOVED A C`.

The standard library is all it needs; ruff, if it is there, sorts the imports and drops unused ones.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

PACKAGE = "pushlane"
MAP = Path(__file__).with_name("moves.json")
LEFT_ALONE = (
    "CHANGELOG.md",
    "docs/benchmarks/",
    "scripts/move_modules.py",
    "scripts/moves.json",
    "tests/fixtures/",
    "tests/house/test_shape.py",
    "scripts/shape.py",
)
SAME = 0.8
WIDTH = 100
_TEXTS = {".md", ".toml", ".yml", ".yaml", ".sh", ".cfg", ".txt", ".ini", ""}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

problems: list[str] = []


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def dotted(place: str) -> str:
    """`lanes/redis/__init__` is `pushlane.lanes.redis`."""
    name = f"{PACKAGE}/{place}".removesuffix("/__init__").replace("/", ".")
    return name.removesuffix(".__init__")


# What is known of the old modules.


@dataclass
class Old:
    """A module as it is before the run."""

    place: str
    path: Path
    text: str
    tree: ast.Module
    defined: set[str] = field(default_factory=set)
    taken: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The names that it imports from modules of ours at its top: module, name."""


class Moves:
    """The map, with all that is needed to say where a name is now."""

    def __init__(self, root: Path, only_moves: bool) -> None:
        self.root = root
        told = json.loads(MAP.read_text())
        self.docs: dict[str, str] = told.get("docs", {})
        self.drop: set[str] = set(told["drop"])
        self.aliases: dict[str, str] = told.get("aliases", {})
        self.texts: dict[str, list[list[str]]] = told.get("texts", {})
        self.mentions: dict[str, str] = told.get("mentions", {})
        self.tables: dict[str, str] = told.get("tables", {})
        self.renames: dict[str, dict[str, str]] = defaultdict(dict)
        for place, names in told.get("renames", {}).items():
            self.renames[dotted(place)] = dict(names)
        self.groups: dict[str, list[str]] = told["modules"]
        self.old: dict[str, Old] = {}
        self.home: dict[str, str] = {}
        self.done: set[str] = set()
        self._read()
        if only_moves:
            self._keep_largest()
        self._place()

    def _read(self) -> None:
        for path in sorted((self.root / PACKAGE).rglob("*.py")):
            place = str(path.relative_to(self.root / PACKAGE).with_suffix(""))
            self._add(place, path)
        for target, group in self.groups.items():
            there = [place for place in group if place in self.old]
            if len(there) < len(group) and target in self.old and target not in group:
                missing = [place for place in group if place not in self.old]
                if len(missing) == 1:  # it has been moved already
                    self._add(missing[0], self.old.pop(target).path)
                    continue
            if target in self.old and (not there or there == [target] != group):
                self.done.add(target)
                continue
            for place in group:
                if place not in self.old:
                    say(f"note: no {place}, for {target}")
        for target, group in self.groups.items():
            left = [place for place in group if place in self.old]
            if target in self.old and target not in group and left:
                problems.append(f"{target} is there already, as another module")
        self.groups = {
            t: [] if t in self.done else [p for p in group if p in self.old]
            for t, group in self.groups.items()
        }

    def _add(self, place: str, path: Path) -> None:
        text = path.read_text()
        old = Old(place, path, text, ast.parse(text))
        old.defined, old.taken = top_names(old.tree)
        self.old[place] = old

    def _keep_largest(self) -> None:
        for target, group in list(self.groups.items()):
            if group:
                largest = max(group, key=lambda place: self.old[place].text.count("\n"))
                own = target if target in group else largest
                is_package = own.endswith("__init__")  # stays, as modules of it stay
                self.groups[target] = [] if is_package else [own]
        self.docs = {t: d for t, d in self.docs.items() if not self.groups.get(t)}
        self.groups = {t: group for t, group in self.groups.items() if group}
        self.drop = set()
        self.renames.clear()
        self.texts = {}

    def _place(self) -> None:
        for target, group in self.groups.items():
            for place in group:
                self.home[dotted(place)] = dotted(target)
        self.by_name = {dotted(place): old for place, old in self.old.items()}
        for name in self.by_name:
            self.home.setdefault(name, name)
        for old in list(self.by_name.values()):
            place = str(old.path.relative_to(self.root / PACKAGE).with_suffix(""))
            if place != old.place:  # it has been moved already, and is known by both names
                self.by_name[dotted(place)] = old
                self.home[dotted(place)] = self.home[dotted(old.place)]
                self.renames[dotted(place)] = self.renames[dotted(old.place)]
        self.dropped = {dotted(place) for place in self.drop}

    def is_module(self, name: str) -> bool:
        return name in self.by_name

    def of(self, module: str, name: str) -> tuple[str, str]:
        """Where a name is that was imported from an old module: new module, new name."""
        old = self.by_name.get(module)
        if old is None:
            return module, name
        if name not in old.defined and name in old.taken:
            origin, known_as = old.taken[name]
            is_package = old.place.endswith("__init__")
            if module in self.dropped or not is_package:
                return self.of(origin, known_as)
        if module in self.dropped and name not in old.defined:
            problems.append(f"{module} is dropped, but {name} is asked for")
        return self.home[module], self.renames[module].get(name, name)

    def text(self, name: str) -> str:
        """The new form of a dotted text that may begin with an old module, perhaps with more."""
        parts = name.split(".")
        for end in range(len(parts), 1, -1):
            module = ".".join(parts[:end])
            if module in self.by_name and module != PACKAGE:
                rest = parts[end:]
                if module in self.dropped and not rest:
                    return name
                if rest and (
                    rest[0] in self.by_name[module].defined or rest[0] in self.by_name[module].taken
                ):
                    new, first = self.of(module, rest[0])
                    if rest[0] not in self.by_name[module].defined:
                        new, first = self.home[module], first  # patched where it is used
                    return ".".join([new, first, *rest[1:]])
                return ".".join([self.home[module], *rest])
        return name


def top_names(tree: ast.Module) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """What a module defines at its top, and what it imports there from modules of ours."""
    defined: set[str] = set()
    taken: dict[str, tuple[str, str]] = {}
    for node in flat(tree.body):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for one in node.names:
                taken[one.asname or one.name] = (node.module or "", one.name)
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    defined.add(name.id)
    return defined, taken


def flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at the top of a module, those under `if` and `try` too."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from flat(node.body)
            yield from flat(getattr(node, "orelse", []))


# Scopes: which name means what.


@dataclass
class Scope:
    """A function, a class, a comprehension or the module, with what it binds."""

    node: ast.AST
    parent: Scope | None
    bound: dict[str, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    outside: set[str] = field(default_factory=set)

    @property
    def is_module(self) -> bool:
        return self.parent is None


class Names(ast.NodeVisitor):
    """Every use of a name in a file, with the scope that it stands in."""

    def __init__(self, tree: ast.Module) -> None:
        self.top = Scope(tree, None)
        self.scope = self.top
        self.uses: list[tuple[ast.Name, Scope]] = []
        self.scopes: list[Scope] = [self.top]
        self.imports: list[tuple[ast.Import | ast.ImportFrom, Scope]] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        self.visit(tree)

    def binder(self, name: str, scope: Scope) -> Scope | None:
        """The scope whose binding a name means; none if nobody binds it here."""
        at: Scope | None = scope
        is_first = True
        while at is not None:
            own = name in at.bound and name not in at.outside
            if own and (is_first or not isinstance(at.node, ast.ClassDef)):
                return at
            is_first = False
            at = at.parent
        return None

    def all_bound(self) -> set[str]:
        return {name for scope in self.scopes for name in scope.bound}

    def _inside(self, node: ast.AST, parts: Iterable[ast.AST]) -> None:
        before, self.scope = self.scope, Scope(node, self.scope)
        self.scopes.append(self.scope)
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            every = node.args
            for one in [*every.posonlyargs, *every.args, *every.kwonlyargs]:
                self.scope.bound[one.arg].append(one)
            for rest in (every.vararg, every.kwarg):
                if rest:
                    self.scope.bound[rest.arg].append(rest)
        for part in parts:
            self.visit(part)
        self.scope = before

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.bound[node.name].append(node)
        for part in [*node.decorator_list, *node.args.defaults]:
            self.visit(part)
        for default in node.args.kw_defaults:
            if default:
                self.visit(default)
        for one in ast.walk(node.args):
            if isinstance(one, ast.arg) and one.annotation:
                self.visit(one.annotation)
        if node.returns:
            self.visit(node.returns)
        self._inside(node, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in [*node.args.defaults, *[d for d in node.args.kw_defaults if d]]:
            self.visit(part)
        self._inside(node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.bound[node.name].append(node)
        for part in [*node.decorator_list, *node.bases, *[k.value for k in node.keywords]]:
            self.visit(part)
        self._inside(node, node.body)

    def _comprehension(self, node: ast.AST) -> None:
        self.visit(node.generators[0].iter)  # type: ignore[attr-defined]
        self._inside(node, ast.iter_child_nodes(node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.target)
        owner = self.parents[node]
        if owner.generators[0] is not node:  # type: ignore[attr-defined]
            self.visit(node.iter)
        for test in node.ifs:
            self.visit(test)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        at = self.scope
        while isinstance(at.node, _COMPREHENSIONS) and at.parent:
            at = at.parent
        at.bound[node.target.id].append(node)
        self.uses.append((node.target, at))
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.scope.bound[node.id].append(node)
        self.uses.append((node, self.scope))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bound[node.name].append(node)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.scope.bound[node.name].append(node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.scope.bound[node.name].append(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.outside.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.outside.update(node.names)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports.append((node, self.scope))
        for one in node.names:
            self.scope.bound[one.asname or one.name.partition(".")[0]].append(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.imports.append((node, self.scope))
        for one in node.names:
            self.scope.bound[one.asname or one.name].append(node)


# Changing one file.


@dataclass
class Wanted:
    """An import of one name, as it is to be: from a module, its name there and here."""

    module: str
    name: str
    known_as: str

    def __str__(self) -> str:
        return self.name if self.name == self.known_as else f"{self.name} as {self.known_as}"


class File:
    """A file that is rewritten: where it was (if of ours), where it will be, and its edits."""

    def __init__(
        self, moves: Moves, text: str, was: str | None, will_be: str | None, label: str
    ) -> None:
        self.moves = moves
        self.was = was
        self.will_be = will_be
        self.label = label
        self.text = text
        self.tree = ast.parse(text)
        self.names = Names(self.tree)
        self.lines = [0]
        for line in text.encode().split(b"\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)
        self.edits: list[tuple[int, int, str]] = []
        self.tops: list[str] = []
        self.for_types: list[Wanted] = []
        self.at_run: list[Wanted] = []
        self.plain: list[str] = []
        self.has_future = False
        self.bound_elsewhere: set[str] = set()

    def place(self, line: int, column: int) -> int:
        return self.lines[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.place(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.place(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def problem(self, node: ast.AST, what: str) -> None:
        problems.append(f"{self.label}:{node.lineno}: {what}")  # type: ignore[attr-defined]

    # Imports.

    def wanted(self, node: ast.ImportFrom) -> tuple[list[Wanted], dict[str, tuple[str, str]]]:
        """What an import becomes, and how the names that it bound are to be read from now on.

        The second has for each old name: ("name", new name), ("module", old module's name), or
        ("own", old module's name) if that module is merged into this file.
        """
        wanted: list[Wanted] = []
        reads: dict[str, tuple[str, str]] = {}
        module = node.module or ""
        for one in node.names:
            local = one.asname or one.name
            full = f"{module}.{one.name}"
            if self.moves.is_module(full) and full not in self.moves.dropped:
                new = self.moves.home[full]
                if new == self.will_be:
                    reads[local] = ("own", full)
                    continue
                base, _, stem = new.rpartition(".")
                known_as = self.own_alias(one, full) or self.alias(local, new, stem)
                wanted.append(Wanted(base, stem, known_as))
                reads[local] = ("module", f"{full} {known_as}")
            else:
                new, name = self.moves.of(module, one.name)
                known_as = one.asname or name
                if new == self.will_be:
                    reads[local] = ("name", name)
                    continue
                wanted.append(Wanted(new, name, known_as))
                reads[local] = ("name", known_as)
        return wanted, reads

    def own_alias(self, one: ast.alias, module: str) -> str:
        """The name that an import gives to a module; none if an earlier run of this gave it."""
        group = self.moves.groups.get(module.removeprefix(f"{PACKAGE}.").replace(".", "/"), ())
        was = {PurePosixPath(place).name for place in group}
        return "" if one.asname in was else one.asname or ""

    def alias(self, local: str, new: str, stem: str) -> str:
        if stem == local or stem not in self.bound_elsewhere | self.names.all_bound():
            return stem
        binders = [node for scope in self.names.scopes for node in scope.bound.get(stem, ())]
        if stem not in self.bound_elsewhere and all(self._imports(node, new) for node in binders):
            return stem
        return self.moves.aliases.get(new, local)

    def _imports(self, node: ast.AST, new: str) -> bool:
        """Tell whether this imports a module that is a part of the new one, by its own name."""
        return isinstance(node, ast.ImportFrom) and any(
            self.moves.home.get(f"{node.module}.{one.name}") == new
            for one in node.names
            if (one.asname or one.name) == new.rpartition(".")[2]
        )

    def rewrite_imports(self, is_part: bool) -> dict[int, dict[str, tuple[str, str]]]:
        """Note the edits of all imports; return for each scope what its imports now mean."""
        reads: dict[int, dict[str, tuple[str, str]]] = defaultdict(dict)
        for node, scope in self.names.imports:
            is_ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
            parent = self.names.parents[node]
            for_types = is_type_checking(parent) and scope.is_module
            at_top = parent is self.tree
            if isinstance(node, ast.ImportFrom) and is_ours:
                wanted, meaning = self.wanted(node)
                reads[id(scope)].update(meaning)
            elif isinstance(node, ast.ImportFrom):
                wanted = [Wanted(node.module or "", o.name, o.asname or o.name) for o in node.names]
            else:
                wanted = []
            if is_part and (at_top or for_types):
                self._collect(node, wanted, for_types)
            elif isinstance(node, ast.ImportFrom) and is_ours:
                self._replace(node, wanted)
        return reads

    def _collect(
        self, node: ast.Import | ast.ImportFrom, wanted: list[Wanted], for_types: bool
    ) -> None:
        if isinstance(node, ast.Import):
            if for_types:
                self.problem(node, "a plain import for types")
            self.plain.append(ast.unparse(node))
        elif node.module == "__future__":
            self.has_future = True
        else:
            (self.for_types if for_types else self.at_run).extend(wanted)
        self._comment_kept(node)
        if not for_types:
            self.remove_lines(node)

    def _comment_kept(self, node: ast.AST) -> None:
        rest = self.text.split("\n")[node.end_lineno - 1]  # type: ignore[attr-defined]
        if "#" in rest:
            self.problem(node, f"a comment at an import gets lost: {rest}")

    def remove_lines(self, node: ast.AST) -> None:
        start = self.lines[node.lineno - 1]  # type: ignore[attr-defined]
        end = self.lines[node.end_lineno]  # type: ignore[attr-defined]
        self.edits.append((start, end, ""))

    def _replace(self, node: ast.ImportFrom, wanted: list[Wanted]) -> None:
        by_module: dict[str, list[Wanted]] = defaultdict(list)
        for one in wanted:
            by_module[one.module].append(one)
        indent = " " * node.col_offset
        statements = [
            f"from {module} import {', '.join(map(str, names))}"
            for module, names in by_module.items()
        ]
        body = getattr(self.names.parents[node], "body", [])
        if not statements and body != [node]:
            self.remove_lines(node)
            return
        new = f"\n{indent}".join(wrapped(one, indent) for one in statements or ["pass"])
        self.edits.append((*self.span(node), new))

    # Names.

    def rewrite_names(self, reads: dict[int, dict[str, tuple[str, str]]]) -> None:
        own = self.moves.renames.get(self.was or "", {})
        for use, scope in self.names.uses:
            binder = self.names.binder(use.id, scope)
            if binder is None:
                continue
            meaning = reads.get(id(binder), {}).get(use.id)
            if meaning is not None and all(
                isinstance(node, (ast.Import, ast.ImportFrom)) for node in binder.bound[use.id]
            ):
                self._read(use, scope, meaning)
            elif binder.is_module and use.id in own:
                self.edits.append((*self.span(use), own[use.id]))
        for node in ast.walk(self.tree):
            if self._is_top(node) and isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                if node.name in own:
                    self._rename_definition(node, own[node.name])
            elif isinstance(node, ast.Global):
                for name in node.names:
                    if name in own:
                        self.problem(node, f"global {name} is renamed")
            elif isinstance(node, ast.Call):
                self._patched(node, reads)

    def _is_top(self, node: ast.AST) -> bool:
        return self.names.parents.get(node) is self.tree

    def _rename_definition(self, node: ast.AST, new: str) -> None:
        start = self.lines[node.lineno - 1]  # type: ignore[attr-defined]
        line = self.text.encode()[start : self.lines[node.lineno]].decode()  # type: ignore[attr-defined]
        found = re.match(r"(\s*(?:async\s+def|def|class)\s+)(\w+)", line)
        assert found
        self.edits.append((start + found.end(1), start + found.end(2), new))

    def _read(self, use: ast.Name, scope: Scope, meaning: tuple[str, str]) -> None:
        kind, value = meaning
        if kind == "name":
            if value != use.id:
                self._check_free(use, scope, value)
                self.edits.append((*self.span(use), value))
            return
        above = self.names.parents[use]
        module, _, known_as = value.partition(" ")
        attribute = above if isinstance(above, ast.Attribute) else None
        renamed = self.moves.renames.get(module, {})
        if kind == "module":
            if known_as != use.id:
                self.edits.append((*self.span(use), known_as))
            if attribute is not None and attribute.attr in renamed:
                _, end = self.span(attribute)
                length = len(attribute.attr)
                self.edits.append((end - length, end, renamed[attribute.attr]))
        elif attribute is None:
            self.problem(use, f"the module {use.id} is used as a value, and is now this one")
        else:
            _, new = self.moves.of(module, attribute.attr)
            self._check_free(use, scope, new)
            self.edits.append((*self.span(attribute), new))

    def _check_free(self, use: ast.Name, scope: Scope, new: str) -> None:
        binder = self.names.binder(new, scope)
        if binder is not None and not binder.is_module:
            self.problem(use, f"{new} means something else here")

    def _patched(self, node: ast.Call, reads: dict[int, dict[str, tuple[str, str]]]) -> None:
        """Rename what is named by a text beside its module: `setattr(module, "NAME", …)`."""
        if len(node.args) < 2 or not isinstance(node.args[0], ast.Name):
            return
        text = node.args[1]
        meaning = next(
            (found[node.args[0].id] for found in reads.values() if node.args[0].id in found), None
        )
        if meaning is None or meaning[0] != "module" or not isinstance(text, ast.Constant):
            return
        module = meaning[1].partition(" ")[0]
        renamed = self.moves.renames.get(module, {}).get(str(text.value))
        if renamed:
            self.edits.append((*self.span(text), f'"{renamed}"'))

    def result(self) -> str:
        data = self.text.encode()
        last = len(data) + 1
        for start, end, new in sorted(set(self.edits), reverse=True):
            if end > last:
                problems.append(f"{self.label}: edits overlap at {start}: {new!r}")
                continue
            data = data[:start] + new.encode() + data[end:]
            last = start
        return data.decode()


def wrapped(statement: str, indent: str) -> str:
    if len(indent) + len(statement) <= 100:
        return statement
    head, _, names = statement.partition(" import ")
    lines = "".join(f"{indent}    {name},\n" for name in names.split(", "))
    return f"{head} import (\n{lines}{indent})"


def is_type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


# Composing a target.


class Target:
    """A new module, made of old ones."""

    def __init__(self, moves: Moves, place: str, group: list[str]) -> None:
        self.moves = moves
        self.place = place
        self.name = dotted(place)
        self.group = in_order(moves, group)
        self.chained: list[str] = []

    def find_collisions(self) -> None:
        """Rename private names that two parts define differently; refuse public ones."""
        seen: dict[str, tuple[str, str]] = {}
        self.repeated: dict[str, set[str]] = defaultdict(set)
        for place in self.group:
            old = self.moves.old[place]
            renames = self.moves.renames[dotted(place)]
            for name, code in definitions(old.tree).items():
                new = renames.get(name, name)
                if new not in seen:
                    seen[new] = (place, code)
                elif seen[new][1] == code:
                    self.repeated[place].add(name)
                elif name == "register" and place.startswith("cli/"):
                    self.chained += [] if self.chained else [seen[new][0]]
                    self.chained.append(place)
                elif name.startswith("_") or name in ("log", "logger"):
                    renames[name] = self._free(place, name, seen)
                    seen[renames[name]] = (place, code)
                else:
                    problems.append(f"{self.place}: {name} is in {seen[new][0]} and in {place}")
        for place in self.chained:
            stem = PurePosixPath(place).name
            self.moves.renames[dotted(place)]["register"] = f"_register_{stem}"

    def _free(self, place: str, name: str, seen: dict[str, tuple[str, str]]) -> str:
        stem = PurePosixPath(place).name
        if stem == "__init__":
            stem = PurePosixPath(place).parent.name
        bare = name.lstrip("_")
        new = f"_{stem.upper()}_{bare}" if bare.isupper() else f"_{stem}_{bare}"
        if bare[0].isupper() and not bare.isupper():
            new = f"_{''.join(part.title() for part in stem.split('_'))}{bare}"
        say(f"renamed in {self.place}: {name} of {place} (beside {seen[name][0]}) is {new}")
        return new

    def compose(self) -> str:
        parts = [self._part(place) for place in self.group]
        for part, _ in parts:
            self._check_builtins(part)
        lines: list[str] = [doc_text(self._doc())]
        if any(part.has_future for part, _ in parts):
            lines.append("from __future__ import annotations\n")
        lines.append(self._imports([part for part, _ in parts]))
        lines += [text for _, text in parts]
        if self.chained:
            calls = "".join(
                f"    _register_{PurePosixPath(place).name}(app)\n" for place in self.chained
            )
            lines.append(f"\n\ndef register(app: typer.Typer) -> None:\n{calls}")
        return "\n".join(one.strip("\n") + "\n" for one in lines if one.strip())

    def _doc(self) -> str:
        own = self.moves.docs.get(self.place, "")
        texts = [ast.get_docstring(self.moves.old[p].tree, clean=True) or "" for p in self.group]
        if len(texts) == 1:
            return own or texts[0]
        told = [without_repeat(own, text) for text in texts]
        return "\n\n".join(filter(None, [own, *told]))

    def _part(self, place: str) -> tuple[File, str]:
        old = self.moves.old[place]
        part = File(self.moves, old.text, dotted(place), self.name, place)
        part.bound_elsewhere = {
            name
            for other in self.group
            if other != place
            for name in Names(self.moves.old[other].tree).all_bound()
        }
        is_part = True
        reads = part.rewrite_imports(is_part)
        part.rewrite_names(reads)
        gone = self.repeated[place]
        for at, node in enumerate(old.tree.body):
            if at == 0 and ast.get_docstring(old.tree) is not None:
                part.remove_lines(node)
            elif is_type_checking(node):
                if not all(isinstance(one, ast.ImportFrom) for one in node.body):  # type: ignore[attr-defined]
                    part.problem(node, "more than imports for types")
                part.remove_lines(node)
            elif names_of(node) and names_of(node) <= gone:
                part.edits = [e for e in part.edits if not _within(e, part.span(node))]
                part.remove_lines(node)
                following = old.tree.body[at + 1 : at + 2]
                if following and is_text(following[0]):
                    part.remove_lines(following[0])
        return part, part.result()

    def _imports(self, parts: list[File]) -> str:
        plain = sorted({one for part in parts for one in part.plain})
        at_run: dict[str, Wanted] = {}
        for one in [one for part in parts for one in part.at_run]:
            self._note(at_run, one)
        for_types: dict[str, Wanted] = {}
        for one in [one for part in parts for one in part.for_types]:
            if one.known_as in at_run:
                self._note(dict(at_run), one)
            else:
                self._note(for_types, one)
        lines = [*plain, *statements(at_run.values())]
        if for_types:
            lines.append("\nif TYPE_CHECKING:")
            lines += [f"    {one}" for one in statements(for_types.values())]
        defined = {
            self.moves.renames[dotted(place)].get(name, name): place
            for place in self.group
            for name in definitions(self.moves.old[place].tree)
        }
        modules = {one.split()[-1]: one for one in plain}
        for name in [*at_run, *for_types, *modules]:
            if name in defined:
                problems.append(f"{self.place}: {name} is imported, and defined in {defined[name]}")
            if name in at_run and name in modules:
                problems.append(f"{self.place}: {name} is imported in two ways")
        return "\n".join(lines) + "\n"

    def _note(self, known: dict[str, Wanted], one: Wanted) -> None:
        kept = known.setdefault(one.known_as, one)
        if (kept.module, kept.name) != (one.module, one.name):
            problems.append(f"{self.place}: {one.known_as} is of {kept.module} and {one.module}")

    def _check_builtins(self, part: File) -> None:
        mine = self.moves.old[part.label].defined
        others = {
            self.moves.renames[dotted(place)].get(name, name)
            for place in self.group
            for name in definitions(self.moves.old[place].tree)
        }
        for use, scope in part.names.uses:
            is_builtin = use.id in others - mine and hasattr(builtins, use.id)
            if is_builtin and part.names.binder(use.id, scope) is None:
                part.problem(use, f"the builtin {use.id} is hidden by another part")


def _within(edit: tuple[int, int, str], span: tuple[int, int]) -> bool:
    return span[0] <= edit[0] and edit[1] <= span[1]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def statements(wanted: Iterable[Wanted]) -> list[str]:
    by_module: dict[str, set[str]] = defaultdict(set)
    for one in wanted:
        by_module[one.module].add(str(one))
    return [
        f"from {module} import {', '.join(sorted(n))}" for module, n in sorted(by_module.items())
    ]


def definitions(tree: ast.Module) -> dict[str, str]:
    """What a module defines at its top, by name, with its code in one form of writing."""
    found: dict[str, str] = {}
    for node in tree.body:
        for name in names_of(node):
            found[name] = found.get(name, "") + ast.unparse(node)
    return found


def names_of(node: ast.stmt) -> set[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)) or is_type_checking(node):
        return set()
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
    return set()


def in_order(moves: Moves, group: list[str]) -> list[str]:
    """The parts, each after those that it imports."""
    by_name = {name: old.place for name, old in moves.by_name.items() if old.place in group}
    done: list[str] = []

    def put(place: str, above: tuple[str, ...]) -> None:
        if place in done or place in above:
            return
        for node in moves.old[place].tree.body:
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
                names += [
                    moves.old[place].taken.get(o.asname or o.name, ("",))[0] for o in node.names
                ]
                for name in names:
                    if name in by_name:
                        put(by_name[name], (*above, place))
        done.append(place)

    for place in group:
        put(place, ())
    return done


def doc_text(text: str) -> str:
    return f'"""{text}"""\n' if "\n" not in text else f'"""{text}\n"""\n'


def without_repeat(own: str, text: str) -> str:
    """A docstring without its first paragraph, where the new one begins with the same."""
    first, _, rest = text.partition("\n\n")
    known = own.partition("\n\n")[0]
    is_same = SequenceMatcher(None, known, " ".join(first.split())).ratio() > SAME
    return rest if is_same else text


def rewrapped(text: str) -> str:
    """A module whose docstring has no paragraph with lines that are too long."""
    tree = ast.parse(text)
    doc = ast.get_docstring(tree, clean=False)
    if doc is None or all(len(line) <= WIDTH for line in text.split("\n")):
        return text
    paragraphs = [
        "\n".join(textwrap.wrap(one, WIDTH, break_long_words=False, break_on_hyphens=False))
        if any(len(line) > WIDTH - 3 for line in one.split("\n")) and "\n " not in one
        else one
        for one in doc.strip("\n").split("\n\n")
    ]
    room = WIDTH - (6 if "\n" not in doc else 3)
    if len(paragraphs[0].split("\n")[0]) > room:
        paragraphs[0] = "\n".join(textwrap.wrap(paragraphs[0], room, break_on_hyphens=False))
    new = "\n\n".join(paragraphs)
    end = "\n" if doc.endswith("\n") or ("\n" in new and "\n" not in doc) else ""
    return text.replace(doc, new + end, 1)


# Texts: names and paths in comments, documents and settings.

_FULL = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")
_PARTS = "lanes|dispatcher|producers|diagnosis|pipeline|cli"
_SHORT = re.compile(rf"(?<=`)(?:{_PARTS})(?:\.\w+)+")
_PATH = re.compile(rf"(?<![\w/])((?:{PACKAGE}/)?)((?:{_PARTS})/[\w/]+)\.py\b")


def rewrite_texts(moves: Moves, text: str) -> str:
    def short(found: re.Match[str]) -> str:
        whole = found.group()
        for old, new in moves.mentions.items():
            if whole == old or whole.startswith(f"{old}."):
                return new + whole[len(old) :]
        return moves.text(f"{PACKAGE}.{whole}").removeprefix(f"{PACKAGE}.")

    def path(found: re.Match[str]) -> str:
        new = moves.home.get(dotted(found[2]))
        if new is None or found[2] in moves.drop or new == dotted(found[2]):
            return found.group()
        place = new.removeprefix(f"{PACKAGE}.").replace(".", "/")
        if any(t == f"{place}/__init__" for t in moves.groups):
            place += "/__init__"
        return f"{found[1]}{place}.py"

    text = _FULL.sub(lambda found: moves.text(found.group()), text)
    return _PATH.sub(path, _SHORT.sub(short, text))


_IN_TABLE = re.compile(r'(?<=")(?:\w+(?=:\w)|\w+(?:\.\w+)+(?="))')


def rewrite_table(moves: Moves, prefix: str, text: str) -> str:
    """Rewrite the texts that name modules below a package, in the file that loads them lazily."""

    def new(found: re.Match[str]) -> str:
        home = moves.home.get(prefix + found.group(), "")
        if prefix + found.group() in moves.dropped:
            return moves.mentions.get(found.group(), found.group())
        return home.removeprefix(prefix) if home.startswith(prefix) else found.group()

    return _IN_TABLE.sub(new, text)


# The run.


def tracked(root: Path) -> list[Path]:
    told = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [root / line for line in told.stdout.splitlines()]
    return [
        path
        for path in paths
        if path.is_file()
        and not path.is_symlink()
        and not any(parent.is_symlink() for parent in path.parents)
        and not str(path.relative_to(root)).startswith(LEFT_ALONE)
    ]


def run(root: Path, only_moves: bool) -> None:
    moves = Moves(root, only_moves)
    targets = [Target(moves, place, group) for place, group in moves.groups.items() if group]
    for target in targets:
        target.find_collisions()
    new_texts: dict[Path, str] = {}
    moved = {place for group in moves.groups.values() for place in group} | moves.drop
    by_path = {old.path: old.place for old in moves.old.values()}
    for target in targets:
        new_texts[root / PACKAGE / f"{target.place}.py"] = target.compose()
    for path in tracked(root):
        place = by_path.get(path)
        if place in moved:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix == ".py":
            own = dotted(place) if place else None
            file = File(moves, text, own, own, str(path.relative_to(root)))
            reads = file.rewrite_imports(is_part=False)
            file.rewrite_names(reads)
            new_texts[path] = file.result()
        elif path.suffix in _TEXTS:
            new_texts[path] = text
    for place, group in moves.groups.items():
        path = root / PACKAGE / f"{place}.py"
        if not group and not path.exists():
            new_texts[path] = doc_text(moves.docs[place])
    if problems:
        sys.exit("\n".join(problems))
    move_files(moves, targets)
    for path, text in new_texts.items():
        name = str(path.relative_to(root))
        new = rewrite_texts(moves, text)
        if name in moves.tables:
            new = rewrite_table(moves, moves.tables[name], new)
        for old, replacement in moves.texts.get(name, []):
            if old not in new:
                say(f"note: {name} has no {old!r}")
            new = new.replace(old, replacement)
        if path.suffix == ".py":
            new = rewrapped(new)
        if not path.exists() or path.read_text() != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
    tidy(root, [path for path in new_texts if path.suffix == ".py"])


def move_files(moves: Moves, targets: list[Target]) -> None:
    """Move the largest file of each target, take away the others."""
    for target in targets:
        path = moves.root / PACKAGE / f"{target.place}.py"
        files = [moves.old[place].path for place in target.group]
        if path not in files:
            largest = max(files, key=lambda file: file.read_text().count("\n"))
            path.parent.mkdir(parents=True, exist_ok=True)
            git(moves.root, "mv", str(largest), str(path))
            files.remove(largest)
        for file in files:
            if file != path:
                git(moves.root, "rm", "-qf", str(file))
    for place in sorted(moves.drop):
        if place in moves.old:
            git(moves.root, "rm", "-qf", str(moves.old[place].path))
    for folder in sorted((moves.root / PACKAGE).rglob("*"), reverse=True):
        if folder.is_dir() and {one.name for one in folder.iterdir()} <= {"__pycache__"}:
            subprocess.run(["rm", "-r", str(folder)], check=True)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True)


def tidy(root: Path, paths: list[Path]) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        say("note: no ruff beside this Python: sort the imports by hand")
        return
    names = [str(path) for path in paths]
    subprocess.run(
        [str(ruff), "check", "-q", "--fix", "--select", "I,F401,F811", *names],
        cwd=root,
        check=False,
    )
    subprocess.run([str(ruff), "format", "-q", *names], cwd=root, check=False)


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    words.add_argument("--only-moves", action="store_true")
    given = words.parse_args()
    run(given.root.resolve(), given.only_moves)


if __name__ == "__main__":
    main()
