"""Prints what a submit would do: rows, pushes by sink, samples, and when it would start and end.

Samples are shown as they would be sent, so that a wrong template is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import note
from pushlane.cli.limits import limit_text
from pushlane.cli.parsing import pushes_text, rows_text
from pushlane.cli.render import plain, print_json, seconds_text, time_text
from pushlane.cli.why import unread_text, waits_as_json
from pushlane.core.endings import WaitReason
from pushlane.core.task import now_ms
from pushlane.diagnosis.look import SinkPrediction, predict
from pushlane.diagnosis.situation import due_text, what_text
from pushlane.model.due import waiting_of
from pushlane.model.limits import Limit
from pushlane.producers.dry_run import MOST_COUNTED, DryRun, dry_run
from pushlane.producers.request import OnProgress, SubmitRequest
from pushlane.producers.samples import samples
from pushlane.producers.validate import NOTHING
from pushlane.settings import Settings

_UNSERVED = ("no_dispatcher", "sink_unserved")
Tried = tuple[DryRun, list[SinkPrediction]]


async def try_submit(
    backend: Backend, settings: Settings, request: SubmitRequest, tell: OnProgress
) -> Tried:
    """Return what a submit would do, and how its pushes would fare at each sink."""
    ran = await dry_run(backend, settings, request, tell)
    limit = None if request.limit.is_none else request.limit
    sinks = await predict(
        backend, settings, ran.task, ran.by_sink, ran.put_off, limit, shows_targets=True
    )
    return ran, sinks


def print_tried(
    tried: Tried, settings: Settings, request: SubmitRequest, *, reveal: bool, as_json: bool
) -> None:
    """Print it; what rows hold is shown with `reveal` only."""
    ran, predictions = tried
    of_recipients = _of_recipients(ran, dedupes=bool(request.dedupe))
    found = samples(ran, reveal=reveal)
    if as_json:
        print_json(_as_json(ran, predictions, found))
        return
    typer.echo(f"{pushes_text(ran.accepted)}, {rows_text(ran.rejected, 'bad row')} left out")
    if of_recipients:
        typer.echo(of_recipients)
    if ran.empty:
        typer.echo(f"{pushes_text(ran.empty)} with {NOTHING} (--silent)")
    mean = round(ran.total_bytes / ran.accepted)
    typer.echo(f"bytes a push: {ran.least_bytes:,} to {ran.most_bytes:,}, {mean:,} on average")
    for one in predictions:
        typer.echo(_prediction_text(one))
        for line in _wait_lines(ran, one):
            typer.echo(f"  {line}")
        for cause in one.causes:
            if cause.name.startswith("later"):
                continue
            typer.echo(f"  {cause.detail}")
            if cause.name in _UNSERVED:
                typer.echo(f"    do: {cause.do}")
    for sample in found:
        _print_sample(sample)
    if unread := next((one.unread_limits for one in predictions), ()):
        note(unread_text(unread))
    if request.rate_per_s:
        note(_rate_text(ran, settings, request.rate_per_s))
    _remark(ran, request, reveal=reveal)


def _wait_lines(ran: DryRun, one: SinkPrediction) -> Iterator[str]:
    """Yield what pushes would wait for, and until when: one line a reason."""
    now = now_ms()
    of_all = pushes_text(one.pushes)
    for waits in waiting_of(ran.put_off.get(one.sink, ()), now):
        first = due_text(waits.first_ms, now, waits.zone)
        last = due_text(waits.last_ms, now)
        until = first if first.startswith(last) else f"{first}, the last until {last}"
        what = what_text(waits.reason)
        hours = f" ({ran.task.quiet})" if waits.reason == WaitReason.QUIET_HOURS else ""
        would = "would wait" if ran.task.not_before_ms <= now else "would wait at its start"
        yield f"{waits.pushes:,} of {of_all} {would} for {what}{hours}, until {until}"


def _rate_text(ran: DryRun, settings: Settings, per_s: float) -> str:
    """Return how long a rate has its pushes take, by what each costs at its sink."""
    costs = {name: own.cost for name, own in settings.sinks.items()}
    cost = sum(pushes * costs.get(sink, 1.0) for sink, pushes in ran.by_sink.items())
    rate = limit_text(Limit(rate_per_s=per_s))
    return f"with {rate} {pushes_text(ran.accepted)} take at least {seconds_text(cost / per_s)}"


def _remark(ran: DryRun, request: SubmitRequest, *, reveal: bool) -> None:
    if request.first is not None:
        first = min(request.first, ran.accepted)
        rows = "row" if first == 1 else f"{first:,} rows"
        note(f"only the first {rows} would be submitted now (--first)")
    if request.paused:
        note("it would be paused, and send nothing until it is resumed")
    if ran.rejected:
        note(f"{ran.rejected:,} bad rows; see {ran.rejects}")
    if ran.existing is not None:
        is_sealed = ran.existing.total is not None
        what = "a submit would do nothing" if is_sealed else "a submit would go on with it"
        note(f"the key is that of task {ran.existing.id} already: {what}")
    note("nothing was submitted" + ("" if reveal else "; --reveal shows recipients"))


def _of_recipients(ran: DryRun, *, dedupes: bool) -> str:
    """Tell of recipients with several pushes, empty if there are none."""
    if ran.recipients is None:
        return f"not counted whether a recipient occurs twice: over {MOST_COUNTED:,} recipients"
    if not ran.repeated:
        return ""
    occur = "1 recipient occurs" if ran.repeated == 1 else f"{ran.repeated:,} recipients occur"
    would = "" if dedupes else "would "
    return (
        f"{occur} more than once; with --dedupe recipient {ran.recipients:,} of "
        f"{pushes_text(ran.accepted)} {would}go"
    )


def _print_sample(sample: dict[str, Any]) -> None:
    typer.echo(f"push {sample['seq']:,} to {plain(sample['recipient'])} at sink {sample['sink']}")
    for name in ("title", "body", "data", "payload"):
        if value := sample.get(name):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            typer.echo(f"  {name}: {plain(text)}")


def _prediction_text(one: SinkPrediction) -> str:
    share = "" if one.entitled_share is None else f", its share {100 * one.entitled_share:.3g} %"
    rate = "" if one.sink_per_s is None else f" of {one.sink_per_s:,.4g} pushes/s"
    if one.expected is None:
        is_unserved = any(cause.name in _UNSERVED for cause in one.causes)
        end = "ETA unknown" + (": nothing is delivering yet" if is_unserved else "")
    else:
        starts_s, ends_s = one.expected
        start = "now" if starts_s < 1 else f"in {seconds_text(starts_s)}"
        at = time_text(now_ms() + round(ends_s * 1000))
        end = f"starts {start}, ends in {seconds_text(ends_s)}, at {at}"
    return f"sink {one.sink}: {pushes_text(one.pushes)}{share}{rate if share else ''}; {end}"


def _as_json(
    ran: DryRun, predictions: Sequence[SinkPrediction], found: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    ends = [one.expected.ends_in_s if one.expected else None for one in predictions]
    known = [end for end in ends if end is not None]
    return {
        "rows": ran.accepted + ran.rejected,
        "rejected": ran.rejected,
        "rejects": None if ran.rejects is None else str(ran.rejects),
        "pushes": ran.accepted,
        "pushes_by_sink": dict(ran.by_sink),
        "bytes": {
            "least": ran.least_bytes,
            "most": ran.most_bytes,
            "mean": round(ran.total_bytes / ran.accepted, 1),
            "total": ran.total_bytes,
        },
        "empty": ran.empty,
        "recipients": ran.recipients,
        "repeated_recipients": ran.repeated,
        "existing_task": ran.existing.id if ran.existing else None,
        "samples": found,
        "sinks": [_prediction_as_json(one) for one in predictions],
        "ends_in_s": round(max(known), 1) if known and len(known) == len(ends) else None,
    }


def _prediction_as_json(one: SinkPrediction) -> dict[str, Any]:
    share, per_s, expected = one.entitled_share, one.sink_per_s, one.expected
    return {
        "sink": one.sink,
        "pushes": one.pushes,
        "waits": [waits_as_json(each) for each in one.waits],
        "causes": [{"cause": cause.name, "detail": cause.detail} for cause in one.causes],
        "entitled_share": None if share is None else round(share, 4),
        "sink_per_s": None if per_s is None else round(per_s, 2),
        "starts_in_s": None if expected is None else round(expected.starts_in_s, 1),
        "ends_in_s": None if expected is None else round(expected.ends_in_s, 1),
    }
