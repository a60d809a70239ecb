"""What a person sees of a fine-tuned run: its answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.tasks.pipeline import Answer, progress_bar
from flexmdm.tasks.sft.pipeline import SFTPipeline
from flexmdm.tasks.text.playback import play
from flexmdm.tasks.text.report import EMPTY, write_json


def answer(
    pipeline: SFTPipeline,
    questions: Sequence[str],
    num: int = 1,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    **options: Any,
) -> list[Answer]:
    """Print ``num`` answers to each question, one after the other (with a line between those with several lines)."""
    console = console or Console()
    with progress_bar(len(questions) * num, "answering") as show:
        answers = pipeline.answers(questions, num, trace=watch, callback=show, **options)
    several_lines = any("\n" in one.text for one in answers)
    for number, one in enumerate(answers, 1):
        if watch:
            play(pipeline.task, one, console)
        console.file.write((one.text or (EMPTY if console.is_terminal else "")) + "\n")  # byte for byte
        if several_lines and number < len(answers):
            console.rule(style="dim")
    cut = sum(one.hit_max_length for one in answers)
    if cut:
        most = pipeline.task.max_length
        Console(stderr=True).print(f"{cut} of {len(answers)} reached {most} tokens, the most this model has seen")
    if json is not None:
        asked = [question for question in questions for _ in range(num)]
        rows = [
            {"prompt": question, "answer": one.text, "evaluations": one.evaluations}
            for question, one in zip(asked, answers, strict=True)
        ]
        write_json(json, rows)
    return answers
