"""`flexmdm sample`, `flexmdm complete` and `flexmdm infill`: let a run do what it learned."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexmdm.cli import options, shared
from flexmdm.tasks.registry import PLANS

if TYPE_CHECKING:
    from flexmdm.tasks.pipeline import Pipeline

SAMPLE_EXAMPLES = shared.examples("""
`flexmdm sample runs/names --num 10`: ten new names
`flexmdm sample runs/articles --watch`: see a paragraph grow
`flexmdm sample --pretrained text --num 3 --film film.html`: a page with a slider that shows how they grew
`flexmdm sample runs/articles --num 100 --sampler tau --steps 256 --json samples.json`
`flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: a path from cell to cell, drawn here and as path.png
`flexmdm sample --pretrained maze41 --through 1,1 --through 39,39 --output plan.png`
""")
INFILL = "Fill the gaps of a text; what is given stays as it is."
COMPLETE = "Go on behind a text; of a run on prompts and answers: answer."
INFILL_EXAMPLES = shared.examples("""
`flexmdm infill runs/articles "The ___ sat on the ___."`: several gaps at once
`flexmdm infill --pretrained text "Can you ___ me with ___?" --num 5 --temperature 0.6`: with the bundled model
`flexmdm infill runs/names "a___a" --min 2 --max 4`: two to four tokens in the gap
`flexmdm infill runs/articles "The ___ sat" --num 16 --best 4`: the four most probable of 16, ranked
`cat lines.txt | flexmdm infill runs/articles - --json filled.json`: one text per line
`flexmdm infill runs/articles --file big.jsonl --out answers.jsonl --workers 2`: a job that can be interrupted
`flexmdm infill runs/code --file program.py --gap-marker "<GAP>"`: a run on code fills one gap of a whole program
`flexmdm infill yuyuanchen0/flexmdm --dry-run`: what memory and time a published model of 7B weights takes
""")
COMPLETE_EXAMPLES = shared.examples("""
`flexmdm complete runs/articles "Once upon a time" --num 3`
`flexmdm complete runs/articles --file beginnings.txt --json endings.json`: one text per line
""")


@options.Command
def sample(
    *,
    run: shared.Run = None,
    cells: Annotated[list[str] | None, typer.Argument(help="maze: more cells behind --through.")] = None,
    through: Annotated[list[str] | None, typer.Option(help="maze: Cells to connect, each as row,column.")] = None,
    pretrained: shared.Pretrained = None,
    num: Annotated[
        int,
        typer.Option("--num", "-n", min=1, help="Number of samples; maze: one is the first right one of 4 tries."),
    ] = 1,
    sampling: Annotated[options.Given, options.Options(shared.Sampling, leave_out=("window", "block"))],
    watch: shared.Watch = False,
    film: shared.Film = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="maze: Picture. [default: path.png]", dir_okay=False)
    ] = None,
    json: shared.Json = None,
    out: shared.Out = None,
    workers: shared.Workers = 1,
    engine: shared.Engine = "local",
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Sample sequences, or plan paths through a maze."""
    extra = list(cells or [])
    if pretrained is not None and run is not None:  # with --pretrained there is no run: what stands there is a cell
        extra, run = [run, *extra], None
    if extra and not through:
        raise ValueError(f"what is {extra[0]!r}? Cells come behind --through, as row,column")
    name = shared.trained_on(run, pretrained)
    if film is not None and name == PLANS:
        raise ValueError("--film is for texts, and a path through a maze is drawn: leave it out")
    for option, value in {"--through": through, "--output": output}.items():
        if value and name not in (PLANS, None):
            raise ValueError(f"{option} is for runs on maze, and {run or pretrained} was trained on {name}")
    if out is not None:
        if name == PLANS:
            raise ValueError("--out is for texts: paths through a maze are drawn one at a time, leave it out")
        job = {"method": "sample", "run": run, "pretrained": pretrained, "device": device, "num": num, "seed": seed}
        return _run_job(
            out, workers, engine, {"--watch": watch, "--film": film, "--json": json}, **job, options=sampling
        )
    way = [_cell(text) for text in [*(through or []), *extra]]
    if len(way) == 1:
        raise ValueError(f"a path needs a start and a goal: give at least two cells, got {way[0]}")
    shared.check_writable(json, output, film)
    task, model = shared.load(run, pretrained, device, sampling.get("sampler"))
    from flexmdm.tasks.maze.task import MazeTask

    if isinstance(task, MazeTask):
        from flexmdm.reports import maze as report

        output = output or Path("path.png")
        shared.check_writable(output)
        report.sample(task, model, way, num, output, json, seed=seed, **sampling)
        return
    _write(task.pipeline(model), "sample", (), num, watch, film, json, seed=seed, **sampling)


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"a cell is row,column such as 3,5; got {text!r}") from None
    return row, column


def _answer(
    *,
    method: str,
    run: shared.Run = None,
    text: Annotated[
        str | None, typer.Argument(help="The text; - reads one per line from standard input (code: one program).")
    ] = None,
    pretrained: shared.Pretrained = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read one text per line from a file (code: one program).", exists=True, dir_okay=False),
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Number of answers per text.")] = 1,
    best: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of --num answers keep so many, the most probable distinct ones; 0 keeps all as they are drawn. "
            "[default: the best --num of 8 times as many to fill gaps of texts, else 0]",
        ),
    ] = None,
    minimum: Annotated[int, typer.Option("--minimum", "--min", min=0, help="Fewest tokens of a gap.")] = 0,
    maximum: Annotated[
        int | None, typer.Option("--maximum", "--max", min=1, help="Most tokens of a gap. [default: any]")
    ] = None,
    gap_marker: Annotated[
        str | None, typer.Option(help="What stands for a gap in the text. [default: ___]", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Prompt of the text, of a run on prompts and answers. [default: an empty one]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what memory and time an answer takes, here and on a GPU, and stop.")
    ] = False,
    sampling: Annotated[options.Given, options.Options(shared.Sampling, leave_out=("block",))],
    watch: shared.Watch = False,
    film: shared.Film = None,
    json: shared.Json = None,
    out: shared.Out = None,
    workers: shared.Workers = 1,
    engine: shared.Engine = "local",
    seed: shared.Seed = 0,
    device: shared.Device = None,
) -> None:
    """Call a ``method`` of the pipeline of a run with texts from wherever they are, and print the answers."""
    if maximum is not None and minimum > maximum:
        raise ValueError(f"a gap cannot have at least {minimum} (--min) and at most {maximum} (--max) tokens")
    if pretrained is not None and run is not None and text is None:  # then there is no run: what stands there is a text
        run, text = None, run
    _check_run(run)
    if dry_run:
        from flexmdm.runs.estimate import dry_run as estimate

        if run is None and pretrained is None:
            raise ValueError("--dry-run of what? Give the folder of a run, OWNER/NAME on the Hub, or --pretrained NAME")
        shared.check_writable(json)
        estimate(run or pretrained or "", sampling.get("steps"), json, device)
        return
    if file is not None and text is not None:
        raise ValueError("give the text as an argument or --file, not both")
    if file is None and text is None:
        raise ValueError('what text? Write it at the end, as in flexmdm infill runs/mine "The ___ sat"')
    gaps = {"minimum": minimum or None, "maximum": maximum, "gap_marker": gap_marker, "best": best, "prompt": prompt}
    sampling |= {name: value for name, value in gaps.items() if value is not None}
    if out is not None:
        if file is None:
            raise ValueError("--out is for the lines of a --file: name one, or leave --out out")
        job = {"method": method, "run": run, "pretrained": pretrained, "device": device, "num": num, "seed": seed}
        return _run_job(
            out,
            workers,
            engine,
            {"--watch": watch, "--film": film, "--json": json},
            **job,
            file=str(file),
            options=sampling,
        )
    shared.check_writable(json, film)
    task, model = shared.load(run, pretrained, device, sampling.get("sampler"))
    pipeline = task.pipeline(model)
    texts, names = read_texts(text, file, pipeline.whole_files)
    if prompt is not None and not pipeline.takes_prompts:
        raise ValueError(f"--prompt is for runs on prompts and answers, and {run or pretrained} is none: leave it out")
    _write(pipeline, method, texts, num, watch, film, json, names=names, seed=seed, **sampling)


_STANDARD_INPUT = "standard input", " of standard input"  # what it is called, and a line of it
infill = options.Command(_answer, method="infill")
complete = options.Command(_answer, leave_out=("minimum", "maximum", "gap_marker", "prompt"), method="complete")


def _check_run(run: str | None) -> None:
    """Raise unless a run is a folder, or OWNER/NAME on the Hub."""
    from flexmdm.backbones.folders import on_the_hub

    if run is not None and not os.path.isdir(run) and not on_the_hub(run):  # noqa: PTH112  (a text may be no path)
        raise ValueError(f"{run} is not a run: there is no such folder")


def _run_job(out: Path, workers: int, engine: str, others: dict[str, Any], **job: Any) -> None:
    """Run a job, and leave with exit code 3 if some of its lines could not be answered."""
    if given := [option for option, value in others.items() if value]:
        raise ValueError(f"a job writes to --out alone: leave out {' and '.join(given)}")
    shared.check_writable(out)
    if sys.stderr.isatty():
        print("loading ...", file=sys.stderr, flush=True)
    from flexmdm.jobs.job import Job
    from flexmdm.jobs.run import run

    outcome = run(Job(**job), out, workers, engine)
    print(outcome, file=sys.stderr)
    if outcome.refused:
        raise typer.Exit(3)


def read_texts(text: str | None, file: Path | None, whole: bool) -> tuple[list[str], list[str]]:
    """Return the texts of an argument, a file or (as ``-``) standard input, and the names of their lines.

    A ``whole`` file, or all of the standard input, is one text.
    """
    if file is None and text is not None and text != "-":
        return [text], []
    raw, name, where = (file.read_bytes(), file, "") if file else (sys.stdin.buffer.read(), *_STANDARD_INPUT)
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{name}, line {number} is not UTF-8 ({error}); save it as UTF-8") from error
    if whole:
        return [content], []
    lines = (line.removesuffix("\r") for line in content.split("\n"))
    texts = {f"line {number}{where}": line for number, line in enumerate(lines, 1) if line.strip()}
    if not texts:
        raise ValueError(f"{name} holds no text: one per line is expected")
    return list(texts.values()), list(texts)


def _write(
    pipeline: Pipeline,
    method: str,
    texts: Sequence[str],
    num: int,
    watch: bool,
    film: Path | None,
    json: Path | None,
    **settings: Any,
) -> None:
    """Call a ``method`` of a pipeline, with texts if there are any, and print the answers."""
    from flexmdm.reports.answers import show
    from flexmdm.reports.playback import check_film, write_film
    from flexmdm.tasks.pipeline import progress_bar

    if film is not None:
        check_film(film)
    request, trace = [texts] if texts else [], watch or film is not None
    draws = pipeline.draws if method == "infill" and "best" not in settings else 1
    with progress_bar(max(len(texts), 1) * num * draws) as bar:
        answers = getattr(pipeline, method)(*request, num, full=True, trace=trace, callback=bar, **settings)
    show(pipeline, answers, texts, json, watch)
    if film is not None:
        write_film(pipeline.task, answers, film)
        print(f"the film is {film}", file=sys.stderr)
