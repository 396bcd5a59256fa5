"""What the program loads for a command, and that it knows all commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from pushlane.cli.groups import ALONE, WITH_VALUE, CommandGroup, words_of
from pushlane.cli.help_texts import COMMANDS, EXAMPLES, OPTION_GROUPS
from pushlane.cli.main import _COMMANDS, _MODULES, build, commands_of
from pushlane.version import VERSION
from tests.command import Command, run_here


@pytest.mark.parametrize("module", _COMMANDS)
def test_every_command_that_a_module_registers_is_known_by_name(module: str) -> None:
    assert set(commands_of(module)) == set(_COMMANDS[module])


_ROOT = Path(__file__).parents[2]
_ALWAYS = {"typer", "msgspec", "shellingham", "annotated_doc", "typing_extensions"}
_TABLE = {"rich"}
_DISPATCHER = {"uvloop", "_cyutility"}
_LATER = {"pushlane.diagnosis", "pushlane.util.metrics", "rich.console", "http.server"}
_OPERATORS = {"pushlane.backends.embedded.backup", "pushlane.backends.operations"}


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        (["--version"], _ALWAYS),
        (["tasks"], _ALWAYS | _TABLE),
        (["pause", "sale"], _ALWAYS | _TABLE),
        (["quota", "sale", "2"], _ALWAYS | _TABLE),
        (["submit", "rows.csv", "--level", "high", "--silent"], _ALWAYS | _TABLE),
        (["dispatch", "--drain", "--sink", "null"], _ALWAYS | _TABLE | _DISPATCHER),
    ],
)
def test_a_command_loads_no_library_that_it_can_do_without(
    command: Command, words: list[str], libraries: set[str]
) -> None:
    command.submit("high", 1, "--name", "sale")

    loaded = loaded_by(command.folder, words)

    installed = {name for name, file in loaded.items() if "site-packages" in file}
    assert {name for name in installed if "." not in name} - libraries == set()


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["tasks"], _OPERATORS | _LATER - {"pushlane.diagnosis"}),
        (["pause", "sale"], _OPERATORS | _LATER),
        (["quota", "sale", "2"], _OPERATORS | _LATER),
        (["submit", "rows.csv", "--level", "high", "--silent"], _OPERATORS | _LATER),
        (["dispatch", "--drain", "--sink", "null"], _OPERATORS | _LATER),
    ],
)
def test_a_command_loads_nothing_of_what_only_others_use(
    command: Command, words: list[str], unused: set[str]
) -> None:
    command.submit("high", 1, "--name", "sale")

    loaded = loaded_by(command.folder, words)

    assert "pushlane.backends.embedded" in loaded
    assert unused & loaded.keys() == set()


def loaded_by(folder: Path, words: list[str]) -> dict[str, str]:
    """Run a command in a process of its own; return the modules that it loads, with their files."""
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "PUSHLANE_DATA_DIR": "data"},
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


_RUN = """
import json, sys

before = set(sys.modules)
from pushlane.cli.main import build

try:
    build()(prog_name="pushlane")
except SystemExit as end:
    assert not end.code, end.code
