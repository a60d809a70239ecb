"""`flexmdm infill` and `flexmdm complete`: go on from what is given."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flexmdm.cli import options, shared

INFILL = "Fill the gaps of a text; what is given stays as it is."
COMPLETE = "Go on behind a text; of a run on prompts and answers: answer."
INFILL_EXAMPLES = shared.examples("""
`flexmdm infill runs/articles "The ___ sat on the ___."`: several gaps at once
`flexmdm infill --pretrained text "Can you ___ me with ___?" --num 5 --temperature 0.6`: with the bundled model
`flexmdm infill runs/names "a___a" --min 2 --max 4`: two to four tokens in the gap
`cat lines.txt | flexmdm infill runs/articles - --json filled.json`: one text per line
`flexmdm infill runs/code --file program.py --gap-marker "<GAP>"`: a run on code fills one gap of a whole program
""")
COMPLETE_EXAMPLES = shared.examples("""
`flexmdm complete runs/articles "Once upon a time" --num 3`
`flexmdm complete runs/articles --file beginnings.txt --json endings.json`: one text per line
""")
Text = Annotated[
    str | None, typer.Argument(help="The text; - reads one per line from standard input (code: one program).")
]
File = Annotated[
    Path | None,
    typer.Option(help="Read one text per line from a file (code: one program).", exists=True, dir_okay=False),
]


def _answer(
    *,
    method: str,
    run: shared.Run = None,
    text: Text = None,
    pretrained: shared.Pretrained = None,
    file: File = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Number of answers per text.")] = 1,
    minimum: Annotated[int, typer.Option("--minimum", "--min", min=0, help="Fewest tokens of a gap.")] = 0,
    maximum: Annotated[
        int | None, typer.Option("--maximum", "--max", min=1, help="Most tokens of a gap. [default: any]")
    ] = None,
    gap_marker: Annotated[
        str | None, typer.Option(help="What stands for a gap in the text. [default: ___]", show_default=False)
    ] = None,
    sampling: Annotated[options.Given, shared.sampling("block")],
    watch: shared.Watch = False,
    json: shared.Json = None,
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Call a ``method`` of the pipeline of a run with texts from wherever they are, and print the answers."""
    if maximum is not None and minimum > maximum:
        raise ValueError(f"a gap cannot have at least {minimum} (--min) and at most {maximum} (--max) tokens")
    if pretrained is not None and run is not None and text is None:  # then there is no run: what stands there is a text
        run, text = None, run
    if run is not None and not os.path.isdir(run):  # noqa: PTH112  (a text may be no path at all)
        raise ValueError(f"{run} is not a run: there is no such folder")
    if file is not None and text is not None:
        raise ValueError("give the text as an argument or --file, not both")
    if file is None and text is None:
        raise ValueError('what text? Write it at the end, as in flexmdm infill runs/mine "The ___ sat"')
    shared.check_writable(json)
    task, model = shared.load(run, pretrained, device, sampling.get("sampler"))
    from flexmdm.reports.answers import show
    from flexmdm.tasks.pipeline import progress_bar

    pipeline = task.pipeline(model)
    texts, names = read_texts(text, file, pipeline.whole_files)
    gaps = {"minimum": minimum or None, "maximum": maximum, "gap_marker": gap_marker}
    sampling |= {name: value for name, value in gaps.items() if value is not None} | {"seed": seed}
    with progress_bar(len(texts) * num) as bar:
        answer = getattr(pipeline, method)
        answers = answer(texts, num, full=True, trace=watch, names=names, callback=bar, **sampling)
    show(pipeline, answers, texts, json, watch)


infill = options.Command(_answer, method="infill")
complete = options.Command(_answer, leave_out=("minimum", "maximum", "gap_marker"), method="complete")


def read_texts(text: str | None, file: Path | None, whole: bool) -> tuple[list[str], list[str]]:
    """Return the texts of an argument, a file or (as ``-``) standard input, and the names of their lines.

    A ``whole`` file, or all of the standard input, is one text.
    """
    if file is None and text is not None and text != "-":
        return [text], []
    lines = _lines(file.read_bytes() if file else sys.stdin.buffer.read(), str(file or "standard input"), whole)
    if whole:
        return ["\n".join(lines)], []  # byte for byte
    where = "" if file is not None else " of standard input"
    texts = {f"line {number}{where}": line for number, line in enumerate(lines, 1) if line.strip()}
    if not texts:
        raise ValueError(f"{file or 'standard input'} holds no text: one per line is expected")
    return list(texts.values()), list(texts)


def _lines(raw: bytes, name: str, whole: bool) -> list[str]:
    lines = []
    for number, line in enumerate(raw.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            lines.append((line if whole else line.removesuffix(b"\r")).decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}, line {number} is not UTF-8 ({error}); save it as UTF-8") from error
    return lines
