"""Turns a row into the bytes of a push: recipient, rendered templates, copied data.

The same task and row give the same bytes every time, so that a repeated publish can be recognised.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_PUSH_BYTES, Push, encode
from pushlane.core.task import Task
from pushlane.producers.columns import (
    Labels,
    RowTimes,
    address_columns,
    read_addresses,
    read_labels,
    read_times,
    time_columns,
)
from pushlane.producers.payloads import payload_fields, read_payloads
from pushlane.producers.predecessors import Predecessors
from pushlane.producers.rows import BadRow, RowSource, Unusable, Wanted, is_encodable
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.template import Template, text_of
from pushlane.producers.validate import nothing_in, refuse_doubled, refuse_empty
from pushlane.settings.payload_limits import PayloadLimits
from pushlane.util.errors import OversizedPush
from pushlane.util.texts import did_you_mean, nearest

EncodeRow = Callable[[int, Sequence[Any]], "bytes | BadRow"]

_MAX_SHOWN = 40
_RECIPIENTS = (
    *("recipient", "email", "emailaddress", "mail", "phone", "phonenumber", "mobile", "msisdn"),
    *("token", "devicetoken", "device", "deviceid", "user", "userid", "customerid", "id"),
)


class Encoder:
    """The templates and columns of a task's options, checked against what a source has.

    Raises BadInput for a column or a template field that is not there, a broken template, one with
    a column in doubled braces, or options that make empty pushes.
    """

    def __init__(self, options: TaskOptions, source: RowSource) -> None:
        self._options = options
        self._misfit = source.misfit
        self._title = Template(options.title)
        self._body = Template(options.body)
        self._collapse = Template(options.collapse)
        ordered_by = (options.ordered_by,) if options.ordered_by else ()
        self._templates = (self._title, self._body, self._collapse)
        in_templates = (field for template in self._templates for field in template.fields)
        times = time_columns(options).values()
        payload = chain.from_iterable(payload_fields(options).values())
        fields = (options.recipient, *in_templates, *payload, *ordered_by, *times)
        required = tuple(dict.fromkeys(fields))
        trace_id = (options.trace_id,) if options.trace_id else ()
        addresses = address_columns(options).values()
        extra = dict.fromkeys((*options.data, *options.attributes, *trace_id, *addresses))
        optional = tuple(field for field in extra if field not in required)
        self.wanted = Wanted(required, optional)
        self._require(source)
        refuse_doubled(options, (*source.columns, *self.wanted.names))
        refuse_empty(options, source.name, source.columns)

    def for_task(self, task: Task, limits: PayloadLimits) -> EncodeRow:
        """Return a function from seq and values to the push's bytes, or to why there are none."""
        names, options = self.wanted.names, self._options
        title, body, collapse = (template.compile(names) for template in self._templates)
        times_of, labels_of = read_times(options, names), read_labels(options, names)
        key_at = names.index(options.ordered_by) if options.ordered_by else None
        addresses_of, payloads_of = read_addresses(options, names), read_payloads(options, names)
        data_of, last = _data_picker(names, options.data), Predecessors()
        no_recipient = BadRow(f"has no recipient (text or a whole number) in {options.recipient!r}")
        task_id, submitted_at_ms, expires_at_ms = _carried(task)

        def encode_row(seq: int, values: Sequence[Any]) -> bytes | BadRow:
            if not (recipient := recipient_text(values[0])):
                return no_recipient
            if isinstance(times := times_of(values) if times_of else _NO_TIMES, BadRow):
                return times
            not_before_ms, own_expiry_ms, zone = times
            if isinstance(labels := labels_of(values) if labels_of else _NO_LABELS, BadRow):
                return labels
            attributes, trace_id = labels
            try:
                key = "" if key_at is None else text_of(values[key_at]).strip()
                push = Push(
                    task_id,
                    seq,
                    recipient,
                    title(values),
                    body(values),
                    data_of(values),
                    own_expiry_ms or expires_at_ms,
                    submitted_at_ms,
                    after_seq=last.of(key) if key else 0,
                    collapse=collapse(values),
                    not_before_ms=not_before_ms,
                    zone=zone,
                    attributes=attributes,
                    trace_id=trace_id,
                    addresses=addresses_of(values),
                    payloads=payloads_of(values),
                )
                packed = encode(push)
            except (Unusable, TypeError, ValueError, OverflowError) as error:
                return _not_encodable(error, names, values, self._misfit)
            bad = None if options.silent else nothing_in(push, task.chain)
            bad = bad or _too_large(push, packed, limits)
            if key and not bad:
                last.add(key, seq)
            return bad or packed

        return encode_row

    @property
    def collapses(self) -> bool:
        """Whether its pushes may replace others that wait."""
        return bool(self._options.collapse)

    def _require(self, source: RowSource) -> None:
        if not source.fixed:
            return
        for role, fields in columns_used(self._options).items():
            for field in fields:
                if field not in source.columns:
                    hint = (
                        recipient_hint(field, source.columns)
                        if role == "recipient"
                        else did_you_mean(field, source.columns)
                    )
                    raise BadInput(
                        f"{source.name} has no column {field!r}, which is needed as {role}; its "
                        f"columns are: {shown_columns(source)}{hint}"
                    )
        for field in self.wanted.names:
            if source.columns.count(field) > 1:
                raise BadInput(f"{source.name} has more than one column {field!r}; rename one")


