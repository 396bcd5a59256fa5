"""Which URLs of others are let through, however they are written, and what is refused."""

import asyncio
import socket
import threading
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.http import Url

from pushlane.core.errors import BadInput
from pushlane.util import url_guard
from pushlane.util.errors import RefusedUrl, UnknownHost
from pushlane.util.url_guard import UrlGuard

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"


class Names:
    """A resolver that a test changes; `asked` counts."""

    def __init__(self, **names):
        self.names = {name.replace("_", "."): ips for name, ips in names.items()}
        self.asked = []

    async def __call__(self, host):
        self.asked.append(host)
        await asyncio.sleep(0)
        found = self.names.get(host, [PUBLIC])
        if isinstance(found, Exception):
            raise found
        return found


async def literals_only(host):
    """As getaddrinfo does for an address: it is the answer."""
    return [host]


def guard(names=literals_only, **options):
    return UrlGuard(resolve=names, **options)


async def reason(checked, url):
    with pytest.raises(RefusedUrl) as refused:
        await checked.check(url)
    assert "secret" not in str(refused.value) + refused.value.reason
    return refused.value.reason


LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.1",
    "0X7F.0.0.0x1",
    "0177.0.0.1",
    "%31%32%37.0.0.1",
    "127.0.0.1.",
    "１２７.０.０.１",
    "127。0。0。1",
    "127．0．0．1",
    "①②⑦.0.0.1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
]
OTHERS = [
    "0.0.0.0",
    "0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[100::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2001:2::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a00:1]",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:169.254.169.254]",
]


@pytest.mark.parametrize("host", LOOPBACK + OTHERS)
async def test_addresses_that_are_not_public_are_refused_in_every_notation(host):
    assert await reason(guard(), f"https://{host}/secret") == url_guard.NOT_PUBLIC


@pytest.mark.parametrize("host", LOOPBACK + OTHERS)
async def test_so_are_names_that_lead_to_them(host):
    ip = Url(f"http://{host}/").host_str.strip("[]")
    for found in ([ip], [PUBLIC, ip], [ip, PUBLIC_6]):
        names = Names(hooks_example_com=found)
        assert await reason(guard(names), "https://hooks.example.com/") == url_guard.NOT_PUBLIC


@pytest.mark.parametrize("ip", [PUBLIC, PUBLIC_6, "::ffff:8.8.8.8", "64:ff9b::808:808", "1.1.1.1"])
async def test_public_addresses_are_let_through_and_handed_out_as_they_were_found(ip):
    checked = await guard(Names(hooks_example_com=[ip, PUBLIC])).check(
        "HTTPS://Hooks.Example.COM/a?b"
    )
    assert checked.ip == ip
    assert (checked.url, checked.host) == ("https://hooks.example.com/a?b", "hooks.example.com")
    assert (checked.scheme, checked.port) == ("https", 443)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/secret",
        "//example.com/secret",
        "https:example.com/secret",
        "https:/example.com/secret",
        "https:///example.com/secret",
        "https:\\\\example.com\\secret",
        "https://example.com\\@10.0.0.1/secret",
        "ftp://example.com/secret",
        "file:///secret",
        "gopher://example.com/secret",
        "javascript:secret",
        "unix:/secret",
        " https://example.com/secret",
        "https://example.com/secret\r\nHost: other",
        "https://exa\tmple.com/secret",
        "https://example.com/a b",
        "https://example.com/\x00secret",
        "https://example.com\u00ad/secret",
        "https://example\u200b.com/secret",
        "https://exam\u2028ple.com/secret",
        "https://\ud800.com/secret",
        "https://exa%2fmple.com/secret",
        "https://exa%0ample.com/secret",
        "https://a..b/secret",
        "https://*.example.com/secret",
        "https://example.com./secret",
        "https://localhost./secret",
        "https://.example.com/secret",
        "https://1.2.3.256/secret",
        "https://1.2.3.4.5/secret",
        "https://[::1/secret",
        "https://[fe80::1%25eth0]/secret",
        "https://[fe80::1%eth0]/secret",
        "https://[v1.x]/secret",
        "https://example.com:0/secret",
        "https://example.com:65536/secret",
        "https://example.com:4a/secret",
        "https://" + "a" * 64 + ".com/secret",
        "https://" + ".".join(["a" * 63] * 5) + "/secret",
        "https://example.com/" + "secret" * 400,
    ],
)
async def test_what_is_no_clear_http_url_is_refused_unasked(url):
    names = Names()
    assert await reason(guard(names), url) == url_guard.NOT_A_URL
    assert names.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "https://secret@example.com/",
        "https://secret:secret@example.com/",
        "https://@example.com/",
        "https://:@example.com/",
        "https://example.com:443@10.0.0.1/",
        "https://example.com%40secret@10.0.0.1/",
    ],
)
async def test_users_and_passwords_are_refused(url):
    assert await reason(guard(Names()), url) == url_guard.HAS_USER


