"""Settings, validated once at the edge: from flags, `PUSHLANE_*`, `pushlane.toml`, in order."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import fields, force_setattr, replace

from pushlane.core.errors import BadInput
from pushlane.core.names import DEFAULT_SINK
from pushlane.core.task import MAX_ATTEMPTS
from pushlane.settings.adapters import Capabilities, adapter_of, find_adapter
from pushlane.settings.sinks import SinkSettings, expected, read_sinks
from pushlane.settings.transport import transport_problems
from pushlane.util.texts import Secret, did_you_mean, masked, nearest

CONFIG_FILE = "pushlane.toml"
STORE_FILE = "pushlane.db"
"""The embedded store, in `data_dir`."""
REPORTS_FILE = "CURRENT"
"""What the store of receipts has in its folder, once there is one."""
CONFIG_VARIABLE = "PUSHLANE_CONFIG"
"""The variable that names another file of settings; `--config` sets it."""

_PREFIX = "PUSHLANE_"
_NEARLY = 0.8
_TRUTH = {"true": True, "false": False}
_TASKS_KEPT_S = 7_776_000.0
_NEED_THEIR_TASK = ("retention_s", "dead_retention_s", "ledger_window_s")
_MAY_BE_SECRET = ("pulsar_token", "redis_password", "receipts_key", "address_key", "sink")

Seconds = Annotated[float, Meta(gt=0)]
SecondsOrNone = Annotated[float, Meta(ge=0)]
BytesOrKeep = Annotated[int, Meta(ge=1024**2)] | Literal["keep"]
SecondsOrOff = Annotated[float, Meta(ge=5, le=86_400)] | Literal["off"]


def default_data_dir() -> Path:
    """Return the folder of the embedded database unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "pushlane"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, with its default. `load` also reads what the environment and the file say."""

    broker: str = "embedded"
    """`embedded`, or the broker's URL: pulsar://HOST:PORT, or more of them with commas."""
    admin_url: str = "http://127.0.0.1:8080"
    """Pulsar's admin REST URL; of several hosts (with commas) the next is asked if one is down."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """The registry's URL (with Pulsar): redis://HOST:PORT/DB, redis+sentinel://HOSTS/MASTER/DB or
    redis+cluster://HOSTS; with TLS rediss:// and so on.
    """
    redis_user: str | None = None
    """User of Redis (ACL), with a password of its own."""
    redis_password: Secret | None = None
    """Password for Redis, unless the URL has one."""
    redis_password_file: Path | None = None
    """File of the password for Redis, read again when it changes."""
    redis_ca_file: Path | None = None
    """Certificates (PEM) to trust for Redis over TLS."""
    redis_cert_file: Path | None = None
    """Our certificate (PEM) for a Redis that asks for one, with redis_key_file."""
    redis_key_file: Path | None = None
    """Key (PEM) of redis_cert_file."""
    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    """Folder of the embedded store."""
    namespace: str = "pushlane/lanes"
    """Pulsar tenant/namespace that holds the lanes."""
    pulsar_token: Secret | None = None
    """Token for Pulsar and its admin REST."""
    pulsar_token_file: Path | None = None
    """File of the token, read again when it changes."""
    pulsar_ca_file: Path | None = None
    """Certificates (PEM) to trust for pulsar+ssl:// and an https:// admin REST."""
    pulsar_cert_file: Path | None = None
    """Our certificate (PEM) for Pulsar and its admin REST, with pulsar_key_file."""
    pulsar_key_file: Path | None = None
    """Key (PEM) of pulsar_cert_file."""
    pulsar_oauth2_issuer_url: str | None = None
    """Issuer of OAuth 2.0 tokens for Pulsar (client credentials), instead of a token."""
    pulsar_oauth2_key_file: Path | None = None
    """File of the OAuth 2.0 client: JSON with client_id and client_secret."""
    pulsar_oauth2_audience: str | None = None
    """Audience to ask OAuth 2.0 tokens for."""
    pulsar_oauth2_scope: str | None = None
    """Scope to ask OAuth 2.0 tokens for."""
    url: str = ""
    """A server of `pushlane serve` to work through, instead of a backend of our own."""
    token_file: Path | None = None
    """File of the token for that server, read again when it changes."""
    url_ca_file: Path | None = None
    """Certificates (PEM) to trust for an https:// url, besides those of the system."""
    oidc_issuer: str = ""
    """Issuer of OpenID Connect whose tokens `pushlane serve` takes too, like https://id.example.com."""
    oidc_audience: str = ""
    """Audience that these tokens must be for."""
    oidc_roles: str = ""
    """Roles for words of the issuer: `pushlane-ops=operator,pushlane-admin=admin`."""
    oidc_role_claim: str = "roles"
    """Claim that has these words, as a list or a text; `a.b` is b within a."""
    oidc_apps_claim: str = ""
    """Claim that has the apps that the bearer sees; all apps unless set."""
    oidc_requests_per_s: Annotated[float, Meta(ge=0.001, le=1e6)] | None = None
    """Requests a second that a bearer may make of each server, whatever tokens they show."""
    oidc_requests_claim: str = ""
    """Claim that has this number for its bearer; without the claim the setting above holds."""
    oidc_client_id: str = ""
    """Name of the console at the issuer; with it people log in there (code flow with PKCE)."""
    oidc_client_secret_file: Path | None = None
    """File of the console's secret at the issuer, where it has one; read again when it changes."""
    oidc_scope: str = "openid"
    """Scopes that the console asks for, `openid` among them."""
    console_url: str = ""
    """URL of the console as browsers see it, like https://ops.example.com/console/; the issuer
    redirects there after login. By default it is taken from the request.
    """
    rules_over_http: bool = False
    """Whether `pushlane serve` lets admins of all apps save rules. An admin can then run code as
    the user of `pushlane rules serve`.
    """
    session_key_file: Path | None = None
    """File of the key that encrypts sessions of the console, the same for all processes of `serve`:
    32 bytes in base64, older keys on lines after it. Without it a session ends with its process.
    """
    upload_max: Annotated[int, Meta(ge=1024)] = 1024**3
    """Most bytes of all files together that wait to be submitted at the console of a `serve`."""
    pool_lanes: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Lanes that low tasks share, until `pushlane pool N` sets another number."""
    prefetch: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Pushes of a lane that a process may have at hand; of a pool lane half as many messages. The
    embedded store prefetches at most 32 MiB over all lanes; a lane with nothing prefetched still
    gets one message.
    """
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 32
    """Pushes per message for new tasks. Tasks of 16,384 pushes or more, and fan-outs, use four
    times as many (at most 512; 32 on pool lanes). 1 sends each push alone.
    """
    compression: Literal["none", "lz4", "zstd", "snappy", "zlib"] = "none"
    """How Pulsar's producers compress messages."""
    slots: Annotated[int, Meta(ge=1, le=100_000)] = 50
    """Deliveries in flight, per process."""
    sink: str = "null"
    """The target of the sink `default`: `webhook:URL`, `package.module:name`, `on:package.module`,
    `print`, `log:PATH`, or `null`, which throws pushes away. Until you set it, `dispatch` serves
    only the named sinks, and refuses to start if there are none.
    """
    replace_sink: bool = False
    """Start beside processes that deliver a sink's name to another target, to replace them."""
    sink_timeout_s: Seconds = 30.0
    """Longest wait for one delivery."""
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 5
    """Deliveries tried before a push is dead."""
    retry_first_s: Annotated[float, Meta(gt=0, le=86_400)] = 1.0
    """Longest wait before the second attempt; then it doubles."""
    retry_longest_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """Longest wait before an attempt, unless the sink names one."""
    outage_patience_s: Seconds = 86_400.0
    """How long failures of a sink that is down cost no push an attempt."""
    later_max: Annotated[int, Meta(ge=1)] = 1_000_000
    """Pushes of a lane that may wait for their time."""
    lane_quota_bytes: BytesOrKeep = 64 * 1024**3
    """Most bytes that a lane on Pulsar may hold, or `keep` for what its namespace says."""
    claim_timeout_s: Seconds = 15.0
    """Beyond sink_timeout_s: when a push that a lost process claimed counts as unknown."""
    retention_s: SecondsOrNone = 3600.0
    """How long a finished task's lane is kept for a replay."""
    dead_retention_s: SecondsOrNone = 2_592_000.0
    """How long dead pushes are kept after the end of their task."""
    ledger_window_s: Annotated[float, Meta(gt=60)] = 600.0
    """How long claims and confirmations of pushes are remembered."""
    recipient_window_s: Annotated[float, Meta(gt=60)] = 86_400.0
    """How long recipients are remembered for dedupe and collapse."""
    key_window_s: Annotated[float, Meta(gt=60)] = 86_400.0
    """How long keys of single pushes are remembered, from the first on."""
    task_retention_s: Seconds = _TASKS_KEPT_S
    """How long an ended task is kept, with its key and its counts."""
    half_made_retention_s: Annotated[float, Meta(ge=60)] = 604_800.0
    """How long a task is kept whose submit or producer ended before the task was complete."""
    receipts: Literal["off", "on", "required"] = "on"
    """Record outcomes; a full log drops its oldest (on) or holds pushes (required)."""
    receipts_partitions: Annotated[int, Meta(ge=1, le=64)] = 4
    """Partitions of a new log of receipts."""
    receipts_max_bytes: Annotated[int, Meta(ge=1024**2)] = 4 * 1024**3
    """Most bytes of receipts that the log holds."""
    receipts_buffer_bytes: Annotated[int, Meta(ge=1024**2)] = 64 * 1024**2
    """Most bytes of receipts that wait in memory while their log is behind (receipts=on)."""
    receipts_retention_s: SecondsOrNone = 604_800.0
    """How long receipts are kept that the pipeline has taken over."""
    receipts_key: Secret | None = None
    """Key of the hashes of recipients in receipts, instead of a random one."""
    address_key: Secret | None = None
    """Key that encrypts dead addresses at rest: 32 bytes in base64; older keys behind a comma."""
    dead_addresses_days: Annotated[int, Meta(ge=1, le=3_650)] = 30
    """Days that dead addresses are listed and registrations known; they stay suppressed."""
    ledger_away: Literal["wait", "degrade"] = "wait"
    """While claims cannot be recorded: wait, or deliver at least once."""
    order_timeout_s: Seconds = 3_600.0
    """Longest that a push waits for an earlier one of its key."""
    drain_timeout_s: SecondsOrNone = 30.0
    """Longest wait for deliveries at a stop."""
    start_patience_s: SecondsOrNone = 0.0
    """How long a command waits at its start for services that do not answer."""
    loop_patience_s: SecondsOrOff | None = None
    """After how long without a turn of its event loop a command ends itself, or `off`; 60 unless
    given, and longer where a delivery may take longer.
    """
    drain_target_s: Seconds = 300.0
    """Time within which a backlog should be gone: the target of an autoscaler."""
    reports_dir: Path | None = None
    """Folder of the store of receipts; data_dir/reports unless given."""
    fanout_dir: Path | None = None
    """Where fan-outs freeze their audiences, seen by every Spark worker; data_dir/fanout unless
    given.
    """
    fanout_keep_s: Annotated[float, Meta(ge=3_600)] = 604_800.0
    """How long the frozen audience of an abandoned fan-out is kept."""
    dedup_window_s: Seconds = 19_800.0
    """How long Pulsar is sure to remember an idle producer; by default it forgets after 6 h."""
    pipeline_detail_rate_per_s: Annotated[int, Meta(ge=0)] = 200_000
    """Receipts/s above which detail rows are sampled; 0 for never."""
    pipeline_detail_lag: Annotated[int, Meta(ge=0)] = 50_000
    """Bodies behind above which detail rows are sampled; 0 for never."""
    reports_detail_days: Annotated[int, Meta(ge=1)] = 30
    """Days that single receipts are kept in the reports."""
    reports_minutes_days: Annotated[int, Meta(ge=1)] = 7
    """Days that counts are kept by minute; then by hour."""
    reports_hours_days: Annotated[int, Meta(ge=1)] = 90
    """Days that counts are kept by hour; then by day, for good."""
    trace_endpoint: str = ""
    """URL of a collector that takes traces by OTLP over HTTP, like http://127.0.0.1:4318/v1/traces.
    Without it no trace is exported. Needs the extra otel.
    """
    trace_sample: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Part of the pushes without a traceparent that are traced, by trace id: 0.01 is one in a
    hundred. A push that has one is traced if its caller says that the trace is sampled.
    """
    trace_failures: bool = True
    """Trace pushes whose attempt failed, too, and what becomes of them; 100 a second at most."""
    trace_slow_s: SecondsOrNone = 0.0
    """Trace pushes, too, that took longer from when they were due to the sink's answer; 0 for none.
    """
    log_format: Literal["text", "json"] = "text"
    """How log lines look."""
    sinks: dict[str, SinkSettings] = {}
    """Sinks with names, each a table `[sinks.NAME]`: docs/sinks.md."""

    def __post_init__(self) -> None:
        """Convert each value to its type; an unset `task_retention_s` covers all that needs a task.

        Raises:
            BadInput: a value cannot be used.
        """
        for name, value in self.items():
            converted = _converted(name, _Given(value, "argument"))
            if converted is not value:
                force_setattr(self, name, converted)
        if self.task_retention_s == _TASKS_KEPT_S:
            needed_s = max(getattr(self, name) for name in _NEED_THEIR_TASK)
            force_setattr(self, "task_retention_s", max(_TASKS_KEPT_S, needed_s))

    def __hash__(self) -> int:
        """Return the same for equal settings; those of sinks are dicts, which have no hash."""
        return hash(tuple(repr(value) for _, value in self.items()))

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend that these settings name."""
        return adapter_of(self).capabilities

    @property
    def location(self) -> str:
        """The place of the tasks: the folder of the embedded store, or the URL of the broker."""
        return str(self.data_dir) if self.capabilities.is_local else self.broker

    @property
    def place(self) -> str:
        """Where the tasks are, as a sentence ends: in this folder, or at this broker or server."""
        if self.url:
            return f"at {masked(self.url)}"
        if self.capabilities.is_local:
            return f"in {self.data_dir.absolute()}"
        return f"at {masked(self.broker)} {self.namespace}"

    @property
    def is_store_missing(self) -> bool:
        """True when the store is a folder on this machine in which nobody has made it yet."""
        if self.url or not self.capabilities.is_local:
            return False
        try:
            return not (self.data_dir / STORE_FILE).exists()
        except PermissionError:  # it may be there: to open it says what is wrong
            return False

    @property
    def reports_root(self) -> Path:
        """The folder of the store of receipts."""
        return self.reports_dir or self.data_dir / "reports"

    @property
    def has_reports(self) -> bool:
        """True when there is a store of receipts, as `pushlane pipeline run` makes it."""
        return (self.reports_root / REPORTS_FILE).exists()

    @property
    def served(self) -> tuple[str, ...]:
        """The sinks that a dispatcher serves unless told otherwise.

        The sink `default` is one of them unless there are named ones and nobody said what it is.
        """
        names = tuple(self.sinks)
        return names if names and self.sink == "null" else (DEFAULT_SINK, *names)

    def of_sink(self, name: str) -> Settings:
        """Return the settings as they hold for this sink: its own go over the others."""
        own = self.sinks.get(name)
        return self if own is None else self.but(**own.overrides())

    def but(self, **changes: Any) -> Settings:
        """Return the same settings with some values changed."""
        return replace(self, **changes)

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in NAMES]

    def as_environment(self) -> dict[str, str]:
        """Return the variables that give another process the same settings, secrets included."""
        return {
            f"PUSHLANE_{name.upper()}": _as_text(value)
            for name, value in self.items()
            if value is not None
        }


