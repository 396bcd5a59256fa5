"""`doctor` says what is set up badly, why that matters and what mends it; `--fix` mends ours.

`stats-dump` collects what is known of a deployment into one file, without secrets: it is whole or
not there at all, and only its owner can read it. Neither sends anything.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import platform
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from pushlane.backends.operations import (
    MOST_TOPICS,
    NO_STORE,
    Bounds,
    examiner_of,
)
from pushlane.cli.config import shown_settings
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, YesFlag, argument, option, switch
from pushlane.cli.render import plain, print_json
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.diagnosis import setup
from pushlane.operations.examining import examine
from pushlane.settings import Settings
from pushlane.util.checks import (
    SEVERITIES,
    Examination,
    Finding,
    examined,
)
from pushlane.util.errors import NeedsBackend
from pushlane.util.files import create_durably
from pushlane.util.texts import masked
from pushlane.version import VERSION

WARNED = 4
_ERRORS = 1
_UNREACHED = frozenset({"broker", "admin-rest", "redis", NO_STORE})
_HEARD_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.5

BookieFlag = Annotated[str, option("URL", "Web server of a bookie, to look at it.", "--bookie-url")]
TopicsFlag = Annotated[
    int, typer.Option("--topics", min=1, max=1_000, help="Topics to look at, those of most bytes.")
]


def doctor(
    flags: Flags,
    fix: Annotated[bool, switch("--fix", "Fix what pushlane can fix.")] = False,
    yes: YesFlag = False,
    bookie_url: BookieFlag = "",
    topics: TopicsFlag = MOST_TOPICS,
    as_json: JsonFlag = False,
) -> None:
    """Check broker, Redis, store, host and settings, and say how to fix what is wrong.

    Nothing is sent, and without --fix nothing is changed. Exit code 0: nothing worse than a note,
    4: warnings, 1: errors, 3: a service does not answer, or there is no store.
    """
    bounds = Bounds(most_topics=topics, bookie=bookie_url)
    done: list[str] = []
    place = ""
    try:
        settings = flags.settings()
    except BadInput as error:
        found = examined((setup.SETTINGS,), str(error))
    else:
        if settings.url:
            raise NeedsBackend(masked(settings.url), "ask the server with GET /v1/doctor, or ")
        place = settings.place
        found, _ = asyncio.run(examine(settings, bounds))
        if fix and (agreed := [one for one in found.findings if _is_agreed(one, yes)]):
            found, done = asyncio.run(_fixed(settings, bounds, agreed))
    code = exit_code(found.findings)
    if as_json:
        print_json(as_document(found) | {"store": place or None, "fixed": done, "exit_code": code})
    else:
        _print(found, done, place)
    if code:
        raise typer.Exit(code)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the exit code that these findings make."""
    kinds = {finding.severity for finding in findings}
    errors = {finding.check for finding in findings if finding.severity == "error"}
    if errors & _UNREACHED:
        return Unreachable.exit_code
    return _ERRORS if errors else WARNED if "warning" in kinds else 0


def as_document(found: Examination) -> dict[str, Any]:
    """Return an examination for programs."""
    return {
        "version": VERSION,
        "findings": msgspec.to_builtins(found.findings),
        "ok": found.passed,
        "skipped": found.skipped,
    }


def _is_agreed(finding: Finding, yes: bool) -> bool:
    """Tell whether a finding is to be fixed; ask before something is destroyed."""
    if not finding.can_fix or not finding.destroys or yes:
        return finding.can_fix
    if not sys.stdin.isatty():
        note(f"left as it is, as there is no terminal to ask on; add --yes: {finding.what}")
        return False
    return typer.confirm(f"{finding.what}. Remove it, with what it holds?", err=True)


async def _fixed(
    settings: Settings, bounds: Bounds, findings: Sequence[Finding]
) -> tuple[Examination, list[str]]:
    """Mend what can be mended, and look again; return what was done too.

    What a broker refuses is tried once more: a quota has to fit a retention that is mended after
    it. With a service that is away, or lets nothing be changed, there is no further try.
    """
    done: dict[tuple[str, ...], str] = {}
    problems: dict[tuple[str, ...], PushlaneError] = {}
    for finding in (*findings, *findings):
        if finding.target in done:
            continue
        try:
            done[finding.target] = await examiner_of(settings).mend(settings, finding)
        except PushlaneError as error:
            problems[finding.target] = error
            if not isinstance(error, BadInput):
                break
    for target in problems.keys() - done.keys():
        note(f"not fixed: {' '.join(target)}: {problems[target]}")
    return await _again(settings, bounds, set(done)), list(done.values())