@pytest.mark.parametrize(
    "url", ["https://a.example/x@y", "https://a.example/?@", "https://a.example#@"]
)
async def test_an_at_sign_after_the_host_is_none(url):
    assert (await guard(Names()).check(url)).host == "a.example"


async def test_only_https_on_its_own_port():
    names = Names()
    assert await reason(guard(names), "http://a.example/") == url_guard.NOT_HTTPS
    assert await reason(guard(names), "https://a.example:22/") == url_guard.OTHER_PORT
    assert names.asked == []
    assert (await guard(names).check("https://a.example:443/")).port == 443
    wider = guard(names, ports=[443, 8443])
    assert (await wider.check("https://a.example:8443/")).port == 8443
    assert await reason(wider, "https://a.example:9443/") == url_guard.OTHER_PORT


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080/"),
        ("127.0.0.1", "http://2130706433:8080/"),
        ("127.0.0.1", "http://[::ffff:7f00:1]:8080/"),
        ("::1", "http://[::1]:8080/"),
        ("[::1]", "http://[::1]:8080/"),
        ("10.1.0.0/16", "https://10.1.255.255/"),
        ("10.1.0.0/16", "http://inside.example:8080/"),
        ("fd00::/8", "https://[fd00:ec2::254]/"),
        ("inside.example", "http://inside.example:8080/"),
        ("Inside.EXAMPLE", "http://inside.example:8080/"),
        ("*.example", "http://inside.example:8080/"),
        ("*.example", "http://far.inside.example:8080/"),
        ("bücher.example", "http://xn--bcher-kva.example/"),
    ],
)
async def test_what_the_operator_allows_is_open_over_http_and_on_any_port(allow, url):
    async def names(host):
        return [host if host[0].isdigit() or ":" in host else "10.1.2.3"]

    await guard(names, allow=[allow]).check(url)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("127.0.0.1", "https://127.0.0.2/"),
        ("10.1.0.0/16", "https://10.2.0.1/"),
        ("10.1.0.0/16", "https://two.example/"),
        ("one.example", "https://two.example/"),
        ("one.example", "https://one.example.two.example/"),
        ("one.example", "https://notone.example/"),
        ("*.one.example", "https://one.example/"),
        ("*.one.example", "https://notone.example/"),
    ],
)
async def test_and_nothing_beside_it(allow, url):
    async def names(host):
        return [host] if host[0].isdigit() else ["10.1.2.3", "10.2.0.1"]

    assert await reason(guard(names, allow=[allow]), url) == url_guard.NOT_PUBLIC


