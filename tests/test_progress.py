"""A bar is drawn on a terminal and nowhere else, and knows how much is done of what."""

import io

from rich.console import Console

from flexmdm.progress import ProgressBar


def drawn(terminal, **settings):
    """Return what a bar that is half done and then restarted writes, and what its task is in the end."""
    console = Console(file=io.StringIO(), force_terminal=terminal, force_interactive=terminal, width=100)
    with ProgressBar("reading [all]", 4, console=console, **settings) as bar:
        bar.update(2, figures="loss 0.5")
        bar.progress.refresh()
        bar.restart("learning", completed=3)
        bar.progress.refresh()
    (task,) = bar.progress.tasks
    return console.file.getvalue(), (task.description, task.completed, task.total)


def test_off_a_terminal_nothing_is_written():
    assert drawn(False) == ("", ("learning", 3, None))


def test_a_bar_shows_its_description_percentage_figures_and_what_comes_next():
    text, task = drawn(True)
    assert all(part in text for part in ("reading [all]", " 50%", "loss 0.5", "learning"))
    assert task == ("learning", 3, None)


def test_a_bar_can_count_instead():
    text, _ = drawn(True, counts=True, elapsed=True)
    assert "2/4" in text and "0:00:00" in text and "%" not in text


def test_what_is_left_out_of_an_update_stays():
    bar = ProgressBar("scoring", 10)
    bar.update(3, 12)
    bar.update(description="scoring again")
    (task,) = bar.progress.tasks
    assert (task.description, task.completed, task.total) == ("scoring again", 3, 12)
