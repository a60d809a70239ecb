"""What a person sees of a text run: samples, filled gaps, and the table and page of an evaluation."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.evaluation.intervals import by_name
from flexmdm.evaluation.lengths import ENOUGH
from flexmdm.tasks.generating import progress_bar
from flexmdm.tasks.prepared import PreparedTask
from flexmdm.tasks.text.pipeline import Filled, TextPipeline
from flexmdm.tasks.text.playback import play
from flexmdm.tasks.text.task import TextTask

if TYPE_CHECKING:
    from flexmdm.evaluation.textreport import TextScore

EMPTY = "(empty)"  # what a person sees of a text without characters


def sample(
    task: TextTask,
    model: FlexMDMModel,
    num: int,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    **options: Any,
) -> list[Filled]:
    """Print ``num`` samples, one after the other (with a line between those that have several lines)."""
    return fill(TextPipeline(task, model), [["", ""]], num, json, watch, console, **options)


def fill(
    pipeline: TextPipeline,
    texts: Sequence[Sequence[str]],
    num: int,
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    given: Sequence[str] = (),
    **options: Any,
) -> list[Filled]:
    """Print ``num`` answers for each text, what was found in colour; ``given`` is that of `show`."""
    answers = fill_with_bar(pipeline, texts, num, trace=watch, **options)
    show(pipeline.task, texts, answers, json, watch, console, given)
    return answers


def show(
    task: PreparedTask,
    texts: Sequence[Sequence[str]],
    answers: Sequence[Filled],
    json: Path | None = None,
    watch: bool = False,
    console: Console | None = None,
    given: Sequence[str] = (),
) -> None:
    """Print as many answers for each text, given as the pieces between its gaps, and write them to a file.

    The file also has the prompts, if ``given`` are the texts as the user wrote them.
    """
    console = console or Console()
    several_lines = any("\n" in answer.text for answer in answers)
    for number, answer in enumerate(answers):
        if watch:
            play(task, answer, console)
        if console.is_terminal:
            pieces = texts[number * len(texts) // len(answers)]
            shown = _coloured(pieces, answer) if answer.text else Text(EMPTY, style="dim")
            console.print(shown, highlight=False, soft_wrap=True)
        else:
            console.file.write(answer.text + "\n")  # byte for byte
        if several_lines and number + 1 < len(answers):
            console.rule(style="dim")
    cut = sum(answer.hit_max_length for answer in answers)
    if cut:
        Console(stderr=True).print(
            f"{cut} of {len(answers)} reached {task.max_length} tokens, the most this model has seen"
        )
    if json is not None:
        rows = []
        for number, answer in enumerate(answers):
            prompt = {"prompt": given[number * len(given) // len(answers)]} if given else {}
            found = {"text": answer.text, "gaps": list(answer.gaps), "evaluations": answer.evaluations}
            rows.append(prompt | found)
        write_json(json, rows)


def write_json(file: Path, content: Any) -> None:
    """Write a file for machines, and say where it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json_module.dumps(content, indent=2, ensure_ascii=False) + "\n")
    Console(stderr=True).print(f"written to {file}", markup=False, highlight=False, soft_wrap=True)