async def test_ports_that_are_given_hold_for_what_is_allowed_too():
    checked = guard(allow=["127.0.0.1"], ports=[8080])
    await checked.check("http://127.0.0.1:8080/")
    assert await reason(checked, "http://127.0.0.1:6379/") == url_guard.OTHER_PORT


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "https://a.example", "a.example/x", "a.example:80", "u@a", "10.0.0.1/8", "a b"],
)
@pytest.mark.parametrize("option", ["allow", "only_hosts"])
def test_an_entry_that_is_no_host_is_refused_by_name(option, entry):
    with pytest.raises(BadInput, match="is not a host: give names"):
        UrlGuard(**{option: [entry]})


async def test_nothing_but_certain_hosts():
    names = Names(evil_example=["127.0.0.1"])
    checked = guard(names, only_hosts=["push.example", "*.push.example"], allow=["own.example"])
    for host in ("push.example", "a.b.push.example", "own.example"):
        await checked.check(f"https://{host}/")
    names.asked.clear()
    for host in ("evil.example", "notpush.example", PUBLIC, f"[{PUBLIC_6}]"):
        assert await reason(checked, f"https://{host}/") == url_guard.OTHER_HOST
    assert names.asked == []


async def test_a_listed_host_has_to_be_public_as_well():
    checked = guard(Names(push_example=["10.0.0.1"]), only_hosts=["push.example"])
    assert await reason(checked, "https://push.example/") == url_guard.NOT_PUBLIC


async def test_addresses_are_known_for_a_time_and_then_asked_for_again():
    at_s = [0.0]
    names = Names(a_example=[PUBLIC])
    checked = guard(names, now=lambda: at_s[0], max_age_s=60.0)
    assert (await checked.check("https://a.example/1")).ip == PUBLIC
    names.names["a.example"] = ["169.254.169.254"]
    at_s[0] = 59.0
    assert (await checked.check("https://a.example/2")).ip == PUBLIC
    assert names.asked == ["a.example"]
    at_s[0] = 60.0
    assert await reason(checked, "https://a.example/3") == url_guard.NOT_PUBLIC


async def test_many_that_ask_at_once_ask_once_though_the_first_goes_away():
    names = Names()
    checked = guard(names)
    first, *others = [asyncio.create_task(checked.check("https://a.example/")) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    assert len(await asyncio.gather(*others)) == 49
    assert names.asked == ["a.example"]


@pytest.mark.parametrize(
    ("failure", "reason", "may_pass"),
    [
        ([], url_guard.NO_ADDRESS, False),
        (["no address"], url_guard.NO_ADDRESS, False),
        (UnicodeError("no"), url_guard.NO_ADDRESS, False),
        (socket.gaierror(socket.EAI_NONAME, "no"), url_guard.NO_ADDRESS, False),
        (socket.gaierror(socket.EAI_AGAIN, "no"), url_guard.NO_ANSWER, True),
        (TimeoutError(), url_guard.NO_ANSWER, True),
    ],
)
async def test_a_host_that_is_not_found_is_asked_for_again_soon(failure, reason, may_pass):
    at_s = [0.0]
    names = Names(a_example=failure)
    checked = guard(names, now=lambda: at_s[0])
    for at_s[0], asked in ((0.0, 1), (4.9, 1), (5.0, 2)):
        with pytest.raises(UnknownHost, match=r"the host a\.example .*: check its name") as unknown:
            await checked.check("https://a.example/secret")
        assert (unknown.value.reason, unknown.value.may_pass) == (reason, may_pass)
        assert len(names.asked) == asked


async def test_a_resolver_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(url_guard, "_RESOLVE_S", 0.01)

    async def silent(host):
        await asyncio.Event().wait()

    with pytest.raises(UnknownHost) as unknown:
        await guard(silent).check("https://a.example/")
    assert unknown.value.may_pass


async def test_names_that_never_answer_keep_nobody_from_a_thread(monkeypatch):
    ends = threading.Event()

    def look_up(host, *_, **_options):
        if host.startswith("silent"):
            ends.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    checked = UrlGuard()
    silent = [
        asyncio.create_task(checked.check(f"https://silent{number}.example/"))
        for number in range(40)
    ]
    await asyncio.sleep(0)
    try:
        assert (await checked.check("https://a.example/")).ip == PUBLIC
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "a thread"), 5.0)
    finally:
        ends.set()
        await asyncio.gather(*silent, return_exceptions=True)