def _as_text(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


_FIELDS = {field.name: field for field in fields(Settings)}
NAMES = tuple(_FIELDS)


class _Given(NamedTuple):
    """A value as it was given, and its origin."""

    value: Any
    origin: str


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings in force; flags that are None were not given.

    Raises:
        BadInput: a value cannot be used; says which, and where it came from.
    """
    given = _given(flags)
    settings = Settings(**{name: _converted(name, one) for name, one in given.items()})
    for name in _NEED_THEIR_TASK:
        needed_s = getattr(settings, name)
        if settings.task_retention_s < needed_s:
            raise _bad_setting(
                "task_retention_s",
                given["task_retention_s"],
                f"a task has to be kept for at least {name}={needed_s:.0f}: raise this setting, "
                f"or lower {name}",
            )
    for name, text in transport_problems(settings):
        raise _bad_setting(name, given[name], text)
    return settings


def origins(settings: Settings, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the origin of each value: `flag`, an environment variable, the file, or `default`."""
    given = _given(flags)
    return {
        name: given[name].origin if name in given else "default" for name, _ in settings.items()
    }


def misspelt_variables() -> list[str]:
    """Return what to say of variables of the environment that nearly name a setting.

    Others that begin so are left alone: Kubernetes makes some for a service of our name.
    """
    known = (*NAMES, CONFIG_VARIABLE.removeprefix(_PREFIX).lower())
    given = [name for name in os.environ if name.upper().startswith(_PREFIX)]
    return [
        f"{name} is not a setting, and changes nothing; did you mean {_PREFIX}{near.upper()}?"
        for name in given
        if (word := name[len(_PREFIX) :].lower()) not in known
        if (near := nearest(word, known, _NEARLY))
    ]


def _given(flags: Mapping[str, Any] | None) -> dict[str, _Given]:
    """Collect the given values: a flag goes over the environment, and that over the file."""
    variables = {f"{_PREFIX}{name.upper()}": name for name in NAMES}
    file = Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE).name
    found = {name: _Given(value, file) for name, value in _in_file().items()}
    for variable, value in os.environ.items():
        if name := variables.get(variable.upper()):
            found[name] = _Given(value, variable.upper())
    flags = flags or {}
    _refuse_unknown(flags, "flags")
    return found | {n: _Given(value, "flag") for n, value in flags.items() if value is not None}


