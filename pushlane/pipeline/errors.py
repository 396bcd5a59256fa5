"""Says in our words why Spark stopped, and which parts of its log may be kept.

Spark's messages may quote rows. So only names of errors, columns and types, and places in code are
passed on; messages of pushlane's own errors never hold a row, and stay.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.util.texts import did_you_mean

OURS = re.compile(
    r"^pushlane\.(?:core|model|util|settings|backends|pipeline)\.[\w.]*?(\w+): (.+)$", re.MULTILINE
)
_DIED = re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)")
_LOST = re.compile(r"ExecutorLostFailure \(executor (\w+) ")
_EXIT = re.compile(r"(?:exit code|Command exited with code) (\d+)")
_FATAL = re.compile(r"Fatal Python error: ([A-Z][a-z]+(?: [a-z]+){0,3})")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
}
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:,? in ([\w<>.]+))?', re.MULTILINE)
_UNINDENTED = re.compile(r"^\S.*$", re.MULTILINE)
_PYTHON = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
_NAMED = r"\[([A-Z]+(?:_[A-Z0-9]+)+(?:\.[A-Z0-9_]+)*)\]"
_CONDITION = re.compile(rf"(?:\A|(?:Exception|Error): ){_NAMED}")
_JAVA = re.compile(r"^(?:Caused by: |.*?: )?((?:\w+\.)+[\w$]+(?:Exception|Error)\b)", re.MULTILINE)
_AT = re.compile(r"^\s+at [\w.$/<>@-]+\(([\w.$]+:\d+)\)", re.MULTILINE)

_LOGGED = re.compile(r"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:ERROR|FATAL) [\w.$]+): ")
_RAISED = re.compile(
    r'^((?:Caused by: |Suppressed: |Exception in thread "[\w .-]+" )?'
    rf"(?:\w+\.)*[\w$]*(?:Exception|Error|Interrupt)(?:: {_NAMED})?)(?=:|\s|$)"
)
_KEPT = re.compile(
    r'^(?:\s+at [\w.$/<>@-]+\([\w.$: ]*\)|\s+\.\.\. \d+ more$|\s*File "[^"]+", line \d+[\w<>., ]*$|'
    r"Traceback \(most recent call last\):$|"
    r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$)"
)
_PHRASE = re.compile(
    r"Exception in task [\d.]+ in stage [\d.]+ \(TID \d+\)|"
    r"Task \d+ in stage [\d.]+ failed \d+ times; aborting job|"
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\)|Lost executor \w+|"
    r"Python worker (?:exited unexpectedly(?: \(crashed\))?|failed to connect back)|"
    rf"{_EXIT.pattern}|{_FATAL.pattern}"
)


def cause_of(error: BaseException | None) -> str:
    """Return the name and place of the innermost error, or the signal that ended a worker."""
    if not isinstance(error, PySparkException | Py4JError):
        return _place_of(error)
    return cause(trace_of(error)) or type(error).__name__


def trace_of(error: BaseException | None) -> str:
    """Return all that Spark says of the error, with the traces of Java and of the worker.

    The text may quote rows.
    """
    parts: list[str] = []
    while error is not None:
        with suppress(Exception):  # its text is asked of Java, which may have gone
            parts.append(str(error))
        parts.append(getattr(error, "_stackTrace", None) or "")
        error = getattr(error, "_cause", None)
    return "\n".join(parts)


def cause(trace: str) -> str:
    """Return the innermost error of a trace, or an empty text if it has none."""
    if died := _DIED.search(trace):
        return _death(trace[died.start() :])
    if ours := OURS.search(trace):
        return ours[2]
    if _TRACEBACK in trace:
        return _python(trace.rpartition(_TRACEBACK)[2])
    if lost := _LOST.search(trace):
        code = _EXIT.search(trace)
        return f"executor {lost[1]} was lost ({f'exit code {code[1]}' if code else 'no exit code'})"
    return _java(trace)


def without_data(line: str) -> str:
    """Return the part of a line of Spark's log that may be kept, or an empty text for none."""
    line = line.rstrip("\n")
    if OURS.match(line):
        return line
    if kept := _KEPT.match(line):
        return kept[0]
    said = "; ".join(found[0] for found in _PHRASE.finditer(line))
    if named := _LOGGED.match(line) or _RAISED.match(line):
        return f"{named[1]}: {said or '…'}" if line != named[1] else line
    return said if _FATAL.match(line) else ""


