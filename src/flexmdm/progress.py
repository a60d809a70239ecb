"""The progress bar of every command: on standard error, gone when it is over, silent off a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console


class ProgressBar:
    """Show how much of some work is done and how long the rest will take; to be used in a ``with``.

    Off a terminal nothing is written, not even a line feed. `update` fits where a ``progress`` callback is asked for.

    Args:
        description: what is being done.
        total: units of work; ``None`` if unknown.
        counts: show "done/total" rather than a percentage.
        elapsed: show the time since the start too.
        console: where the bar is drawn; standard error by default.
        transient: remove the bar when the work is over.

    Attributes:
        progress: the ``rich.progress.Progress`` that draws the bar: its ``start`` and ``stop`` can replace the
            ``with``, and what its ``console`` prints appears above the bar.

    >>> with ProgressBar("reading", total=3) as bar:
    ...     for done in range(3):
    ...         bar.update(done + 1)
    """

    def __init__(
        self,
        description: str,
        total: float | None = None,
        *,
        counts: bool = False,
        elapsed: bool = False,
        console: Console | None = None,
        transient: bool = True,
    ) -> None:
        from rich import progress as rich
        from rich.console import Console

        console = console or Console(stderr=True)
        columns = [
            rich.TextColumn("{task.description}", style="bold", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn() if counts else rich.TaskProgressColumn(),
            rich.TextColumn("{task.fields[figures]}", markup=False),
            *([rich.TimeElapsedColumn()] if elapsed else []),
            rich.TimeRemainingColumn(),
        ]
        silent = not console.is_interactive
        self.progress = rich.Progress(
            *columns, console=console, transient=transient, disable=silent, speed_estimate_period=120
        )
        self.restart(description, total)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def restart(self, description: str, total: float | None = None, completed: int = 0) -> None:
        """Begin other work under the same bar, of which ``completed`` units were done before."""
        for task in self.progress.task_ids:
            self.progress.remove_task(task)
        self._task = self.progress.add_task(description, total=total, completed=completed, figures="")

    def update(self, completed: float | None = None, total: float | None = None, **fields: Any) -> None:
        """Show how many units are done, and of how many.

        Args:
            completed, total: units; what is left out stays as it was.
            fields: a new ``description``, or ``figures``: text behind the percentage, such as a loss.
        """
        self.progress.update(self._task, completed=completed, total=total, **fields)
