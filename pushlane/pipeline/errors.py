"""Translates Spark's errors into errors of pushlane, each with its cause and the known columns.

Spark's own messages may quote rows, so only what they say of names and types is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from pushlane.core.errors import BadInput, PushlaneError
from pushlane.lanes.suggestions import did_you_mean
from pushlane.pipeline.traces import cause_of

_MOST_COLUMNS = 40
_MOST_CHARACTERS = 300


class PipelineFailed(PushlaneError):
    """A Spark job ended before its work was done; it can be run again."""


@contextmanager
def spark_errors(doing: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Translate what Spark raises inside this context into an error of pushlane.

    `doing` begins the message; `columns` are the names that SQL may use, for hints.

    Raises:
        BadInput: SQL that cannot be parsed, or names what is not there.
        PipelineFailed: anything else.
    """
    try:
        yield
    except ParseException as error:
        raise BadInput(f"{doing}: {_pointed(error)}") from error
    except AnalysisException as error:
        raise BadInput(f"{doing}: {_analysis(error, columns)}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineFailed(f"{doing}: Spark stopped with {cause_of(error)}") from error


def _pointed(error: ParseException) -> str:
    text = _first_line(str(error))
    return re.sub(r"^\[[\w.]+\]\s*", "", text)


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
    text = re.sub(r"^\[[\w.]+\]\s*", "", _first_line(str(error)))
    return f"{text}; the columns are: {shown(columns)}" if columns else text


def shown(columns: Sequence[str]) -> str:
    """Return the column names as one text for a message, cut after the first 40."""
    more = len(columns) - _MOST_COLUMNS
    names = ", ".join(columns[:_MOST_COLUMNS]) or "(none)"
    return f"{names} and {more} more" if more > 0 else names


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0].split(" SQLSTATE:")[0][:_MOST_CHARACTERS] if lines else "no reason given"