def evaluate(
    runs: dict[str, TextPipeline],
    steps: Sequence[int],
    num: int,
    reference: str = "auto",
    likelihoods: int = 200,
    num_times: int = 64,
    page: Path | None = None,
    command: str = "",
    console: Console | None = None,
    keep: Callable[[list[dict[str, Any]]], object] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Judge runs that were trained on the same data, print the table, write the page, and return the figures.

    Args:
        runs: by name; the held-out sequences of the first are what all are compared with.
        steps: of the sampler, one score for each.
        num: samples per score.
        reference: of `flexmdm.evaluation.fluency.ReferenceLM`; ``auto`` for the default one if it is installed,
            ``none`` for no perplexity.
        likelihoods: held-out sequences for the likelihood; 0 leaves it out.
        num_times: times per sequence for it.
        page: a file to write.
        command: what the page says it was made by.
        console: where the table goes.
        keep: called with the figures before the page is written, so that they are there whatever becomes of it.
        options: of `flexmdm.generate`.
    """
    from flexmdm.evaluation import textreport
    from flexmdm.sweeps.text import Judge, check, held_out_bits, measure

    console = console or Console()
    for name, pipeline in runs.items():
        check(name, pipeline, steps, **options)
    first = next(iter(runs.values()))
    if len({pipeline.task.compared_on for pipeline in runs.values()}) > 1:
        raise ValueError(
            f"{' and '.join(runs)} learned from other data, hold out other data or have other tokens: compare them "
            "one by one"
        )
    judge = Judge.of(first, _reference(reference, console, str(first.model.device)))
    scores = [judge.held_out(num)]
    for name, pipeline in runs.items():
        scores += [measure(name, pipeline, judge, num, count, **options) for count in steps]
    table = textreport.table_of(scores, f"{num:,} samples each, against {len(judge.texts):,} held-out sequences")
    table.caption = f"{table.caption}{_truncated(scores)}{_few(min(num, len(judge.texts)))}"
    console.print(table)
    _say_openings(scores, console)
    if judge.lm is not None and all(math.isnan(score.generative_perplexity.value) for score in scores):
        console.print("no perplexity: every text has at most 10 tokens of the reference model, too few to judge")
    known = [held_out_bits(name, pipeline, likelihoods, num_times) for name, pipeline in runs.items() if likelihoods]
    xz = judge.xz()
    for score in known:
        console.print(
            f"{score.model}: {_bits(score.bits_per_sequence)} bits per sequence, "
            f"{_bits(score.bits_per_character)} per character, by the likelihood of {score.num} held-out sequences "
            f"(standard errors; xz: {xz:.2f} per character)",
            highlight=False,
        )
    bits_of = {score.model: score.to_dict() for score in known}
    rows = []
    for score in scores[1:]:
        bits = bits_of.get(score.model, {"num": 0})
        figures = {**bits, "likelihood_num": bits["num"], **score.to_dict(), "xz_bits_per_character": xz}
        rows.append(by_name(figures))
    if keep is not None:
        keep(rows)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        lengths = [len(tokens) for tokens in judge.tokens]
        textreport.page(page, "Text: " + " and ".join(runs), scores, known, lengths, xz, command)
        console.print(f"the page is {page}")
    return rows


def _reference(name: str, console: Console, device: str) -> Any:
    from flexmdm.evaluation.fluency import ReferenceLM

    if name == "none":
        return None
    try:
        with Console(stderr=True).status("loading the reference model"), redirect_stderr(StringIO()):  # it has bars
            return ReferenceLM.load(None if name == "auto" else name, device)
    except ValueError as error:
        if name != "auto":
            raise
        console.print(f"no perplexity: {error}", markup=False, highlight=False)
        return None


def _truncated(scores: Sequence[TextScore]) -> str:
    """For the note of the table: how many texts were too long for the reference model."""
    cut = sum(score.truncated for score in scores)
    return f"; {cut:,} texts were cut to the reference model's window" if cut else ""


def _few(num: int) -> str:
    """For the note of the table: if there are too few lengths for their intervals."""
    few = f"; the intervals of W1 and KS are too narrow, as they need {ENOUGH} samples and as many held-out sequences"
    return few if num < ENOUGH else ""


def _say_openings(scores: Sequence[TextScore], console: Console) -> None:
    """The entropy that does not grow with the length, if there are texts that are long enough for it."""
    from flexmdm.sweeps.text import OPENING

    known = [score for score in scores if not math.isnan(score.opening_entropy.value)]
    if known:
        values = "; ".join(f"{score.label} {score.opening_entropy}" for score in known)
        console.print(
            f"entropy of the first {OPENING} tokens, which does not grow with the length, in nats: {values}",
            highlight=False,
            markup=False,
        )


def _bits(estimate: Any) -> str:
    return f"{estimate.value:.2f} ± {estimate.standard_error:.2f}"


def fill_with_bar(
    pipeline: TextPipeline, texts: Sequence[Sequence[str]], num: int, what: str = "writing", **options: Any
) -> list[Filled]:
    """`TextPipeline.fill` with a progress bar on standard error."""
    with progress_bar(len(texts) * num, what) as show:
        return pipeline.fill(texts, num, callback=show, **options)


def _coloured(pieces: Sequence[str], answer: Filled) -> Text:
    text = Text()
    for piece, gap in zip(pieces, (*answer.gaps, ""), strict=True):
        text.append(piece)
        text.append(gap, style="green" if any(pieces) else "")
    return text