async def test_a_failure_that_nobody_expects_reaches_all_who_wait_and_is_not_kept():
    names = Names(a_example=RuntimeError("broken"))
    checked = guard(names)
    asked = [checked.check("https://a.example/") for _ in range(3)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in found] == [RuntimeError] * 3
    names.names["a.example"] = [PUBLIC]
    assert (await checked.check("https://a.example/")).ip == PUBLIC


async def test_a_bounded_number_of_hosts_is_known():
    names = Names()
    checked = guard(names)
    for number in range(1_500):
        await checked.check(f"https://h{number}.example/")
    assert len(checked._answers) == 1_000
    names.asked.clear()
    await checked.check("https://h1499.example/")
    await checked.check("https://h0.example/")
    assert names.asked == ["h0.example"]


async def test_an_address_is_no_name_whatever_a_resolver_makes_of_it():
    names = Names()
    names.names = {"10.0.0.1": [PUBLIC], PUBLIC: ["10.0.0.1"]}
    assert await reason(guard(names), "https://10.0.0.1/") == url_guard.NOT_PUBLIC
    assert (await guard(names).check(f"https://{PUBLIC}/")).ip == PUBLIC
    assert names.asked == []


async def test_the_machines_own_resolver():
    found = await url_guard.resolve_host("localhost")
    assert {"127.0.0.1", "::1"} & set(found)
    assert await reason(UrlGuard(), "https://localhost/") == url_guard.NOT_PUBLIC
    assert await url_guard.resolve_host("::1") == ["::1"]


_SIGNS = "abz019.:/\\@?#%[]-_~;&=+!$'()*,^`{|} \t\n。．ßⓔK😀\u00ad\u200d\ufeff\ud800"
_WORDS = "// http https :// %2e %00 %40 xn-- 0x7f 127.1 ::1 localhost a.com 169.254.1.1 [::ffff:"
_PIECES = st.sampled_from([*_SIGNS, *_WORDS.split()])
_NASTY = st.one_of(
    st.lists(_PIECES, max_size=12).map("".join),
    st.lists(_PIECES, max_size=12).map(lambda pieces: "https://" + "".join(pieces)),
    st.lists(_PIECES, max_size=6).map(lambda pieces: f"https://{''.join(pieces)}.com/"),
    st.text(max_size=30).map(lambda text: f"https://{text}/"),
)


@given(_NASTY)
def test_two_parsers_agree_on_the_host_of_all_that_is_let_through(url):
    """What the client makes of the text, of the checked URL, and what another parser reads."""
    try:
        checked = asyncio.run(guard(Names(), allow=["0.0.0.0/0", "::/0"]).check(url))
    except RefusedUrl:
        return
    for text in (url, checked.url):
        client = Url(text)
        assert client.host_str.strip("[]") == checked.host
        assert (client.scheme, client.port_or_known_default) == (checked.scheme, checked.port)
        assert (client.username, client.password) == ("", None)
    other = urlsplit(checked.url)
    assert (other.hostname, other.scheme) == (checked.host, checked.scheme)
    assert (other.port or {"http": 80, "https": 443}[other.scheme]) == checked.port
    assert other.username is None


@given(st.ip_addresses())
def test_python_calls_global_all_addresses_that_are_let_through(address):
    host = f"[{address}]" if address.version == 6 else str(address)
    try:
        asyncio.run(guard().check(f"https://{host}/"))
    except RefusedUrl:
        return
    embedded = getattr(address, "ipv4_mapped", None)
    assert (embedded or address).is_global or host.startswith("[64:ff9b::")
    assert not address.is_multicast
