"""Generate with a trained model, and print what it wrote: samples, filled gaps, programs and answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from flexmdm.reports.files import write_json
from flexmdm.reports.playback import play
from flexmdm.tasks.pipeline import Answer, of_each, progress_bar
from flexmdm.tasks.previews import EMPTY
from flexmdm.tasks.text.pipeline import TextPipeline

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel
    from flexmdm.tasks.code.pipeline import CodePipeline
    from flexmdm.tasks.pipeline import Answer
    from flexmdm.tasks.prepared import PreparedTask
    from flexmdm.tasks.sft.pipeline import SFTPipeline
    from flexmdm.tasks.text.task import TextTask


def sample(task: TextTask, model: FlexMDMModel, num: int, **options: Any) -> list[Answer]:
    """Print ``num`` samples from nothing; options are those of `fill`."""
    return fill(TextPipeline(task, model), [["", ""]], num, **options)


def fill(
    pipeline: TextPipeline,
    texts: Sequence[Sequence[str]],
    num: int = 1,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    given: Sequence[str] = (),
    **options: Any,
) -> list[Answer]:
    """Fill the gaps of texts, given as the pieces between their gaps, and print ``num`` answers for each.

    Args:
        pipeline: the model.
        texts: the pieces of each text.
        num: answers per text.
        json: a file for the answers.
        watch: show how each came about.
        console: where to print.
        given: the texts as the user wrote them, for the file.
        options: of `TextPipeline.fill`.
    """
    with progress_bar(len(texts) * num) as bar:
        answers = pipeline.fill(texts, num, trace=watch, callback=bar, **options)
    show_filled(pipeline.task, texts, answers, json, watch, console, given)
    return answers


def fill_programs(
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
    """Fill the gap of programs, given as the text before and behind it, and print ``num`` answers for each."""
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
    show_filled(pipeline.task, programs, answers, json, watch, console, given)
    return answers


def answer(
    pipeline: SFTPipeline,
    questions: Sequence[str],
    num: int = 1,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    **options: Any,
) -> list[Answer]:
    """Answer questions, and print ``num`` answers to each."""
    with progress_bar(len(questions) * num, "answering") as bar:
        answers = pipeline.answers(questions, num, trace=watch, callback=bar, **options)
    rows = [
        {"prompt": questions[number // num], "answer": one.text, "evaluations": one.evaluations}
        for number, one in enumerate(answers)
    ]
    _show(pipeline.task, answers, [Text(one.text) for one in answers], rows, json, watch, console)
    return answers


def show_filled(
    task: PreparedTask,
    texts: Sequence[Sequence[str]],
    answers: Sequence[Answer],
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    given: Sequence[str] = (),
) -> None:
    """Print filled texts, equally many for each text, with their fillings in colour."""
    coloured, rows = [], []
    for number, one in enumerate(answers):
        coloured.append(_coloured(texts[number * len(texts) // len(answers)], one))
        prompt = {"prompt": given[number * len(given) // len(answers)]} if given else {}
        rows.append({**prompt, "text": one.text, "gaps": list(one.gaps), "evaluations": one.evaluations})
    _show(task, answers, coloured, rows, json, watch, console)


def _show(
    task: PreparedTask,
    answers: Sequence[Answer | Answer],
    coloured: Sequence[Text],
    rows: Sequence[dict[str, Any]],
    json: Path | None,
    watch: bool,
    console: Console | None,
) -> None:
    """Print answers, with a line between them if any has several lines, and write their rows to a file."""
    console = console or Console()
    several_lines = any("\n" in one.text for one in answers)
    for number, (one, text) in enumerate(zip(answers, coloured, strict=True), start=1):
        if watch:
            play(task, one, console)
        if console.is_terminal:
            console.print(text if one.text else Text(EMPTY, style="dim"), highlight=False, soft_wrap=True)
        else:
            console.file.write(one.text + "\n")  # byte for byte
        if several_lines and number < len(answers):
            console.rule(style="dim")
    cut = sum(one.hit_max_length for one in answers)
    if cut:
        most = f"{task.max_length} tokens, the most this model has seen"
        Console(stderr=True).print(f"{cut} of {len(answers)} reached {most}")
    if json is not None:
        write_json(json, rows)


def _coloured(pieces: Sequence[str], answer: Answer) -> Text:
    text = Text()
    for piece, gap in zip(pieces, (*answer.gaps, ""), strict=True):
        text.append(piece)
        text.append(gap, style="green" if any(pieces) else "")
    return text


def _pair(pieces: Sequence[str]) -> tuple[str, str]:
    if len(pieces) != 2:
        raise ValueError(f"a run on code fills one gap, and there are {len(pieces) - 1}: fill them one after the other")
    return pieces[0], pieces[1]
