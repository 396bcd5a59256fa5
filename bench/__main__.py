"""`python -m bench NAME [options]`: run one benchmark; its JSON is the last line printed."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys

from lanes.errors import PushlaneError

BENCHMARKS = ("fairness", "faults", "modes", "pick", "soak")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in BENCHMARKS:
        module = importlib.import_module(f"bench.{name.replace('-', '_')}")
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0])
        command.add_argument("--json", action="store_true", help="print nothing but the JSON")
        module.add_options(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # either way, what was started is stopped
        signal.signal(number, signal.default_int_handler)
    try:
        result = options.run(options)
    except KeyboardInterrupt:
        print("interrupted; what it had started is stopped", file=sys.stderr)
        return 130
    except PushlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(result))
    if result.get("lost"):
        print(f"error: {result['lost']} pushes were lost", file=sys.stderr)
        return 1
    for failure in result.get("failures", ()):
        print(f"error: {failure}", file=sys.stderr)
    return 1 if result.get("failures") else 0


if __name__ == "__main__":
    sys.exit(main())