def _in_file() -> dict[str, Any]:
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError as error:
        if named:
            raise BadInput(f"there is no settings file {named}") from error
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    _refuse_unknown(found, path.name)
    return found


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in _FIELDS:
            hint = did_you_mean(name, NAMES)
            raise BadInput(
                f"{where}: there is no setting {name!r}{hint} (`pushlane config` lists them)"
            )


def _converted(name: str, given: _Given) -> Any:
    kind = _FIELDS[name].type
    if name == "sinks":
        return read_sinks(given.value, given.origin)
    if name == "sink" and isinstance(given.value, dict):  # whose values are not shown
        table = next(iter(given.value), "NAME")
        raise BadInput(
            f"setting sink (from {given.origin}) is a text; a sink with a name is a table "
            f"[sinks.{table}]: write `sinks`, not `sink`"
        )
    try:
        parsed = _parsed(given.value, kind)
        if isinstance(parsed, float) and not math.isfinite(parsed):
            raise _bad_setting(name, given, "give a finite number")
        value = msgspec.convert(parsed, kind, dec_hook=made)
        if isinstance(value, Path):
            value = value.expanduser()
    except (ValueError, RuntimeError) as error:  # msgspec's own is one too; `~` may be no home
        raise _bad_setting(name, given, f"give {expected(kind)}") from error
    if name == "broker" and find_adapter(value) is None:
        raise _bad_setting(name, given, "use `embedded` or a URL like pulsar://127.0.0.1:6650")
    return value


def _parsed(value: Any, kind: Any) -> Any:
    """Parse a number, true or false that is given as a text; return all else as it is.

    That is also a word which may stand in place of the number.
    """
    choices = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if kind is bool and isinstance(value, str):
        return _TRUTH.get(value.lower(), value)
    words = {word for one in choices if get_origin(one) is Literal for word in get_args(one)}
    bare = {get_args(one)[0] if get_origin(one) is Annotated else one for one in choices}
    number = next((one for one in (int, float) if one in bare), None)
    is_number = isinstance(value, str) and value not in words
    return number(value) if number is not None and is_number else value


def made(kind: type, value: Any) -> Any:
    """Make a path or a secret of a text."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError("give a text")
    return kind(value)


def _bad_setting(name: str, given: _Given, problem: str) -> BadInput:
    """Make an error that names the setting and its origin, and its value if that is no secret."""
    shown = "" if name in _MAY_BE_SECRET else f"={masked(repr(given.value))}"
    return BadInput(f"setting {name}{shown} (from {given.origin}): {problem}")