loaded = {name: sys.modules[name] for name in set(sys.modules) - before}
print(json.dumps({name: str(getattr(one, "__file__", "")) for name, one in loaded.items()}))
"""


def test_a_misspelt_command_is_answered_with_those_that_are_near(command) -> None:
    ran = command("taks")

    assert ran.exit_code == 2
    assert "did you mean 'tasks'" in ran.stderr


@pytest.mark.parametrize("name", ["tasks", "limits", "processes", "audit"])
def test_a_command_that_lists_hears_the_word_list(command, name: str) -> None:
    command.submit("high", 1)
    command("limit", "app/shop", "--rate", "9/s")

    alone, with_word = command(name, "--json"), command(name, "list", "--json")
    early = command("--data-dir", command.folder / "data", name, "list", "--json")

    assert (with_word.exit_code, with_word.stderr) == (0, alone.stderr)
    assert [one.stdout for one in (with_word, early)] == [alone.stdout] * 2
    assert command(name, "lists").exit_code == 2


_USAGE = "; `pushlane {} --help` shows its usage"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "submit",
            "an argument is missing: FILE (CSV, JSON Lines or Parquet; - for stdin)"
            + _USAGE.format("submit"),
        ),
        (
            "submit rows.csv",
            "an option is missing: --level high|medium|low (its priority)"
            + _USAGE.format("submit"),
        ),
        ("submit rows.csv --level", "--level needs a value: high|medium|low"),
        ("submit rows.csv --levle high", "there is no option --levle; did you mean '--level'?"),
        ("limit app/x --rtae 5/s", "there is no option --rtae; did you mean '--rate'?"),
        ("limit app/x -rate 5/s", "there is no option -rate; did you mean '--rate'?"),
        ("quota sale --prview", "there is no option --prview; did you mean '--preview'?"),
        ("pool --jsn", "there is no option --jsn; did you mean '--json'?"),
        ("levels --hgih=3", "there is no option --hgih" + _USAGE.format("levels")),
        ("tasks --limit x", "--limit: 'x' is not a whole number" + _USAGE.format("tasks")),
        ("tasks --limit -1", "--limit: -1 is not in the range x>=0" + _USAGE.format("tasks")),
        ("tasks --all=yes", "--all takes no value" + _USAGE.format("tasks")),
        ("quota sale x", "N: 'x' is not a whole number" + _USAGE.format("quota")),
        ("task show a b", "there are words too many: b" + _USAGE.format("task show")),
        ("tokens registr", "there is no command 'registr'; did you mean 'register'?"),
        ("xyzzy", "there is no command 'xyzzy'; `pushlane --help` lists the commands"),
        ("submit rows.csv --level high --bad-rows no", "--bad-rows: 'no' is not one of 'stop'"),
        ("submit rows.csv --level high --reveal", "--reveal shows the recipients of a dry run"),
    ],
)
def test_wrong_usage_is_one_error_line_like_any_other(command, words: str, told: str) -> None:
    ran = command(*words.split())

    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith(f"error: {told}")
    assert "--help`" in ran.stderr


_ALL = [
    (f"{name} {inner}" if inner else name, command)
    for module in _COMMANDS
    for name, found in commands_of(module).items()
    for inner, command in getattr(found, "commands", {"": found}).items()
]
_OWN_ENVIRONMENT = ("demo", "up", "down")


def options_of(command: Any) -> set[str]:
    return {name for one in command.params for name in one.opts}


_WITHOUT_JSON = {
    "sample": "its file is its output",
    "dispatch": "it runs until it is stopped, and says in its log what it does",
    "ingest run": "the same",
    "pipeline run": "the same",
    "rules serve": "the same",
    "alerts run": "the same",
    "serve": "the same",
    "mcp": "an agent speaks with it",
    "down": "it says what it stops, and prints nothing",
}


def test_every_command_prints_json_but_those_that_have_nothing_to_print() -> None:
    without = {name for name, command in _ALL if "--json" not in options_of(command)}

    assert without == set(_WITHOUT_JSON)


def test_the_options_that_may_stand_before_a_command_are_those_of_every_command() -> None:
    each = [options_of(command) for name, command in _ALL if name not in _OWN_ENVIRONMENT]

    shared = {name for name in set.intersection(*each) if name.startswith("-")}
    assert shared == {*WITH_VALUE, *ALONE}


@pytest.mark.parametrize(
    "words",
    [
        ("--data-dir", "here", "task", "show", "sale", "--json"),
        ("--data-dir=here", "--debug", "task", "show", "sale", "--json"),
        ("task", "--data-dir", "here", "show", "sale", "--json"),
        ("--data-dir", "here", "task", "sale", "--json"),
        ("task", "--data-dir", "here", "--json", "sale"),
        ("--data-dir", "elsewhere", "task", "sale", "--json", "--data-dir", "here"),
    ],
)
def test_options_of_every_command_may_stand_before_it(command, words: tuple[str, ...]) -> None:
    task = command.submit("high", 1, "--name", "sale", "--data-dir", "here")

    assert command(*words).json["id"] == task


def test_other_options_are_told_to_stand_after_the_command(command) -> None:
    ran = command("--json", "tasks")

    assert ran.exit_code == 2
    assert ran.stderr.endswith(
        "error: --json stands before the command; put it after 'tasks'; `pushlane --help` lists "
        "the commands\n"
    )


def test_a_value_that_is_missing_shows_the_help_and_does_nothing(command) -> None:
    ran = command("--data-dir", "tasks")

    assert (ran.exit_code, (command.folder / "tasks").exists()) == (2, False)


@pytest.mark.parametrize("words", [("--data-dir", "here", "--version"), ("--version",)])
def test_the_version_needs_no_command(command, words: tuple[str, ...]) -> None:
    assert command(*words).stdout == f"pushlane {VERSION}\n"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("list", "`pushlane tasks` lists the tasks"),
        (
            "health",
            "`pushlane doctor` checks the set-up, `pushlane why` says what anything waits for",
        ),
        (
            "stop",
            "`pushlane pause TASK` stops a task for a while, `pushlane cancel TASK` for good",
        ),
        ("status", "`pushlane tasks` lists the tasks, `pushlane why` says what anything waits for"),
        ("version", "`pushlane --version` prints it"),
        (
            "help",
            "`pushlane --help` lists the commands, `pushlane COMMAND --help` says what one takes",
        ),
        (
            "logs",
            "each process writes its log to stderr; what became of a task: `pushlane results "
            "TASK`, what it waits for: `pushlane why TASK`",
        ),
    ],
)
def test_a_word_that_others_have_a_command_for_leads_to_ours(command, word: str, told: str) -> None:
    ran = command(word)

    assert ran.exit_code == 2
    assert ran.stderr.endswith(f"error: there is no command {word!r}: {told}\n")


_HELP = {name: command for name, command in _ALL if not getattr(command, "hidden", False)}
_WIDTH = 80


def test_the_first_screen_has_every_command_in_one_group_and_one_line(command) -> None:
    shown = command("--help").stdout

    listed = [name for group in COMMANDS.values() for name in group]
    assert sorted(listed) == sorted(_MODULES)
    for name in listed:
        assert len([line for line in shown.splitlines() if line.startswith(f"  {name} ")]) == 1
    assert max(map(len, shown.splitlines())) <= _WIDTH


def test_the_first_screen_says_what_our_words_are_elsewhere(command) -> None:
    shown = " ".join(command("--help").stdout.split())

    for ours, theirs in {"task": "campaign", "level": "priority", "quota": "weight"}.items():
        assert re.search(rf"{ours} is (a|its) {theirs}", shown)


def test_the_first_screen_loads_no_command(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, ["--help"])

    ours = {name for name in loaded if name.startswith("pushlane.cli.")}
    assert ours == {"pushlane.cli.main", "pushlane.cli.groups", "pushlane.cli.help_texts"}


@pytest.mark.parametrize("name", _HELP)
def test_the_help_of_a_command_ends_with_an_example(name: str) -> None:
    shown = run_here(*name.split(), "--help").stdout

    last = shown[shown.rindex("\n\n") :].splitlines()
    assert last[2] in ("Example:", "Examples:")
    assert last[3].startswith("  pushlane ")
    assert max(map(len, shown.splitlines())) <= _WIDTH
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines]
)
def test_an_example_is_a_command_line_that_is_accepted(name: str, line: str) -> None:
    words = shlex.split(line.replace("\\\n", ""))
    assert words[0] == "pushlane"

    context: Any = get_command(build()).make_context("pushlane", words[1:])
    while isinstance(context.command, CommandGroup):
        _, found, rest = context.command.resolve_command(
            context, context._protected_args + context.args
        )
        context = found.make_context(found.name, rest, parent=context)

    assert name in ("", words_of(context))


@pytest.mark.parametrize("name", OPTION_GROUPS)
def test_each_option_of_a_command_with_groups_is_in_one(name: str) -> None:
    own = {
        one.opts[0]
        for one in _HELP[name].params
        if one.param_type_name == "option" and not one.hidden
    } - {*WITH_VALUE, *ALONE}

    assert sorted(" ".join(OPTION_GROUPS[name].values()).split()) == sorted(own)


def test_a_command_with_many_options_has_them_in_groups() -> None:
    many = {
        name
        for name, command in _HELP.items()
        if len([one for one in command.params if "--" in one.opts[0] and not one.hidden]) > 18
    }

    assert many <= set(OPTION_GROUPS)
