"""The settings of one named sink: a table `[sinks.NAME]` in the file of settings.

What is the same for all kinds is read here; the other options belong to the kind, and are checked
when the sink is opened (`dispatcher.sinks`). An option may be given as `NAME_file` or `NAME_env`:
then its value is what a file holds or an environment variable has, so that no secret has to stand
in the settings. No message shows an option's value.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import fields

from pushlane.core.errors import BadInput
from pushlane.core.names import DEFAULT_SINK, SINK_NAME
from pushlane.util.texts import MASK, shown_url

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (Mapping, "a table"),
    ((list, tuple), "a list"),
)


def kind_of(value: Any) -> str:
    """Return what a value is, without the value: it may be a secret."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "a date or time")


def expected(kind: Any) -> str:
    """Describe in words which values fit a type of ours."""
    from msgspec import inspect  # loads much that only this needs

    found = inspect.type_info(kind)
    choices = found.types if isinstance(found, inspect.UnionType) else (found,)
    return " or ".join(_one(one) for one in choices if not isinstance(one, inspect.NoneType))


def _one(found: Any) -> str:
    from msgspec import inspect

    match found:
        case inspect.IntType(ge=least, le=most):
            return f"a whole number {_range('from', least, most)}".rstrip()
        case inspect.FloatType(gt=None, ge=least, le=most):
            return f"a number {_range('from', least, most)}".rstrip()
        case inspect.FloatType(gt=least, le=most):
            return f"a number {_range('over', least, most)}".rstrip()
        case inspect.LiteralType(values=(word,)):
            return f"`{word}`"
        case inspect.LiteralType(values=words):
            return f"one of {', '.join(map(str, words))}"
        case inspect.EnumType(cls=enum):
            return f"one of {', '.join(str(word.value) for word in enum)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.DictType():
            return "a table of names and texts"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            is_number = isinstance(item, inspect.IntType)
            return "a list of whole numbers" if is_number else "a list of texts"
    return "a text"


def unfit(name: str, value: Any, kind: Any) -> str:
    """Say that an option has a value that does not fit its type, without the value."""
    is_, fits = kind_of(value), expected(kind)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if fits.startswith("one of") and isinstance(value, str):
        return f"{name} is not one of its words; give {fits}"
    is_out_of_range = fits.startswith(is_) or (is_number and fits.startswith("a number"))
    return f"{name} is {'out of range' if is_out_of_range else is_}; give {fits}"


def _range(word: str, least: float | None, most: float | None) -> str:
    start = "" if least is None else f"{word} {_figure(least)}"
    return start if most is None else f"{start} to {_figure(most)}"


def _figure(number: float) -> str:
    """Return a number in full: 2,419,200, not 2.4192e+06."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


_FROM_FILE = "_file"
_FROM_ENVIRONMENT = "_env"
_AS_GIVEN = frozenset(
    {"path", "function", "module", "only_http2", "http2", "streams", "batch_size", "to_address"}
    | {"client", "tls"}  # of what posts
    | {"allow", "ports"}  # of sinks whose pushes have URLs as addresses
    | {"connect_timeout_s", "first_byte_timeout_s"}  # of a webhook
    | {"project", "address", "dry_run"}  # of FCM
    | {"topic", "environment", "push_type", "platform"}  # of APNs and gorush
    | {"subject", "hosts", "ttl_s"}  # of Web Push
)
_URLS = frozenset({"url", "endpoint"})


class SinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one sink is. `cost` is what a push through it costs, in units of your own.

    `slots` and `timeout_s` go over the settings `slots` and `sink_timeout_s`. With `least_slots` a
    process uses between so many and all of its slots, as many as the sink's latency and errors
    allow. `rate_per_s` (in cost) and `in_flight` limit it over all processes, until
    `pushlane limit` says otherwise.
    `options` are those of its kind, as they were given.
    """

    kind: str
    slots: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    least_slots: Annotated[int, Meta(ge=1)] | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None
    retry_timeouts: bool = False
    rate_per_s: Annotated[float, Meta(gt=0)] | None = None
    in_flight: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0)] = 1.0
    options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"SinkSettings({self.kind})"

    def overrides(self) -> dict[str, Any]:
        """Return the settings that are others for this sink."""
        given = {"slots": self.slots, "sink_timeout_s": self.timeout_s}
        return {name: value for name, value in given.items() if value is not None}

    def shown_options(self) -> dict[str, Any]:
        """Return the options for people to read: what may be a secret is masked."""
        return {name: _shown(name, value) for name, value in self.options.items()}

    def files(self) -> list[Path]:
        """Return the files that options are read from."""
        return [Path(path) for _, path in self._files()]

    def files_open_to_others(self) -> list[str]:
        """Return a sentence for each file of its options that others than its owner can read.

        Links are followed, as Kubernetes mounts a secret as one.
        """
        return [
            f"{name} {path} can be read by others than its owner; fix it with "
            f"chmod 600 {shlex.quote(path)}"
            for name, path in self._files()
            if _is_open(Path(path))
        ]

    def _files(self) -> list[tuple[str, str]]:
        """Return the options that files are named by, and their paths."""
        return [(name, str(at)) for name, at in self.options.items() if name.endswith(_FROM_FILE)]

    def resolved(self, sink: str) -> dict[str, Any]:
        """Return the options with what files and the environment hold.

        Raises:
            BadInput: a file or a variable is not there, or is empty; names it, and the sink.
        """
        options: dict[str, Any] = {}
        for name, value in self.options.items():
            if name.endswith(_FROM_FILE):
                options[name.removesuffix(_FROM_FILE)] = _file_text(sink, name, str(value))
            elif name.endswith(_FROM_ENVIRONMENT):
                held = os.environ.get(str(value))
                if not held:
                    raise BadInput(
                        f"sink {sink}: {name} names the variable {value}, which is not set"
                    )
                options[name.removesuffix(_FROM_ENVIRONMENT)] = held
            else:
                options[name] = value
        return options


