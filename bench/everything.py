"""All benchmarks, one after the other; writes docs/benchmarks.md's tables and plots.

Each runs in a process of its own. The results stay in docs/benchmarks/results.json, so that one
benchmark can be run again alone (`--only`) and the page still shows them all. The page's own words
stay: a table is written between the two comments that carry its benchmark's name.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.figures import markdown, say

_DOCS = Path(__file__).parent.parent / "docs"
_PAGE = _DOCS / "benchmarks.md"
_RESULTS = _DOCS / "benchmarks" / "results.json"

Results = dict[str, dict[str, Any]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these again, keep the rest")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from bench.__main__ import MEASURED

    results: Results = json.loads(_RESULTS.read_text()) if _RESULTS.exists() else {}
    failures = []
    for name in options.only or MEASURED:
        for arguments in module_of(name).RUNS:
            failures += _measure(name, arguments, results)
            _RESULTS.parent.mkdir(exist_ok=True)
            _RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    _PAGE.write_text(page(_PAGE.read_text(), results))
    return {"failures": failures, "page": _PAGE.name}


def module_of(name: str) -> Any:
    return importlib.import_module(f"bench.{name.replace('-', '_')}")


def _measure(name: str, arguments: tuple[str, ...], results: Results) -> list[str]:
    """Run one and keep its result; what it said was wrong, if anything."""
    title = " ".join([name, *arguments])
    say(f"── {title}")
    command = [sys.executable, "-m", "bench", name, *arguments, "--json"]
    if hasattr(module_of(name), "plot"):
        plot = f"{'-'.join([name, *_values(arguments)])}.png"
        command += ["--plot", str(_RESULTS.parent / plot)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = ended.stdout.splitlines()
    if lines:
        kept = {"machine": machine(), "on": str(datetime.date.today()), **json.loads(lines[-1])}
        results.setdefault(name, {})[" ".join(arguments)] = kept
    return [f"{title}: exit {ended.returncode}"] if ended.returncode else []


def _values(arguments: tuple[str, ...]) -> list[str]:
    return [argument for argument in arguments if not argument.startswith("-")]


def page(text: str, results: Results) -> str:
    """The page with each table that there is a result for written anew."""
    for name, runs in results.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        table = _table(name, runs)
        before, found, rest = text.partition(start)
        if found:
            text = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def _table(name: str, runs: dict[str, Any]) -> str:
    module = module_of(name)
    if hasattr(module, "table"):  # it has a form of its own
        tables = [module.table(result) for result in runs.values()]
    else:
        columns = {
            _heading(arguments): module.figures(result) for arguments, result in runs.items()
        }
        tables = [markdown(columns)]
    return "\n\n".join([*tables, _sources(name, runs)])


def _sources(name: str, runs: dict[str, Any]) -> str:
    """Say which commands the figures are of, and of each when and on what machine."""
    commands: dict[str, list[str]] = {}
    for arguments, result in runs.items():
        command = f"`python -m bench {' '.join([name, arguments]).strip()}`"
        commands.setdefault(f"{result['on']}, {result['machine']}", []).append(command)
    return " ".join(f"{', '.join(some)}; {where}." for where, some in commands.items())


def _heading(arguments: str) -> str:
    return ", ".join(_values(tuple(arguments.split()))) or "measured"


def machine() -> str:
    """What a figure was measured on, without anything that names the machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{os.cpu_count()} cores{_model()}, {pages / 2**30:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def _model() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return f" ({found[1].strip()})" if found else ""
