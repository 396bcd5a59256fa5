"""What a request is made of, and what no request may hold."""

import pytest

from pushlane.core.errors import BadInput
from pushlane.dispatcher.transport.request import RequestWriter, read_url


def writer(headers=None, url="https://push.example.com/in"):
    return RequestWriter(read_url(url)[0], headers or {})


def test_a_request():
    write = writer({"Content-Type": "application/json"}).write
    assert write("/in?a=b", {"Idempotency-Key": "t:1", "X-Note": "100 %s %d\t!"}, b"{}") == (
        b"POST /in?a=b HTTP/1.1\r\n"
        b"Host: push.example.com\r\n"
        b"User-Agent: pushlane\r\n"
        b"Accept: */*\r\n"
        b"Content-Type: application/json\r\n"
        b"Idempotency-Key: t:1\r\n"
        b"X-Note: 100 %s %d\t!\r\n"
        b"Content-Length: 2\r\n"
        b"\r\n"
        b"{}"
    )


def test_a_header_of_the_settings_may_hold_a_percent_sign():
    assert b"\r\nX: 100 %s\r\n" in writer({"X": "100 %s"}).write("/", {}, b"")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, [b"X-A: settings", b"User-Agent: shop", b"HOST: other.example.com"]),
        ({"x-a": "push"}, [b"User-Agent: shop", b"HOST: other.example.com", b"x-a: push"]),
    ],
)
def test_the_settings_go_over_ours_and_a_push_over_the_settings(own, expected):
    given = {"X-A": "settings", "User-Agent": "shop", "HOST": "other.example.com"}
    lines = writer(given).write("/", own, b"").split(b"\r\n")
    assert sorted(lines[1:-2]) == sorted([b"Accept: */*", *expected, b"Content-Length: 0"])


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "path"),
    [
        ("https://example.com", "example.com", 443, "example.com", "/"),
        ("http://example.com:80/a?b#c", "example.com", 80, "example.com", "/a?b"),
        ("http://example.com:8080/a b", "example.com", 8080, "example.com:8080", "/a%20b"),
        ("https://bücher.example/ü", "xn--bcher-kva.example", 443, None, "/%C3%BC"),
        ("https://EXAMPLE.com/../x", "example.com", 443, "example.com", "/x"),
        ("http://[2001:DB8::1]/", "2001:db8::1", 80, "[2001:db8::1]", "/"),
        ("http://2130706433/", "127.0.0.1", 80, "127.0.0.1", "/"),
        ("http://a\r\nb/\n", "ab", 80, "ab", "/"),
    ],
)
def test_a_url_is_read_as_the_guard_reads_it(url, host, port, authority, path):
    origin, rest = read_url(url)
    assert (origin.host, origin.port, rest) == (host, port, path)
    assert origin.authority == (authority or host)


def test_a_user_and_a_password_go_as_basic_unless_the_settings_say_otherwise():
    url = "https://us%3Aer:p%C3%A4ss@example.com/"
    assert b"\r\nAuthorization: Basic dXM6ZXI6cMOkc3M=\r\n" in writer(url=url).write("/", {}, b"")
    lines = writer({"authorization": "Bearer t"}, url).write("/", {}, b"").split(b"\r\n")
    assert [line for line in lines if line.lower().startswith(b"authorization")] == [
        b"authorization: Bearer t"
    ]
    assert "dXM6" not in repr(read_url(url)[0])


@pytest.mark.parametrize(
    "url", ["ftp://secret.test/", "secret.test", "https://", "", "https://secret test/"]
)
def test_a_url_that_is_none_of_http_is_refused(url):
    with pytest.raises(BadInput) as refused:
        read_url(url)
    assert "secret" not in str(refused.value)


BAD = ["a\r\nSecret: b", "a\nsecret", "a\rsecret", "a\0secret", "secret é", "secret \x7f"]


@pytest.mark.parametrize("value", BAD)
def test_a_value_that_could_end_its_line_is_refused(value):
    told = "the header X-Trace-Id cannot be sent: its value has a line break"
    for make in (
        lambda: writer({"X-Trace-Id": value}),
        lambda: writer().write("/", {"X-Trace-Id": value}, b""),
    ):
        with pytest.raises(BadInput, match=told) as refused:
            make()
        assert "secret" not in str(refused.value).lower()


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "ä", "a\0"])
def test_a_name_that_is_none_is_refused(name):
    for make in (lambda: writer({name: "x"}), lambda: writer().write("/", {name: "x"}, b"")):
        with pytest.raises(BadInput, match="cannot be sent: a name has letters, digits and dashes"):
            make()


@pytest.mark.parametrize(
    "name",
    [
        "Content-Length", "transfer-encoding", "CONNECTION", "Upgrade", "Expect", "te", "Trailer",
    ],
)  # fmt: skip
def test_what_the_client_itself_says_is_refused(name):
    for make in (lambda: writer({name: "x"}), lambda: writer().write("/", {name: "x"}, b"")):
        with pytest.raises(BadInput, match=f"the header {name} is the client's own; leave it out"):
            make()


def test_host_is_named_once():
    with pytest.raises(BadInput, match="headers name Host twice; leave one of them out"):
        writer({"Host": "a", "host": "b"})
    for own in ({"host": "a"}, {"X": "a", "x": "b"}):
        with pytest.raises(BadInput, match="the headers of a request have a name twice, or Host"):
            writer().write("/", own, b"")


@pytest.mark.parametrize(
    "path", ["", "in", "/a b", "/a\r\nb", "/a\nb", "/\0", "/ä", "/a#b", "/a\x7f", "http://b/"]
)
def test_a_path_that_could_end_its_line_is_refused(path):
    with pytest.raises(BadInput, match="a path cannot be sent: it has to begin with /"):
        writer().write(path, {}, b"")


def test_a_refused_path_is_refused_again():
    write = writer().write
    write("/good", {}, b"")
    for _ in range(2):
        with pytest.raises(BadInput):
            write("/b d", {}, b"")
