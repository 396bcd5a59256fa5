"""Random answers, cut anywhere into parts: one thing is heard of each, as a simple reader says."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.dispatcher.transport.answer import MOST_BODY, Answer, Fate, Lost
from pushlane.dispatcher.transport.http1 import Http1

BROKEN = Lost(Fate.BROKEN)


class Wire:
    """A transport that keeps what is written, and tells the end in the next turn, as loops do."""

    def __init__(self):
        self.written = []
        self.is_over = False

    def write(self, data):
        assert not self.is_over
        self.written.append(data)

    def abort(self):
        self.is_over = True

    def is_closing(self):
        return self.is_over

    def get_write_buffer_size(self):
        return 0


class Owner:
    most_body = MOST_BODY

    def __init__(self):
        self.is_free = False

    def now(self):
        return 0.0

    def freed(self, connection):
        self.is_free = True

    def ended(self, connection):
        pass


def heard_of(parts, error=None):
    """What is heard of these parts and then the end, and whether the connection was free before."""
    owner, wire, heard = Owner(), Wire(), []
    connection = Http1(owner, "192.0.2.1")
    connection.connection_made(wire)
    connection.start(b"request", lambda token, what: heard.append((token, what)), "token", 0.0)
    assert heard == []
    for part in parts:
        if not wire.is_over:
            connection.data_received(part)
    is_kept = owner.is_free and not wire.is_over
    connection.connection_lost(error)
    [(token, what)] = heard
    assert token == "token"
    assert wire.written == [b"request"]
    return what, is_kept


def cut(data, places):
    bounds = [0, *sorted({place for place in places if place < len(data)}), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds) if begin < end]


places = st.lists(st.integers(1, 400), max_size=12)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True).map(lambda name: f"x{name}")
values = st.from_regex(r"([!-~]([ -~]{0,10}[!-~])?)?", fullmatch=True)
bodies = st.binary(max_size=60)


@st.composite
def answers(draw):
    """The bytes of an answer, and what they are: headers, body, its end, and how it is framed."""
    status = draw(st.sampled_from([200, 201, 204, 304, 400, 404, 410, 429, 500, 503, 999]))
    fields = draw(st.lists(st.tuples(names, values), max_size=5))
    framing = draw(st.sampled_from(["length", "chunks", "end"]))
    body = draw(bodies)
    closes = draw(st.booleans())
    if status in (204, 304):
        framing, body = "none", b""
    lines = [f"{name}: {value}".encode() for name, value in fields]
    sent = body
    if framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif framing == "chunks":
        lines.append(b"Transfer-Encoding: chunked")
        sent = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in cut(body, draw(places)))
        sent += b"0\r\n\r\n"
    if closes:
        lines.append(b"Connection: close")
    interim = draw(st.integers(0, 3)) * b"HTTP/1.1 100 Continue\r\n\r\n"
    head = interim + b"\r\n".join([b"HTTP/1.1 %d Reason" % status, *lines, b"", b""])
    headers = {}
    for line in lines:
        name, _, value = line.decode().partition(":")
        headers.setdefault(name.lower(), value.strip())
    return head, sent, Answer(status, headers, body), framing, closes or framing == "end"


@settings(max_examples=20 * settings.default.max_examples, deadline=None)
@given(answers(), places, st.one_of(st.just(10_000), st.integers(0, 500)), st.booleans())
def test_a_random_answer_that_is_cut_off_anywhere(answer, where, ends_at, is_reset):
    head, sent, whole, framing, closes = answer
    data = (head + sent)[:ends_at]
    heard, is_kept = heard_of(cut(data, where), ConnectionResetError() if is_reset else None)

    body = data[len(head) :]
    if len(data) < len(head):
        expected = BROKEN
    elif framing == "end":
        cut_off = Answer(whole.status, whole.headers, cut=Fate.BROKEN)
        expected = cut_off if is_reset else Answer(whole.status, whole.headers, body)
    elif len(body) < len(sent):
        expected = Answer(whole.status, whole.headers, cut=Fate.BROKEN)
    else:
        expected = whole
    assert heard == expected
    assert is_kept is (expected is whole and not closes)


@settings(max_examples=20 * settings.default.max_examples, deadline=None)
@given(
    answers(), places, st.binary(min_size=1, max_size=40).filter(lambda more: more.strip(b"\r\n"))
)
def test_what_comes_behind_an_answer_costs_the_connection_alone(answer, where, more):
    head, sent, whole, framing, _ = answer
    if framing == "end":
        return
    heard, is_kept = heard_of(cut(head + sent + more, where))
    assert heard == whole
    assert not is_kept


@st.composite
def spoilt(draw):
    head, sent, *_ = draw(answers())
    data = bytearray(head + sent)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@settings(max_examples=20 * settings.default.max_examples, deadline=None)
@given(st.one_of(spoilt(), st.binary(max_size=200)), places)
def test_one_thing_is_heard_of_garbage_however_it_is_cut(data, where):
    parts = cut(data, where)
    assert heard_of(parts)[0] == heard_of([data] if data else [])[0]


def test_many_answers_in_one_part_are_no_more_than_the_first():
    data = b"HTTP/1.1 204 No Content\r\n\r\n" * 10_000
    assert heard_of([data]) == (Answer(204, {}), False)
