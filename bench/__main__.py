"""`python -m bench NAME [options]`: run one benchmark; its JSON is the last line printed.

`make bench` is `python -m bench all`: every one that docs/benchmarks.md shows. A benchmark is a
module with `add_options`, `run` (its JSON), `figures` (its table), `RUNS` (what `all` runs of it)
and, where there is one, `plot`. `faults`, `soak` and `exit-codes` take long and are run by
themselves, `dry` looks into what `fairness` finds, and `cells` at processes that want the same.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from bench.everything import module_of
from bench.figures import show
from pushlane.core.errors import PushlaneError

MEASURED = (
    "api",
    "console",
    "fairness",
    "fanout",
    "first-hour",
    "growth",
    "ingest",
    "late-task",
    "lookups",
    "memory",
    "metrics",
    "modes",
    "peers",
    "pick",
    "providers",
    "quota-change",
    "receipts",
    "results",
    "scale",
    "sink",
    "sinks",
    "slow-task",
    "start",
    "stored-waits",
    "throughput",
    "topics",
    "trace",
)
APART = {
    "all": "everything",
    "cells": "cells",
    "dry": "dry",
    "exit-codes": "exit_codes",
    "faults": "faults",
    "keys": "keys",
    "soak": "soak",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in (*MEASURED, *APART):
        module = module_of(APART.get(name, name))
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0])
        command.add_argument("--json", action="store_true", help="print nothing but the JSON")
        if hasattr(module, "plot"):
            command.add_argument("--plot", type=Path, metavar="PNG", help="draw it into a file")
        module.add_options(command)
        command.set_defaults(module=module)
    options = parser.parse_args()
    module = options.module
    for number in (signal.SIGINT, signal.SIGTERM):  # either way, what was started is stopped
        signal.signal(number, signal.default_int_handler)
    try:
        result = module.run(options)
    except KeyboardInterrupt:
        print("interrupted; what it had started is stopped", file=sys.stderr)
        return 130
    except PushlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if hasattr(module, "figures") and not options.json:
        show(module.__doc__.splitlines()[0], module.figures(result))
    if getattr(options, "plot", None):
        module.plot(result, options.plot)
    print(json.dumps(result))
    if result.get("lost"):
        print(f"error: {result['lost']} pushes were lost", file=sys.stderr)
        return 1
    for failure in result.get("failures", ()):
        print(f"error: {failure}", file=sys.stderr)
    return 1 if result.get("failures") else 0


if __name__ == "__main__":
    sys.exit(main())
