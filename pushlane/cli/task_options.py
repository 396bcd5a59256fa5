"""The options of a task as flags of the command line: those of `producers.task_options`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from pushlane.cli.completion import complete_delivery, complete_level
from pushlane.cli.parsing import parse_key, parse_level, parse_word
from pushlane.core.task import DeliveryMode, OnUnknown
from pushlane.producers.task_options import read_options, sink_names


@dataclass(frozen=True, kw_only=True)
class TaskFlags:
    """The flags of a task's options, each as it was written."""

    level: Annotated[
        str,
        typer.Option(
            "--level", metavar="high|medium|low", autocompletion=complete_level, help="Level."
        ),
    ]
    recipient: Annotated[str, typer.Option(metavar="COLUMN", help="Column of recipients.")] = (
        "recipient"
    )
    title: Annotated[str, typer.Option(help="Template like 'Hi {name}'.")] = ""
    body: Annotated[str, typer.Option(help="Template like 'Order {id} is on its way'.")] = ""
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to send along as data (repeatable)."),
    ] = None
    ordered_by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN", help="Rows with the same value here go one after another, in order."
        ),
    ] = ""
    dedupe: Annotated[
        str,
        typer.Option(metavar="recipient", help="Send only the first of a recipient's pushes."),
    ] = ""
    collapse: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help="Template; of an app's waiting pushes to a recipient with the same key, send only "
            "the newest.",
        ),
    ] = ""
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            metavar="COLUMN",
            help="Column to tell pushes apart by in reports, not sent along (repeatable).",
        ),
    ] = None
    trace_id: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Column of trace ids, for reports and the webhook."),
    ] = ""
    quota: Annotated[int, typer.Option(help="Pushes a turn.")] = 1
    name: Annotated[
        str, typer.Option(help="For people to know it by; that of its file unless given.")
    ] = ""
    key: Annotated[str | None, typer.Option(help="The same key makes one task, not two.")] = None
    app: Annotated[str, typer.Option(help="Who sends.")] = "default"
    not_before: Annotated[
        str,
        typer.Option(metavar="HH:MM|TIME", help="Start at the next HH:MM (local), or ISO time."),
    ] = ""
    delay: Annotated[str, typer.Option(metavar="10m", help="Start after this duration.")] = ""
    expires: Annotated[
        str, typer.Option(metavar="2h|TIME", help="Send nothing after this duration or ISO time.")
    ] = ""
    not_before_column: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column of when each push may go: ISO times or Unix seconds. Without a zone of "
            "its own a time is in that of --zone-column, else --zone.",
        ),
    ] = ""
    expires_column: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Column of when each push expires: likewise."),
    ] = ""
    quiet: Annotated[
        str,
        typer.Option(
            metavar="HH:MM-HH:MM",
            help="Send nothing in these hours, by the recipient's clock; what comes then waits for "
            "their end.",
        ),
    ] = ""
    zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE",
            help="Zone of recipients without one, like Europe/Berlin; UTC unless given.",
        ),
    ] = ""
    zone_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of recipients' zones (IANA names).")
    ] = ""
    retention: Annotated[
        str,
        typer.Option(
            metavar="2h",
            help="How long its lane is kept after its end for a replay, or 0; on Pulsar at most "
            "retention_s.",
        ),
    ] = ""
    max_attempts: Annotated[
        int | None, typer.Option(help="Deliveries tried before a push is dead.")
    ] = None
    delivery: Annotated[
        str,
        typer.Option(
            metavar="at_least_once|at_most_once|once",
            autocompletion=complete_delivery,
            help="What holds when a process dies (docs/guarantees.md).",
        ),
    ] = DeliveryMode.AT_LEAST_ONCE.value
    on_unknown: Annotated[
        str,
        typer.Option(
            "--on-unknown",
            metavar="resend|bury",
            help="With once: what becomes of a push whose dispatcher died; resend unless given.",
        ),
    ] = ""
    bad_rows: Annotated[
        Literal["stop", "skip"], typer.Option(help="What a row that cannot be used does.")
    ] = "stop"
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Where its pushes go; what cannot be delivered there goes to the next.",
        ),
    ] = None
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            metavar="COLUMN|SINK=COLUMN",
            help="Column of where a push goes, at this sink or at all; the recipient unless given "
            "(repeatable).",
        ),
    ] = None
    payload: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="JSON with what is sent as it is, by sink or under *; {field} names a column.",
        ),
    ] = ""
    stop_if_dead: Annotated[
        str,
        typer.Option(
            "--stop-if-dead",
            metavar="5%|off",
            help="Pause it when more of its pushes die; 50% of the first 1000 unless given.",
        ),
    ] = ""
    silent: Annotated[
        bool,
        typer.Option("--silent", help="Allow pushes without title, body, data and payload."),
    ] = False
    literal_braces: Annotated[
        bool,
        typer.Option(
            "--literal-braces", help="Send {{name}} as the text {name}, though it is a column."
        ),
    ] = False

    def read(self, now_ms: int) -> dict[str, Any]:
        """Return the fields of TaskOptions that the flags stand for.

        Raises:
            BadInput: a word, time or duration that cannot be read, or a time that has passed.
        """
        read = {
            "level": parse_level(self.level),
            "key": parse_key(self.key),
            "data": tuple(self.data or ()),
            "attribute": tuple(self.attribute or ()),
            "sink": () if self.sink is None else sink_names(self.sink.strip() or ","),
            "address": tuple(self.address or ()),
            "dedupe": parse_word(self.dedupe, "dedupe", ["recipient"]) if self.dedupe else "",
            "delivery": DeliveryMode(parse_word(self.delivery, "delivery", tuple(DeliveryMode))),
            "on_unknown": self._on_unknown(),
        }
        return read_options({**vars(self), **read}, now_ms)

    def _on_unknown(self) -> OnUnknown | None:
        if not self.on_unknown:
            return None
        return OnUnknown(parse_word(self.on_unknown, "on-unknown", tuple(OnUnknown)))
