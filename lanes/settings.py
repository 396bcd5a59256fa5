"""Settings, validated once at the edge: from flags, `PUSHLANE_*`, `pushlane.toml`, in that order.

Nothing is read at import. `load` makes one frozen `Settings`; `origins` says where each value came
from. Inside, settings are trusted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from lanes.errors import BadInput

CONFIG_FILE = "pushlane.toml"


def default_data_dir() -> Path:
    """Where the embedded database lives unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "pushlane"


class Settings(BaseSettings):
    """Every setting, with its default."""

    model_config = SettingsConfigDict(
        env_prefix="PUSHLANE_", frozen=True, extra="forbid", toml_file=CONFIG_FILE
    )

    broker: str = Field("embedded", description="`embedded`, or the broker's pulsar:// URL")
    admin_url: str = Field("http://127.0.0.1:8080", description="Pulsar's admin REST URL")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0", description="the registry's URL (with Pulsar)"
    )
    data_dir: Path = Field(
        default_factory=default_data_dir, description="folder of the embedded store"
    )
    namespace: str = Field(
        "pushlane/lanes", description="Pulsar tenant/namespace that holds the lanes"
    )
    pulsar_token: SecretStr | None = Field(None, description="token for Pulsar and its admin REST")
    pool_lanes: int = Field(8, ge=1, le=1024, description="lanes that low tasks share")
    prefetch: int = Field(128, ge=1, le=10_000, description="messages a reader may hold untaken")
    batch: int = Field(32, ge=1, le=10_000, description="messages a producer puts into one batch")
    slots: int = Field(50, ge=1, le=100_000, description="deliveries in flight, per process")
    sink: str = Field("null", description="null, log:PATH, webhook:URL or package.module:callable")
    sink_timeout_s: float = Field(30.0, gt=0, description="longest wait for one delivery")
    max_attempts: int = Field(5, ge=1, le=100, description="deliveries tried before a push is dead")
    drain_timeout_s: float = Field(30.0, ge=0, description="longest wait for deliveries at a stop")
    log_format: Literal["text", "json"] = Field("text", description="how log lines look")

    @field_validator("broker")
    @classmethod
    def _known_broker(cls, broker: str) -> str:
        if broker == "embedded" or broker.startswith(("pulsar://", "pulsar+ssl://")):
            return broker
        raise ValueError("use `embedded` or a URL like pulsar://127.0.0.1:6650")

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
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        message = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"setting {name}={first.get('input')!r}: {message}") from error
    except ValueError as error:  # a broken TOML file
        raise BadInput(f"{CONFIG_FILE} cannot be read: {error}") from error


def origins(settings: Settings, flags: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Where each value came from: `flag`, an environment variable, the file, or `default`."""
    given = {name for name, value in (flags or {}).items() if value is not None}
    from_file = TomlConfigSettingsSource(Settings)()
    found = {}
    for name in Settings.model_fields:
        variable = f"PUSHLANE_{name.upper()}"
        if name in given:
            found[name] = "flag"
        elif any(key.upper() == variable for key in os.environ):
            found[name] = variable
        else:
            found[name] = CONFIG_FILE if name in from_file else "default"
    return found
