"""Print answers of a model, of any task, and write them to a file."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flexmdm.reports.film import play
from flexmdm.tasks.pipeline import EMPTY, Answer, Pipeline


def show(
    pipeline: Pipeline,
    answers: Sequence[Answer],
    given: Sequence[str] = (),
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
) -> None:
    """Print answers one after the other, with a line between them if any has several lines.

    They belong to the ``given`` texts, as the user wrote them; samples have none. They also go to the file ``json``;
    with ``watch`` it is shown how each came about.
    """
    console = console or Console()
    several_lines = any("\n" in answer.text for answer in answers)
    for number, answer in enumerate(answers, start=1):
        if watch:
            play(pipeline.task, answer, console)
        if console.is_terminal:
            console.print(_coloured(answer), highlight=False, soft_wrap=True)
        else:
            console.file.write(answer.text + "\n")  # byte for byte
        if several_lines and number < len(answers):
            console.rule(style="dim")
    _print_limits(pipeline, answers)
    if json is not None:
        prompts = [{"prompt": given[answer.request]} if given else {} for answer in answers]
        write_json(json, [prompt | pipeline.row(answer) for prompt, answer in zip(prompts, answers, strict=True)])


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file, its folder included, and print where it is to standard error."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dumps(content, indent=2, ensure_ascii=False) + "\n")
    Console(stderr=True).print(f"written to {file}", markup=False, highlight=False, soft_wrap=True)


def _print_limits(pipeline: Pipeline, answers: Sequence[Answer]) -> None:
    """Print, beside the answers, how many met the limits of the model."""
    console = Console(stderr=True)
    for answer in {(one.context, one.around): one for one in answers if one.shortened}.values():
        console.print(
            f"this model was trained on at most {pipeline.task.width} tokens: of {answer.around:,} around the gap it "
            f"saw the nearest {answer.context:,}"
        )
    full = sum(answer.hit_max_length for answer in answers)
    if full:
        most = pipeline.task.max_length
        console.print(f"{full} of {len(answers)} reached {most} tokens, the most this model has seen")


def _coloured(answer: Answer) -> Text:
    """Return an answer with what was found in colour, if something else was given."""
    if not answer.text:
        return Text(EMPTY, style="dim")
    if not any(answer.pieces):
        return Text(answer.text)
    text = Text()
    for piece, gap in zip(answer.pieces, (*answer.gaps, ""), strict=True):
        text.append(piece)
        text.append(gap, style="green")
    return text
