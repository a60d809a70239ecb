"""What a person sees of a run on code: programs with their gap filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.pipeline import Answer, of_each, progress_bar
from flexmdm.tasks.text import report


def fill(
    pipeline: CodePipeline,
    programs: Sequence[Sequence[str]],
    num: int = 1,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    given: Sequence[str] = (),
    names: Sequence[str] = (),
    **options: Any,
) -> list[Answer]:
    """Print ``num`` answers for each program, given as what stands before and behind its gap."""
    pairs = of_each(programs, _pair, names)
    with progress_bar(len(pairs) * num, "filling") as bar:
        middles = pipeline.fill(pairs, num, trace=watch, names=names, callback=bar, **options)
    answers = []
    for number, found in enumerate(middles):
        before, after = pairs[number // num]
        if number % num == 0 and found.shortened:
            Console(stderr=True).print(
                f"this model was trained on functions of at most {pipeline.task.width} tokens: of {found.around:,} "
                f"around the gap it saw the nearest {found.context:,}"
            )
        measured = found.evaluations, found.hit_max_length, found.prompt, found.events
        answers.append(Answer(before + found.text + after, (found.text,), found.tokens, *measured))
    report.show(pipeline.task, programs, answers, json, watch, console, given)
    return answers


def _pair(pieces: Sequence[str]) -> tuple[str, str]:
    if len(pieces) != 2:
        raise ValueError(f"a run on code fills one gap, and there are {len(pieces) - 1}: fill them one after the other")
    return pieces[0], pieces[1]
