"""The bar that a submit shows on stderr, with its rate and the time left.

Where stderr is no terminal it shows nothing but notes.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pushlane.producers.request import SubmitProgress, SubmitStage

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
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", style="progress.data.speed"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._stage: SubmitStage | None = None
        self._console = console
        self.task_id = ""

    def __enter__(self) -> SubmitBar:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, progress: SubmitProgress) -> None:
        self.task_id = progress.task_id or self.task_id
        if progress.stage is not self._stage:
            self._stage = progress.stage
            for bar_id in self._bars.task_ids:
                self._bars.remove_task(bar_id)
            self._bars.add_task(_LABELS[progress.stage], total=None, rate="")
        if progress.note:
            self._console.print(progress.note, markup=False, soft_wrap=True)
        else:
            bar = self._bars.tasks[-1]
            rate = "" if bar.speed is None else f"{bar.speed:,.0f}/s"
            self._bars.update(bar.id, completed=progress.rows, total=progress.total, rate=rate)
