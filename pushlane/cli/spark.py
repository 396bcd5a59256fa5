"""The options of every command that starts Spark: where it runs, its memory, its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pushlane.cli.errors import pipeline_extra
from pushlane.cli.flags import option
from pushlane.cli.parsing import parse_pairs

if TYPE_CHECKING:
    from pushlane.pipeline.receipts.job_context import SessionOptions


@dataclass(frozen=True, kw_only=True)
class SparkFlags:
    """The flags of a Spark session; empty where the command's own default holds."""

    master: Annotated[str, option("URL", "Spark's master; this machine if unset.")] = ""
    memory: Annotated[str, option("2g", "Memory of Spark's driver.")] = ""
    conf: Annotated[
        list[str] | None, option("NAME=VALUE", "Spark's own settings (repeatable).")
    ] = None

    def spark_options(self) -> dict[str, str]:
        """Return Spark's own settings. Raises BadInput for one that is not NAME=VALUE."""
        return parse_pairs(self.conf or (), "--conf")

    def session(self) -> SessionOptions:
        """Return the session for work on the store of receipts.

        Raises:
            BadInput: a setting is not NAME=VALUE, or the extra `pipeline` is not installed.
        """
        with pipeline_extra():
            from pushlane.pipeline.receipts.job_context import DRIVER_MEMORY, SessionOptions
            from pushlane.pipeline.session import MASTER
        options = self.spark_options()
        return SessionOptions(self.master or MASTER, self.memory or DRIVER_MEMORY, options)


DEFAULT_SPARK = SparkFlags()
