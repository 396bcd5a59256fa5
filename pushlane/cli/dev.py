"""`demo`, `up` and `down`, which a clone has in its folder `dev`; where there is none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import typer

from pushlane.cli.errors import errors_told
from pushlane.core.errors import BadInput

_ROOT = Path(__file__).resolve().parents[2]
_COMMANDS = {
    "demo": "Show the main job: a late urgent task among large ones.",
    "up": "Start a local Pulsar and Redis.",
    "down": "Stop what `up` started.",
}


def register(app: typer.Typer) -> None:
    # a folder of installed packages may have one that is called `dev`, too
    if (_ROOT / "pyproject.toml").is_file() and (_ROOT / "dev" / "commands.py").is_file():
        _commands_of(_ROOT).register(app)
        return
    takes_anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name, does in _COMMANDS.items():
        help_text = f"{does} From a clone of the source alone."
        app.command(name, help=help_text, context_settings=takes_anything)(_missing(name))


def _commands_of(root: Path) -> ModuleType:
    """Import `dev.commands` by its place: the clone need not be where modules are looked for."""
    if "dev" not in sys.modules:
        folder = root / "dev"
        spec = spec_from_file_location(
            "dev", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["dev"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["dev"])
    return importlib.import_module("dev.commands")


def _missing(name: str) -> Callable[[typer.Context], None]:
    def tell(context: typer.Context) -> None:
        if name == "up" and "--json" not in context.args and not sys.stdout.isatty():
            typer.echo("false")  # so that `eval "$(pushlane up)"` fails too
        with errors_told(debug=False):
            raise BadInput(
                f"`pushlane {name}` is in the folder dev/ of a clone, which is not installed: "
                "clone the repository, run `pip install -e '.[dev]'` in it, and try again"
            )

    return tell
