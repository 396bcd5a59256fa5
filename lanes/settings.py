"""Settings, validated once at the edge: from flags, `PUSHLANE_*`, `pushlane.toml`, in that order.

Nothing is read at import. `load` makes one frozen `Settings`; `origins` says where each value came
from. Inside, settings are trusted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from lanes.errors import BadInput
from lanes.masking import masked
from lanes.nearest import did_you_mean
from lanes.task import MAX_ATTEMPTS

CONFIG_FILE = "pushlane.toml"
_TASKS_KEPT_S = 7_776_000.0
_NEED_THEIR_TASK = ("retention_s", "dead_retention_s", "ledger_window_s")


def default_data_dir() -> Path:
    """Where the embedded database lives unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "pushlane"


class Settings(BaseSettings):
    """Every setting, with its default."""

    model_config = SettingsConfigDict(
        env_prefix="PUSHLANE_",
        frozen=True,
        extra="forbid",
        toml_file=CONFIG_FILE,
        allow_inf_nan=False,
    )

    broker: str = Field("embedded", description="`embedded`, or the broker's pulsar:// URL")
    admin_url: str = Field("http://127.0.0.1:8080", description="Pulsar's admin REST URL")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="the registry's URL (with Pulsar): a single server, not a Redis Cluster",
    )
    data_dir: Path = Field(
        default_factory=default_data_dir, description="folder of the embedded store"
    )
    namespace: str = Field(
        "pushlane/lanes", description="Pulsar tenant/namespace that holds the lanes"
    )
    pulsar_token: SecretStr | None = Field(None, description="token for Pulsar and its admin REST")
    pulsar_ca_file: Path | None = Field(
        None, description="certificates (PEM) to trust for pulsar+ssl:// and an https:// admin REST"
    )
    pool_lanes: int = Field(
        8,
        ge=1,
        le=1024,
        description="lanes that low tasks share, until `pushlane pool N` sets another number",
    )
    prefetch: int = Field(128, ge=1, le=10_000, description="messages a reader may hold untaken")
    batch: int = Field(32, ge=1, le=10_000, description="messages a producer puts into one batch")
    slots: int = Field(50, ge=1, le=100_000, description="deliveries in flight, per process")
    sink: str = Field("null", description="null, log:PATH, webhook:URL or package.module:callable")
    sink_timeout_s: float = Field(30.0, gt=0, description="longest wait for one delivery")
    max_attempts: int = Field(
        5, ge=1, le=MAX_ATTEMPTS, description="deliveries tried before a push is dead"
    )
    retry_first_s: float = Field(
        1.0, gt=0, le=86_400, description="longest wait before the second attempt; then it doubles"
    )
    retry_longest_s: float = Field(
        300.0,
        gt=0,
        le=86_400,
        description="longest wait before an attempt, unless the sink names one",
    )
    outage_patience_s: float = Field(
        86_400.0,
        gt=0,
        description="how long failures of a sink that is down cost no push an attempt",
    )
    later_max: int = Field(
        1_000_000, ge=1, description="pushes of a lane that may wait for their time"
    )
    claim_timeout_s: float = Field(
        15.0,
        gt=0,
        description="after sink_timeout_s: until a push that a lost process claimed is unknown",
    )
    retention_s: float = Field(
        3600.0, ge=0, description="how long a finished task's lane is kept for a replay"
    )
    dead_retention_s: float = Field(
        2_592_000.0, ge=0, description="how long dead pushes are kept after the end of their task"
    )
    ledger_window_s: float = Field(
        600.0, gt=60, description="how long claims and confirmations of pushes are remembered"
    )
    recipient_window_s: float = Field(
        86_400.0, gt=60, description="how long recipients are remembered for dedupe and collapse"
    )
    task_retention_s: float = Field(
        _TASKS_KEPT_S,
        gt=0,
        validate_default=True,
        description="how long an ended task is kept, with its key and its counts",
    )
    half_made_retention_s: float = Field(
        604_800.0,
        ge=60,
        description="how long a task stands whose submit or producer is gone; then it is ended",
    )
    receipts: Literal["off", "on", "required"] = Field(
        "on",
        description="record outcomes; a full log drops its oldest (on) or holds pushes (required)",
    )
    receipts_partitions: int = Field(
        4, ge=1, le=64, description="partitions of a new log of receipts"
    )
    receipts_max_bytes: int = Field(
        4 * 1024**3, ge=1024**2, description="most bytes of receipts that the log holds"
    )
    receipts_retention_s: float = Field(
        604_800.0, ge=0, description="how long receipts are kept that the pipeline has taken over"
    )
    receipts_key: SecretStr | None = Field(
        None, description="key of the hashes of recipients in receipts, instead of a random one"
    )
    ledger_away: Literal["wait", "degrade"] = Field(
        "wait", description="without a ledger: wait for it, or deliver at least once"
    )
    order_timeout_s: float = Field(
        3_600.0, gt=0, description="longest that a push waits for an earlier one of its key"
    )
    drain_timeout_s: float = Field(30.0, ge=0, description="longest wait for deliveries at a stop")
    reports_dir: Path | None = Field(
        None, description="folder of the store of receipts; data_dir/reports unless given"
    )
    fanout_dir: Path | None = Field(
        None,
        description="where fan-outs freeze their audiences, seen by every Spark worker; "
        "data_dir/fanout unless given",
    )
    fanout_keep_s: float = Field(
        604_800.0,
        ge=3_600,
        description="how long a frozen audience stays that no fan-out goes on with",
    )
    dedup_window_s: float = Field(
        19_800.0,
        gt=0,
        description="how long Pulsar surely knows an idle producer; it forgets after 6 h by itself",
    )
    pipeline_detail_rate_per_s: int = Field(
        200_000, ge=0, description="receipts/s above which detail rows are sampled; 0 for never"
    )
    pipeline_detail_lag: int = Field(
        50_000, ge=0, description="bodies behind above which detail rows are sampled; 0 for never"
    )
    reports_detail_days: int = Field(
        30, ge=1, description="days that single receipts are kept in the reports"
    )
    reports_minutes_days: int = Field(
        7, ge=1, description="days that counts are kept by minute; then by hour"
    )
    reports_hours_days: int = Field(
        90, ge=1, description="days that counts are kept by hour; then by day, for good"
    )
    log_format: Literal["text", "json"] = Field("text", description="how log lines look")

    @property
    def pulled(self) -> int:
        """How many of the prefetched messages a dispatcher gets off a reader at once."""
        return max(1, self.prefetch // 4)

    @field_validator("broker")
    @classmethod
    def _known_broker(cls, broker: str) -> str:
        if broker == "embedded" or broker.startswith(("pulsar://", "pulsar+ssl://")):
            return broker
        raise ValueError("use `embedded` or a URL like pulsar://127.0.0.1:6650")

    @field_validator("task_retention_s")
    @classmethod
    def _outlasts_what_needs_it(cls, kept_s: float, info: ValidationInfo) -> float:
        """Unless it is set, it is as long as it has to be."""
        needs = {name: float(info.data.get(name, 0)) for name in _NEED_THEIR_TASK}
        if kept_s == _TASKS_KEPT_S:
            return max(kept_s, *needs.values())
        for name, needed_s in needs.items():
            if kept_s < needed_s:
                raise ValueError(
                    f"a task has to be kept for as long as {name}={needed_s:.0f} needs it: raise "
                    "this one, or lower that"
                )
        return kept_s

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force; flags that are None were not given.

    Raises:
        BadInput: a value cannot be used; says which, and where it came from.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _bad_setting(error.errors()[0], given) from error
    except ValueError as error:  # a broken TOML file
        raise BadInput(f"{CONFIG_FILE} cannot be read: {error}") from error


def _bad_setting(found: ErrorDetails, given: Mapping[str, Any]) -> BadInput:
    """Names the setting and where it stands; of its value only what cannot be a secret."""
    name = str(found["loc"][0])
    if name not in Settings.model_fields:
        hint = did_you_mean(name, Settings.model_fields)
        return BadInput(
            f"{CONFIG_FILE}: there is no setting {name!r}{hint} (`pushlane config` lists them)"
        )
    value = found["input"]
    shown = "" if name in ("pulsar_token", "receipts_key", "sink") else f"={masked(repr(value))}"
    message = found["msg"].removeprefix("Value error, ")
    return BadInput(f"setting {name}{shown} (from {_origin(name, given)}): {message}")


def _origin(name: str, given: Mapping[str, Any]) -> str:
    """Where a value that is no default comes from."""
    if name in given:
        return "flag"
    variable = f"PUSHLANE_{name.upper()}"
    return variable if any(key.upper() == variable for key in os.environ) else CONFIG_FILE


def origins(settings: Settings, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Where each value came from: `flag`, an environment variable, the file, or `default`."""
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    from_file = TomlConfigSettingsSource(Settings)()
    found = {name: _origin(name, given) for name in Settings.model_fields}
    return {
        name: "default" if origin == CONFIG_FILE and name not in from_file else origin
        for name, origin in found.items()
    }
