"""The options of every command that starts Spark: where it runs, its memory, its own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.cli.extras import pipeline_extra
from pushlane.cli.parsing import parse_pairs

if TYPE_CHECKING:
    from pushlane.pipeline.receipts.job_context import SessionOptions

Master = Annotated[str, typer.Option(metavar="URL", help="Spark's master; this machine if unset.")]
Memory = Annotated[str, typer.Option(metavar="2g", help="Memory of Spark's driver.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark's own settings (repeatable)."),
]


def session_options(master: str, memory: str, conf: list[str] | None) -> SessionOptions:
    """For work on the store. Raises BadInput for a setting that is not NAME=VALUE."""
    with pipeline_extra():
        from pushlane.pipeline.receipts.job_context import DRIVER_MEMORY, SessionOptions
        from pushlane.pipeline.session import MASTER
    options = parse_pairs(conf or (), "--conf")
    return SessionOptions(master or MASTER, memory or DRIVER_MEMORY, options)
