"""`flexmdm infill` and `flexmdm complete`: go on from what is given."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flexmdm.cli import shared

INFILL_EXAMPLES = """
**Examples**

* `flexmdm infill runs/articles "The ___ sat on the ___."`: several gaps at once

* `flexmdm infill --pretrained text "The city of ___ was founded in ___." --num 5`

* `flexmdm infill runs/names "a___a" --min 2 --max 4`: two to four tokens in the gap

* `cat lines.txt | flexmdm infill runs/articles - --json filled.json`: one text per line

* `flexmdm infill runs/code --file program.py --gap-marker "<GAP>"`: a run on code fills one gap of a whole program
"""
COMPLETE_EXAMPLES = """
**Examples**

* `flexmdm complete runs/articles "Once upon a time" --num 3`

* `flexmdm complete runs/articles --file beginnings.txt --json endings.json`: one text per line
"""
Text = Annotated[
    str | None, typer.Argument(help="The text; - reads one per line from standard input (code: one program).")
]
File = Annotated[
    Path | None,
    typer.Option(help="Read one text per line from a file (code: one program).", exists=True, dir_okay=False),
]
Num = Annotated[int, typer.Option("--num", "-n", min=1, help="Answers per text.")]
Minimum = Annotated[int, typer.Option("--min", min=0, help="Tokens per gap at least.")]
Maximum = Annotated[int | None, typer.Option("--max", min=1, help="Tokens per gap at most. [default: any]")]


def infill(
    run: shared.Run = None,
    text: Text = None,
    pretrained: shared.Pretrained = None,
    file: File = None,
    num: Num = 1,
    minimum: Minimum = 0,
    maximum: Maximum = None,
    gap_marker: Annotated[str, typer.Option(help="What stands for a gap in the text.")] = "___",
    sampler: shared.Sampler = None,
    steps: shared.Steps = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    confidence: shared.Confidence = None,
    window: shared.Window = None,
    watch: shared.Watch = False,
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Fill the gaps of a text; what is given stays as it is."""
    if run is not None and pretrained is None and not os.path.isdir(run):  # noqa: PTH112  (a text may be no path at all)
        raise ValueError(f"{run} is not a run: there is no such folder")
    if maximum is not None and minimum > maximum:
        raise ValueError(f"a gap cannot have at least {minimum} (--min) and at most {maximum} (--max) tokens")
    options = shared.options(sampler, steps, temperature, top_p, confidence, window)
    code = shared.trained_on(run) == "code"
    run, texts, names = _texts(run, text, pretrained, file, whole=code)
    shared.announce(run, pretrained)
    from flexmdm.tasks.pipeline import of_each
    from flexmdm.tasks.text.pipeline import pieces_of

    pieces = of_each(texts, lambda one: pieces_of(one, gap_marker), names)
    shared.check_writable(json)
    if code:
        if minimum or maximum is not None:
            raise ValueError("--min and --max are for runs on text: a run on code has learned how long a middle is")
        from flexmdm.reports import answers
        from flexmdm.tasks.code.pipeline import CodePipeline

        pipeline = CodePipeline(*shared.load(run, pretrained, device, sampler))
        answers.fill_programs(pipeline, pieces, num, json, watch, given=texts, names=names, seed=seed, **options)
        return
    from flexmdm.reports import answers

    pipeline = _text_pipeline(*shared.load(run, pretrained, device, sampler))
    asked: dict[str, Any] = {"seed": seed, "names": names, "minimum": minimum, "maximum": maximum, **options}
    answers.fill(pipeline, pieces, num, json, watch=watch, given=texts, **asked)


def complete(
    run: shared.Run = None,
    text: Text = None,
    pretrained: shared.Pretrained = None,
    file: File = None,
    num: Num = 1,
    sampler: shared.Sampler = None,
    steps: shared.Steps = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    confidence: shared.Confidence = None,
    window: shared.Window = None,
    watch: shared.Watch = False,
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Go on behind a text; of a run on prompts and answers: answer."""
    options = shared.options(sampler, steps, temperature, top_p, confidence, window)
    run, texts, names = _texts(run, text, pretrained, file)
    shared.announce(run, pretrained)
    shared.check_writable(json)
    task, model = shared.load(run, pretrained, device, sampler)
    from flexmdm.reports import answers

    if task.name == "sft":
        from flexmdm.tasks.sft.pipeline import SFTPipeline

        answers.answer(SFTPipeline(task, model), texts, num, json, watch, seed=seed, names=names, **options)
        return
    pieces = [[one, ""] for one in texts]
    pipeline = _text_pipeline(task, model)
    answers.fill(pipeline, pieces, num, json, watch=watch, given=texts, seed=seed, names=names, **options)


def _texts(
    run: str | None, text: str | None, pretrained: str | None, file: Path | None, whole: bool = False
) -> tuple[str | None, list[str], list[str]]:
    """The run, the texts from wherever they are, and the names of their lines, if they are lines.

    With --pretrained the first argument is the text. A ``whole`` file, or all of the standard input, is one text.
    """
    if pretrained is not None and run is not None and text is None:
        run, text = None, run
    if file is not None and text is not None:
        raise ValueError("give the text as an argument or --file, not both")
    if file is not None:
        lines = _lines(file.read_bytes(), str(file), whole)
    elif text == "-":
        lines = _lines(sys.stdin.buffer.read(), "standard input", whole)
    elif text is not None:
        return run, [text], []
    else:
        raise ValueError('what text? Write it behind the run, as in flexmdm infill runs/mine "The ___ sat"')
    if whole:
        return run, ["\n".join(lines)], []  # byte for byte
    place = "" if file is not None else " of standard input"
    texts = {f"line {number}{place}": line for number, line in enumerate(lines, 1) if line.strip()}
    if not texts:
        raise ValueError(f"{file or 'standard input'} holds no text: one per line is expected")
    return run, list(texts.values()), list(texts)


def _lines(raw: bytes, name: str, whole: bool) -> list[str]:
    lines = []
    for number, line in enumerate(raw.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            lines.append((line if whole else line.removesuffix(b"\r")).decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}, line {number} is not UTF-8 ({error}); save it as UTF-8") from error
    return lines


def _text_pipeline(task: Any, model: Any) -> Any:
    from flexmdm.tasks.text.pipeline import TextPipeline

    if task.name != "text":
        hint = {
            "sft": ", and answers prompts: flexmdm complete RUN PROMPT",
            "code": ", and fills the gap of a program: flexmdm infill RUN PROGRAM, with ___ where the gap is",
        }.get(task.name, ", which has no texts")
        raise ValueError(f"this run was trained on the task {task.name}{hint}")
    return TextPipeline(task, model)