def _death(trace: str) -> str:
    fatal, frame, code = _FATAL.search(trace), _FRAME.search(trace), _EXIT.search(trace)
    what = f"exit code {code[1]}" if code else "no signal; killed, or out of memory"
    if fatal:
        what = f"signal {_SIGNALS[fatal[1]]}" if fatal[1] in _SIGNALS else fatal[1].lower()
    where = f" at {_where(*frame.groups())}" if fatal and frame else ""
    return f"a worker process died ({what}){where}"


def _python(block: str) -> str:
    frames = list(_FRAME.finditer(block))
    if not frames:
        return ""
    raised = _UNINDENTED.search(block, frames[-1].end())
    name = _PYTHON.match(raised[0]) if raised else None
    return f"{name[0] if name else 'an error'} at {_where(*frames[-1].groups())}"


def _java(trace: str) -> str:
    inner = trace[max(trace.rfind("Caused by: "), 0) :]
    if condition := _CONDITION.search(inner):
        return condition[1]
    name, place = _JAVA.search(inner), _AT.search(inner)
    return f"{name[1]}{f' at {place[1]}' if place else ''}" if name else ""


def _where(path: str, line: object, function: str | None) -> str:
    return f"{'/'.join(path.split('/')[-3:])}:{line}{f' in {function}' if function else ''}"


def _place_of(error: BaseException | None) -> str:
    frames = traceback.extract_tb(error.__traceback__) if error else []
    name = type(error).__name__
    if not frames:
        return name
    return f"{name} at {_where(frames[-1].filename, frames[-1].lineno, frames[-1].name)}"


_MOST_COLUMNS = 40
_MOST_CHARACTERS = 300


class PipelineFailed(PushlaneError):
    """A Spark job ended before its work was done; it can be run again."""


@contextmanager
def spark_errors(doing: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Translate what Spark raises inside this context into an error of pushlane.

    `doing` begins the message; `columns` are the names that SQL may use, for hints.

    Raises BadInput for SQL that cannot be parsed, or names what is not there, else PipelineFailed.
    """
    try:
        yield
    except ParseException as error:
        raise BadInput(f"{doing}: {_first_line(error)}") from error
    except AnalysisException as error:
        raise BadInput(f"{doing}: {_analysis(error, columns)}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineFailed(f"{doing}: Spark stopped with {cause_of(error)}") from error


def _analysis(error: AnalysisException, columns: Sequence[str]) -> str:
    parameters = error.getMessageParameters() or {}
    name = parameters.get("objectName", "").strip("`")
    condition = error.getCondition() or ""
    if name and condition.startswith("UNRESOLVED_COLUMN"):
        hint = did_you_mean(name, columns)
        return f"there is no column {name!r}{hint}; the columns are: {shown(columns)}"
    if condition == "PATH_NOT_FOUND":
        path = parameters.get("path", "")
        return f"nothing is at {path}; give a path that Spark's workers see, or a table's name"
    text = _first_line(error)
    return f"{text}; the columns are: {shown(columns)}" if columns else text


def shown(columns: Sequence[str]) -> str:
    """Return the column names as one text for a message, cut after the first 40."""
    more = len(columns) - _MOST_COLUMNS
    names = ", ".join(columns[:_MOST_COLUMNS]) or "(none)"
    return f"{names} and {more} more" if more > 0 else names


def _first_line(error: PySparkException) -> str:
    """Return the first line of its text, without the condition and the state that Spark adds."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].split(" SQLSTATE:")[0][:_MOST_CHARACTERS] if lines else "no reason given"
    return re.sub(r"^\[[\w.]+\]\s*", "", text)