async def _again(settings: Settings, bounds: Bounds, mended: set[tuple[str, ...]]) -> Examination:
    """Look again, until brokers have heard of what was mended, for some seconds."""
    quick = bounds._replace(look_again_s=0.0)
    deadline_s = asyncio.get_running_loop().time() + _HEARD_WITHIN_S
    while True:
        found, _ = await examine(settings, quick)
        left = {finding.target for finding in found.findings} & mended
        if not left or asyncio.get_running_loop().time() > deadline_s:
            return found
        await asyncio.sleep(_LOOK_EVERY_S)


def _print(found: Examination, done: Sequence[str], place: str) -> None:
    if place:
        typer.echo(f"looked   {plain(place)}")
    for line in done:
        typer.echo(f"fixed    {plain(line)}")
    by_check: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in found.findings:
        by_check[finding.severity, finding.check].append(finding)
    for (severity, check), findings in by_check.items():
        _print_check(severity, check, findings)
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, why in found.skipped.items():
        reasons[why].append(name)
    for why, names in reasons.items():
        typer.echo(f"skipped  {', '.join(names)}: {plain(why)}")
    typer.echo(f"ok       {_counted(len(found.passed), 'check')}")
    counts = Counter(finding.severity for finding in found.findings)
    typer.echo(", ".join(_counted(counts[kind], kind) for kind in SEVERITIES))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _print_check(severity: str, check: str, findings: Sequence[Finding]) -> None:
    """Print what was found, then once why it matters, then what mends it."""
    typer.echo(f"{severity:<8} {check}")
    for finding in findings:
        typer.echo(f"         {plain(finding.what)}")
    typer.echo(f"  why    {findings[0].why}")
    mends = dict.fromkeys(finding.mend for finding in findings if finding.mend)
    for mend in mends:
        typer.echo(f"  fix    {plain(mend)}")
    fix = "pushlane doctor --fix" + " --yes" * any(finding.destroys for finding in findings)
    if fix not in mends and any(finding.can_fix for finding in findings):
        typer.echo(f"  or     {fix}")


_TAR, _JSON = ".tar.gz", ".json.gz"
_OWNER_ONLY = 0o600
_MOST_TOPICS = 200


def stats_dump(
    flags: Flags,
    file: Annotated[Path, argument("FILE", "A new .tar.gz or .json.gz.")],
    topics: Annotated[
        int, typer.Option("--topics", min=1, max=1_000, help="Topics at most, largest first.")
    ] = _MOST_TOPICS,
    bookie_url: Annotated[str, option("URL", "Web server of a bookie.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Collect stats, policies, settings and findings into one file, without secrets.

    Secrets, tokens, recipients and payloads are not in it; ids of tasks and names of hosts are.
    """
    _require_new(file)
    settings = flags.settings()
    documents = {"settings": shown_settings(flags), "versions": _versions()}
    note(f"looking at {settings.location}, at most {topics} topics")
    found, inspection = asyncio.run(examine(settings, Bounds(topics, bookie=bookie_url)))
    processes = msgspec.to_builtins(inspection.live.processes.get_or([]))
    documents |= {"doctor": as_document(found), "processes": processes, **inspection.said}
    content = _packed(file.name, documents)
    try:
        create_durably(file, content, _OWNER_ONLY)
    except FileExistsError as error:
        raise _is_there(file) from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    if as_json:
        print_json({"file": file, "bytes": len(content), "documents": list(documents)})
    note(f"{file}: {len(content):,} bytes, {', '.join(documents)}")


def _require_new(file: Path) -> None:
    if not file.name.endswith((_TAR, _JSON)):
        raise BadInput(f"{file} ends in neither {_TAR} nor {_JSON}; name it like dump{_TAR}")
    if file.exists() or file.is_symlink():
        raise _is_there(file)
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent}")


def _is_there(file: Path) -> BadInput:
    return BadInput(f"{file} is there already and is left as it is; give another name")


def _packed(name: str, documents: dict[str, Any]) -> bytes:
    if name.endswith(_JSON):
        return gzip.compress(_encoded(documents))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for title, document in documents.items():
            body = _encoded(document)
            entry = tarfile.TarInfo(f"pushlane-stats/{title}.json")
            entry.size, entry.mode, entry.mtime = len(body), _OWNER_ONLY, int(time.time())
            tar.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def _encoded(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)


def _versions() -> dict[str, Any]:
    installed = {one.metadata["Name"]: one.version for one in distributions()}
    return {
        "pushlane": VERSION,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "packages": dict(sorted(installed.items())),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
