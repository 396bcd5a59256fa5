"""The bar that a submit shows on stderr, with its rate and the time left.

Where stderr is no terminal it shows nothing but notes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pushlane.cli.errors import note
from pushlane.producers.request import SubmitProgress, SubmitStage

if TYPE_CHECKING:
    from rich.progress import Progress

_LABELS = {
    SubmitStage.READING: "reading input",
    SubmitStage.CHECKING: "checking rows",
    SubmitStage.FREEZING: "freezing the audience",
    SubmitStage.PUBLISHING: "publishing",
    SubmitStage.SEALING: "sealing",
    SubmitStage.SUPPRESSING: "values",
    SubmitStage.LISTING: "addresses",
}


class SubmitBar:
    """Shows the progress it is called with, while it is open (`with`).

    `task_id` is the task's, as soon as it is known.
    """

    def __init__(self) -> None:
        self._bars = _made() if sys.stderr.isatty() else None
        self._stage: SubmitStage | None = None
        self.task_id = ""

    def __enter__(self) -> SubmitBar:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, progress: SubmitProgress) -> None:
        self.task_id = progress.task_id or self.task_id
        if self._bars is not None:
            self._show(self._bars, progress)
        elif progress.note:
            note(progress.note)

    def _show(self, bars: Progress, progress: SubmitProgress) -> None:
        if progress.stage is not self._stage:
            self._stage = progress.stage
            for bar_id in bars.task_ids:
                bars.remove_task(bar_id)
            bars.add_task(_LABELS[progress.stage], total=None, rate="")
        if progress.note:
            bars.console.print(progress.note, markup=False, soft_wrap=True)
        else:
            bar = bars.tasks[-1]
            rate = "" if bar.speed is None else f"{bar.speed:,.0f}/s"
            bars.update(bar.id, completed=progress.rows, total=progress.total, rate=rate)


def _made() -> Progress:
    """Make a bar. What draws it is loaded for a terminal alone: that takes a tenth of a submit."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", style="progress.data.speed"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )
