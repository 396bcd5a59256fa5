"""Random answers to three requests of one connection, cut anywhere: one thing is heard of each."""

import asyncio

import pytest

pytest.importorskip("ngh2")

from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Fate, Lost
from pushlane.dispatcher.transport.http2 import Http2, Http2Writer
from pushlane.dispatcher.transport.request import read_url
from tests.sinks.transport.http2_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    REFUSED,
    fields,
    frame,
    reset,
)
from tests.sinks.transport.http2_peer import settings as settings_frame
from tests.sinks.transport.test_random_answers import Wire, bodies, cut, names, places, values

BROKEN, UNPROCESSED = Lost(Fate.BROKEN), Lost(Fate.UNPROCESSED)
ORIGIN, _ = read_url("http://192.0.2.1/")
REQUEST = Http2Writer(ORIGIN, {}).fields("/push", {}, b"{}")
STREAMS = (1, 3, 5)
GREETING = settings_frame(streams=100)


class Http2Wire(Wire):
    def get_extra_info(self, name):
        return None


class Owner:
    most_body = MOST_BODY

    def now(self):
        return 0.0

    def freed(self, connection):
        pass

    def ended(self, connection):
        pass


class Turn:
    """A loop that does in `end` what was put off until the turn's end."""

    def __init__(self):
        self.calls = []

    def call_soon(self, call):
        self.calls.append(call)

    def end(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def heard_of(parts, monkeypatch):
    """What is heard of the three requests when these parts come, and then the end."""
    turn, wire, heard = Turn(), Http2Wire(), {}
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: turn)
    connection = Http2(Owner(), "192.0.2.1", 10)
    connection.connection_made(wire)
    connection.begin()
    turn.end()
    for part in cut(GREETING, [len(GREETING)]):
        connection.data_received(part)

    def answered(token, what):
        assert token not in heard
        heard[token] = what

    for stream in STREAMS:
        connection.start(REQUEST, answered, stream, 0.0)
    assert not heard
    turn.end()
    for part in parts:
        if not wire.is_over:
            connection.data_received(part)
            turn.end()
    connection.connection_lost(None)
    assert sorted(heard) == list(STREAMS)
    return [heard[stream] for stream in STREAMS]


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch


@st.composite
def answers(draw, stream):
    """The frames of an answer, those of them that end its head and the whole, and what it is."""
    if draw(st.integers(0, 9)) == 0:
        is_refused = draw(st.booleans())
        frames = [reset(stream, REFUSED if is_refused else 2)]
        return frames, -1, 0, UNPROCESSED if is_refused else BROKEN
    status = draw(st.sampled_from([200, 201, 204, 304, 400, 410, 429, 503, 999]))
    has_body = status not in (204, 304)
    pairs = [(name.lower(), value) for name, value in draw(st.lists(st.tuples(names, values)))]
    parts = cut(draw(bodies), draw(places)) if has_body else []
    has_trailers = draw(st.booleans())
    ends_at_once = not parts and not has_trailers
    block = fields((":status", str(status)), *pairs)
    blocks = cut(block, draw(st.lists(st.integers(1, 60), max_size=3)))
    frames = [frame(HEADERS, 4, stream, fields((":status", "103")))] * draw(st.integers(0, 2))
    interim = len(frames)
    for number, one in enumerate(blocks):
        flags = END_HEADERS if number == len(blocks) - 1 else 0
        if number == 0 and ends_at_once:
            flags |= END_STREAM
        frames.append(frame(CONTINUATION if number else HEADERS, flags, stream, one))
    head_at = len(frames) - 1
    # A block goes out in one piece: nothing may come between its frames.
    frames[interim:] = [b"".join(frames[interim:])]
    head_at = interim
    for number, one in enumerate(parts):
        is_last = number == len(parts) - 1 and not has_trailers
        frames.append(frame(DATA, END_STREAM if is_last else 0, stream, one))
    if has_trailers:
        frames.append(frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(("t", "1"))))
    headers = {}
    for name, value in pairs:
        headers.setdefault(name, value)
    return frames, head_at, len(frames) - 1, Answer(status, headers, b"".join(parts))


@st.composite
def conversations(draw):
    """Frames of all streams in any order, by stream the places of what ends head and whole."""
    told = {stream: draw(answers(stream)) for stream in STREAMS}
    left = dict.fromkeys(STREAMS, 0)
    data, ends = b"", {stream: [] for stream in STREAMS}
    while left:
        stream = draw(st.sampled_from(sorted(left)))
        frames = told[stream][0]
        data += frames[left[stream]]
        ends[stream].append(len(data))
        left[stream] += 1
        if left[stream] == len(frames):
            del left[stream]
    return data, told, ends


def expected(told, ends, length):
    _, head_at, last_at, whole = told
    if ends[last_at] <= length:
        return whole
    if head_at >= 0 and ends[head_at] <= length:
        return Answer(whole.status, whole.headers, cut=Fate.BROKEN)
    return BROKEN


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(conversation=conversations(), where=places, ends_at=st.integers(0, 1_500))
def test_random_answers_that_are_cut_off_anywhere(patch, conversation, where, ends_at):
    data, told, ends = conversation
    data = data[:ends_at]
    heard = heard_of(cut(data, where), patch)
    assert heard == [expected(told[one], ends[one], len(data)) for one in STREAMS]


@st.composite
def spoilt(draw):
    data = bytearray(draw(conversations())[0])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


kinds = st.integers(0, 10)
frames = st.builds(
    frame, kinds, st.integers(0, 255), st.integers(0, 7), st.binary(max_size=20)
)  # well formed or not


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(
    data=st.one_of(spoilt(), st.lists(frames, max_size=20).map(b"".join), st.binary(max_size=200)),
    where=places,
)
def test_one_thing_is_heard_of_each_request_of_garbage(patch, data, where):
    for heard in heard_of(cut(data, where), patch):
        assert isinstance(heard, Answer) or heard in (BROKEN, UNPROCESSED)