OF_EVERY_SINK = tuple(name for name in SinkSettings.__struct_fields__ if name != "options")


_OWN = {one.name: one.type for one in fields(SinkSettings) if one.name != "options"}


def option_of(name: str) -> str:
    """Return the option that a name is of: `url` for `url_env`."""
    return name.removesuffix(_FROM_FILE).removesuffix(_FROM_ENVIRONMENT)


def read_sinks(value: Any, origin: str) -> dict[str, SinkSettings]:
    """Return the named sinks from a table of tables, or from its JSON.

    Raises:
        BadInput: a name, a kind or a number that cannot be; says which.
    """
    try:
        tables = msgspec.json.decode(str(value)) if isinstance(value, str) else value
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadInput(f"setting sinks (from {origin}): give a JSON object") from error
    if not isinstance(tables, Mapping):
        raise BadInput(f"setting sinks (from {origin}): give tables [sinks.NAME]")
    return {name: _read_sink(name, table, origin) for name, table in tables.items()}


def _read_sink(name: str, table: Any, origin: str) -> SinkSettings:
    if isinstance(table, SinkSettings):
        return table
    where = f"sink {name!r} (from {origin})"
    if not SINK_NAME.fullmatch(name):
        raise BadInput(
            f"{where}: a name has 1 to 32 lower-case letters, digits, dashes and underscores, "
            "begins with a letter, and does not end in -later or -dead"
        )
    if name == DEFAULT_SINK:
        raise BadInput(f"{where}: the sink `default` is the setting `sink`; give this one a name")
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise BadInput(f'{where}: say what it is, like kind = "webhook"')
    own = {key: value for key, value in table.items() if key in _OWN}
    more = table.get("options", {})
    if not isinstance(more, Mapping):
        raise BadInput(f"{where}: options has to be a table")
    options = {key: value for key, value in table.items() if key not in _OWN and key != "options"}
    given = {**more, **options}
    _refuse_twice(where, given)
    for key, value in own.items():
        try:
            msgspec.convert(value, _OWN[key])
        except msgspec.ValidationError as error:
            raise BadInput(f"{where}: {unfit(key, value, _OWN[key])}") from error
    return msgspec.convert({**own, "options": given}, SinkSettings)


def _refuse_twice(where: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that is given in two ways, such as `url` and `url_env`."""
    first: dict[str, str] = {}
    for name in options:
        before = first.setdefault(option_of(name), name)
        if before != name:
            raise BadInput(f"{where}: {before} and {name} are both given; leave one of them out")


def _shown(option: str, value: Any) -> Any:
    if option in _URLS:
        return shown_url(str(value))
    is_open = option in _AS_GIVEN or option.endswith((_FROM_FILE, _FROM_ENVIRONMENT))
    return value if is_open else MASK


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:  # whoever opens the sink says what is wrong with it
        return False


def _file_text(sink: str, option: str, path: str) -> str:
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"sink {sink}: {option} {path} cannot be read: {why}") from error
    if not text:
        raise BadInput(f"sink {sink}: {option} {path} is empty")
    return text
