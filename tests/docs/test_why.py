"""The page on waits has each cause, with the words that people see for it."""

from __future__ import annotations

import re
from pathlib import Path

from pushlane.model.wait_words import label
from pushlane.model.waits import Cause

PAGE = Path(__file__).parents[2] / "docs" / "why.md"


def test_each_cause_has_its_row_with_its_label() -> None:
    table = PAGE.read_text().partition("| cause | shown as | the push waited for |")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)

    assert dict(rows) == {str(cause): label(cause) for cause in Cause}