def columns_used(options: TaskOptions) -> dict[str, Collection[str]]:
    """Return by what they are used as the columns of a row that the options name.

    Raises BadInput for a broken template.
    """
    templates = {name: Template(getattr(options, name)) for name in ("title", "body", "collapse")}
    return {
        "recipient": (options.recipient,),
        **{f"{name} template": one.fields for name, one in templates.items()},
        **{f"payload of {sink}": each for sink, each in payload_fields(options).items()},
        "data": options.data,
        "attribute": options.attributes,
        "address": address_columns(options).values(),
        "trace id": (options.trace_id,) if options.trace_id else (),
        "key of the order": (options.ordered_by,) if options.ordered_by else (),
        **{role: (column,) for role, column in time_columns(options).items()},
    }


def _carried(task: Task) -> tuple[str, int, int]:
    return task.id, task.created_at_ms, carried_expiry_ms(task)


def carried_expiry_ms(task: Task) -> int:
    """Return the expiry that pushes without one of their own carry: the task's at its submit."""
    return task.expires_at_ms if task.first_expiry_ms is None else task.first_expiry_ms


def recipient_hint(wanted: str, columns: Sequence[str]) -> str:
    """Return the option that takes the column which most likely has the recipients, if any."""
    likely = likely_recipient(wanted, columns)
    return f"; add --recipient {shlex.quote(likely)}" if likely else ""


def likely_recipient(wanted: str, columns: Sequence[str]) -> str | None:
    """Return the column which most likely has the recipients."""
    plain = {re.sub("[^a-z]", "", column.lower()): column for column in reversed(columns)}
    usual = (plain[name] for name in _RECIPIENTS if name in plain)
    return nearest(wanted, columns) or next(usual, None)


def shown_columns(source: RowSource) -> str:
    """Return the columns for a message; a first line that holds data, not names, is not shown."""
    if any("@" in name or sum(map(str.isdigit, name)) > 5 for name in source.columns):
        return "(not shown: the first line looks like data; is the header line missing?)"
    shown = ", ".join(source.columns[:_MAX_SHOWN]) or "(none)"
    more = len(source.columns) - _MAX_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


_NO_TIMES: RowTimes = (0, 0, "")
_NO_LABELS: Labels = (None, "")


def _not_encodable(
    error: Exception, names: Sequence[str], values: Sequence[Any], misfit: str
) -> BadRow:
    """Return why no push can be made of a row, which has raised this."""
    if isinstance(error, Unusable):
        return error.row
    for name, value in zip(names, values, strict=True):
        if isinstance(value, str) and not is_encodable(value):
            return BadRow(f"holds text in {name!r} that is {misfit}")
    return BadRow("holds a value that cannot be sent in a push")


def _too_large(push: Push, packed: bytes, limits: PayloadLimits) -> BadRow | None:
    size = len(packed)
    if size > MAX_PUSH_BYTES:
        excess = f"a push of {size} bytes, over the limit of {MAX_PUSH_BYTES}"
    elif not (excess := limits.excess(push, size)):
        return None
    return BadRow(f"makes {excess}; shorten its body, data or payload", OversizedPush)


def recipient_text(value: Any) -> str:
    """Return a text, or a whole number such as a phone number as text; empty for anything else."""
    if value.__class__ is str:
        return str.strip(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return text_of(value) if is_whole else ""


def _data_picker(
    names: Sequence[str], data: Sequence[str]
) -> Callable[[Sequence[Any]], dict[str, Any] | None]:
    if not data:
        return lambda values: None
    places = [(field, names.index(field)) for field in dict.fromkeys(data)]
    return lambda values: {field: values[place] for field, place in places}
