"""A sink that is down, half down or wrong for long: what it is asked meanwhile, and what then."""

from __future__ import annotations

import asyncio
import time

from bench.faults.stream import Stream

PROBES_PER_S = 0.3
EARLY_PROBES = 6  # of a sink that answers; of a silent one it is one
_OPENING_S = 3.0
_SILENT_S = 8.0  # with the pushes that wait for an answer until the sink is known to be silent
_CLOSEST_S = 0.9  # once a second, but for what the way of a request takes more or less
_BACK_S = 5.0
_AWAY_S = 3.0
_SOON_S = 2.0
_WATCHED_S = 5.0
_SETTLES_S = 3.0
_FULL = 0.9
_SOON_FULL = 0.8  # of several outages one after the other, on a machine that has other work


async def sink_503(stream: Stream) -> float:
    return await _down(stream, "503", stream.load.outage_s)


async def sink_silent(stream: Stream) -> float:
    """It is probed every 3.4 to 4 s from the beginning."""
    before_per_s = await _rate(stream)
    await stream.oracle.behave("hang")
    await _require_few(stream, 1, _SILENT_S, stream.load.outage_s)
    await stream.oracle.behave()
    return await _back(stream, before_per_s)


async def sink_wrong(stream: Stream) -> float:
    return await _down(stream, "404", stream.load.outage_s / 2)


async def sink_refuses(stream: Stream) -> float:
    """Nobody sees how often a closed port is tried."""
    before_per_s = await _rate(stream)
    await stream.oracle.refuse()
    await asyncio.sleep(stream.load.outage_s)
    await stream.oracle.accept()
    return await _back(stream, before_per_s)


async def sink_away(stream: Stream) -> float:
    before_per_s = await _rate(stream)
    await stream.oracle.behave("503")
    await asyncio.sleep(_AWAY_S)
    await stream.oracle.behave()
    return await _back(stream, before_per_s, _SOON_S, _SOON_FULL)


async def sink_away_refuses(stream: Stream) -> float:
    before_per_s = await _rate(stream)
    await stream.oracle.refuse()
    await asyncio.sleep(_AWAY_S)
    await stream.oracle.accept()
    return await _back(stream, before_per_s, _SOON_S, _SOON_FULL)


async def sink_30_percent(stream: Stream) -> float:
    return await _half(stream, 0.3)


async def sink_60_percent(stream: Stream) -> float:
    return await _half(stream, 0.6)


async def _down(stream: Stream, how: str, lasting_s: float) -> float:
    before_per_s = await _rate(stream)
    await stream.oracle.behave(how)
    await _require_few(stream, EARLY_PROBES, _OPENING_S, lasting_s)
    if (closest_s := stream.oracle.tally.closest_s) < _CLOSEST_S:
        stream.broken.append(f"asked twice in {closest_s:.2f} s while the sink was down")
    await stream.oracle.behave()
    return await _back(stream, before_per_s)


async def _require_few(stream: Stream, early: int, opening_s: float, lasting_s: float) -> None:
    """Let the time of an outage pass; count what it is asked once it is known to be down."""
    tally = stream.oracle.tally
    await asyncio.sleep(opening_s)
    tally.watch()
    asked, since_s = tally.arrivals, time.monotonic()
    await asyncio.sleep(max(1.0, lasting_s - opening_s))
    asked = tally.arrivals - asked
    probed_s = time.monotonic() - since_s
    if asked > early + PROBES_PER_S * probed_s:
        stream.broken.append(f"asked {asked} times in {probed_s:.0f} s while the sink was down")


async def _back(
    stream: Stream, before_per_s: float, within_s: float = _BACK_S, share: float = _FULL
) -> float:
    """It is as fast as before after so long. Then the row measures the time to the first push.

    A full rate is the lower one of before and of a while later: other work may slow the machine.
    """
    went_on_s = await stream.went_on(time.time())
    await asyncio.sleep(max(0.0, within_s - went_on_s))
    when = f"once the sink was back for {within_s:g} s"
    per_s = await _rate(stream)
    full_per_s = min(before_per_s, await _rate(stream)) if per_s < share * before_per_s else per_s
    _require_rate(stream, per_s, full_per_s, when, share)
    return time.time() - went_on_s


async def _half(stream: Stream, share: float) -> float:
    """What is accepted of a full rate still comes; that is the lower one before and after."""
    before_per_s = await _rate(stream)
    await stream.oracle.behave("503", share)
    await asyncio.sleep(_SETTLES_S)
    per_s = await _rate(stream, stream.load.outage_s / 4)
    await stream.oracle.behave()
    full_per_s = min(before_per_s, await _rate(stream))
    _require_rate(stream, per_s, (1 - share) * full_per_s, f"while {share:.0%} were refused")
    return time.time()


async def _rate(stream: Stream, lasting_s: float = _WATCHED_S) -> float:
    """New pushes a second that are kept meanwhile."""
    tally = stream.oracle.tally
    kept, since_s = len(tally.kept), time.monotonic()
    await asyncio.sleep(lasting_s)
    return (len(tally.kept) - kept) / (time.monotonic() - since_s)


def _require_rate(
    stream: Stream, per_s: float, expected_per_s: float, when: str, share: float = _FULL
) -> None:
    if per_s < share * expected_per_s:
        stream.broken.append(f"{per_s:,.0f} of {expected_per_s:,.0f}/s {when}")
