"""Gaps that were cut into held-out texts and filled again: FlexMDM, MDM and n-grams on the same gaps.

Runs on text fill 1 to 3 gaps of 1 to 6 words in each text (see `flexmdm.tasks.text.cutting`): FlexMDM as `flexmdm
infill` does, and by its first draw; MDM told how many tokens each gap had, and MDM that draws these numbers from those
of gaps cut in the same way into training texts. Runs on code fill one span of 1 to 8 tokens in each function.

Needs trained runs, for text also the reference model (the extra `eval`). Answers are written down as they come, in
NAME.items beside the first run, so that an interrupted run goes on where it was; --fresh starts again.

With --humaneval FOLDER it also says how many single lines of HumanEval-infilling the n-grams fill rightly, the floor of
`flexmdm eval --benchmark humaneval-infill`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console

from flexmdm.canvas import Prompt
from flexmdm.evaluation.fluency import ReferenceLM
from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.ngrams import NgramFiller
from flexmdm.evaluation.spans import Filled
from flexmdm.reports.benchmarks import command_of
from flexmdm.sequences import Ragged
from flexmdm.sweeps.gaps import Gaps, LengthLaw, counted, guessed, told, with_masks
from flexmdm.sweeps.humaneval import score_with_bar
from flexmdm.sweeps.sweep import Entrant, Point, Writer, fingerprint, journal_of, measured
from flexmdm.tasks.code.cutting import Cutting
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.problems import Problem, Sample, read_problems
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.loading import load_run
from flexmdm.tasks.pipeline import Answer, Pipeline
from flexmdm.tasks.text.cutting import Cut, cuts
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.training.progress import LOG_FILE

EXAMPLES = """examples:
  python benchmarks/infilling.py runs/code runs/code-mdm
  python benchmarks/infilling.py runs/sentences runs/sentences-mdm --name sentences-infilling
  python benchmarks/infilling.py text --data PATH/sentences.txt.gz --name trial --quick    the weights of the package
"""
RESULTS = Path(__file__).parent / "results"
SPANS = Cutting(line=0, lines=0, span=1, most_tokens=8, inside=0)
MOST = SPANS.most_tokens
FLOOR = "4-grams"
LINE = 24  # tokens of a line at most
LAW = 20_000  # training texts whose gaps say how long gaps are
SHOWN, SEED = 20, 0
QUICK = 30  # items
GREEDY: dict[str, Any] = {"temperature": 0.0, "draws": 1}
DRAWN: dict[str, dict[str, Any]] = {"best of 8": {"draws": 8}, "one draw": {"draws": 1}}
"""How a text is filled at temperature 1: as `flexmdm infill` does, and by the first draw. MDM has the same sampler."""
SAMPLERS: dict[str, dict[str, dict[str, Any]]] = {
    "text, flexmdm": {**DRAWN, "greedy": {**GREEDY, "sampler": "likeliest", "steps": 12}},
    "text, mdm": {**DRAWN, "greedy": {**GREEDY, "sampler": "adaptive", "confidence": "top_prob"}},
    "code, flexmdm": {
        "likeliest 12": {"sampler": "likeliest", "steps": 12, **GREEDY},  # and an evaluation for every token
        "spaced 16": {"sampler": "spaced", "steps": 16, **GREEDY},
        "adaptive 16": {"sampler": "adaptive", "steps": 16, "confidence": "top_prob", **GREEDY},
    },
    "code, mdm": {
        "low_confidence 16": {"sampler": "low_confidence", "steps": 16, **GREEDY},
        "adaptive 16": {"sampler": "adaptive", "steps": 16, "confidence": "top_prob", **GREEDY},
    },
}
TEXTS = """\
{num:,} held-out texts with 1, 2 and 3 gaps in turns, cut by words ({words}), the same for all, seed {seed}. Exact: \
all gaps of a text hold just the words that were there; similarity: of the characters, mean over the gaps; right \
length: gaps with as many words; perplexity: of the whole text with its gaps filled under the reference model, over \
that of the original. MDM guessing draws the tokens of all gaps of a text together from {law:,} training texts cut \
in the same way, those with as many gaps and as many words left. The n-grams know that a gap is not empty, and no \
more of its length. Best of 8: the most probable of eight draws (of MDM guessing by the probability of the whole \
text). {seen} of the texts stand word for word in the training data as well."""
SPANS_OF_CODE = """\
{num:,} spans of 1 to {most} tokens in held-out functions, the same for all; temperature 0; parts of one long \
function count as independent. The n-grams are told that a span has 1 to {most} tokens; the networks have to learn \
how long one is, lines too. {seen} of the functions, or parts of long ones, stand word for word in the training \
data as well."""


@dataclass(frozen=True)
class Row:
    """One measurement: who fills the gaps, with which options, and how they were filled."""

    model: str  # rows of one are compared with each other
    label: str
    entrant: Entrant
    options: dict[str, Any]

    def measure(self, gaps: Gaps, folder: Path) -> tuple[Point, list[dict[str, Any]]]:
        """Return the point and the answers; those that are written down already are not asked for again."""
        journal = journal_of(gaps, self.entrant, self.options, SEED, folder, self.label)
        point = measured(gaps, self.entrant, self.options, SEED, journal=journal)
        return point, journal.lines[: point.num]


@dataclass(frozen=True)
class Experiment:
    """What is filled, by whom, and a sentence on both."""

    gaps: Gaps
    rows: Sequence[Row]
    about: str


# Texts ----------------------------------------------------------------------------------------------------------------


def sentences(pipelines: dict[str, TextPipeline], num: int, lm: ReferenceLM | None) -> Experiment:
    """Return the experiment on texts: held-out ones with 1 to 3 gaps of 1 to 6 words."""
    first = next(iter(pipelines.values()))
    cut = list(islice(cuts(texts_of(first, held_out=True), SEED), num))
    if len(cut) < num:
        raise SystemExit(f"there are {len(cut):,} held-out texts that are long enough, too few for {num:,}")
    gaps = Gaps(cut, lm)
    law = LengthLaw.of(first, cuts(texts_of(first, held_out=False), SEED + 1))
    train = first.task.train.store.take(torch.arange(len(first.task.train.store)))
    filler = NgramFiller.fit(train, first.task.text.size)
    seen = seen_in(train, first.task.text.encode([one.text for one in cut]))
    rows = [counting(counted(first, filler), len(train))]
    for name, pipeline in pipelines.items():
        writers: dict[str, Writer] = {"": gaps.writer(name, pipeline)}
        if not pipeline.task.layout.inserts:
            writers = {
                ", told the lengths": with_masks(pipeline, told(pipeline, cut), same=True),
                ", guessing the lengths": with_masks(pipeline, guessed(pipeline, cut, law, SEED), same=False),
            }
        for which, writer in writers.items():
            entrant = entrant_of(name, pipeline, writer)
            for label, own in SAMPLERS[f"text, {pipeline.task.model}"].items():
                options = gaps.defaults.options(True, **own)  # also an MDM has the sampler of those that insert
                rows.append(Row(name + which, f"{name}{which}, {label}", entrant, options))
    words = Counter(size for sizes in gaps.sizes for size in sizes)
    about = TEXTS.format(num=num, words=_listed(words), seed=SEED, law=LAW, seen=seen)
    return Experiment(gaps, rows, about)


def texts_of(pipeline: TextPipeline, held_out: bool) -> Iterator[str]:
    """Yield the held-out texts in random order, or as many training texts as the law of lengths is made of."""
    examples = pipeline.task.validation if held_out else pipeline.task.train
    for tokens in examples.store.take(examples.some(len(examples) if held_out else LAW)).tolist():
        yield pipeline.task.text.decode(tokens)


# Programs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spans(Gaps):
    """Programs with one gap, filled rightly by just the characters that were there; its length is in tokens."""

    tokens: Sequence[tuple[list[int], list[int], list[int]]] = field(default=(), repr=False)
    pipelines: ClassVar[tuple[type[Pipeline], ...]] = (CodePipeline,)

    @property
    def sizes(self) -> Sequence[Sequence[int]]:
        return [[len(middle)] for _, middle, _ in self.tokens]

    def compared(self, gap: str) -> str:
        return gap

    def found_sizes(self, answer: Answer) -> list[int]:
        return [len(answer.tokens)]


def programs(pipelines: dict[str, CodePipeline], num: int) -> Experiment:
    """Return the experiment on code: a span of 1 to 8 tokens of each of some held-out functions."""
    task = next(iter(pipelines.values())).task
    if num > len(task.validation):
        raise SystemExit(f"there are {len(task.validation):,} held-out functions, too few for {num:,} spans")
    tokens = task.validation.cut(task.validation.some(num), torch.arange(num), SPANS)
    texts = [tuple(map(task.text.decode, parts)) for parts in tokens]
    spans = Spans([Cut((before, after), (middle,)) for before, middle, after in texts], tokens=tokens)
    filler, functions = ngrams_of(task)
    seen = seen_in(functions, [[*before, *middle, *after] for before, middle, after in tokens])
    rows = [counting(spans_by_counting(filler, task, spans), len(functions))]
    for name, pipeline in pipelines.items():
        entrant = entrant_of(name, pipeline, spans.writer(name, pipeline))
        for label, options in SAMPLERS[f"code, {pipeline.task.model}"].items():
            rows.append(Row(name, f"{name}, {label}", entrant, options))
    about = SPANS_OF_CODE.format(num=num, most=MOST, seen=seen)
    return Experiment(spans, rows, about)


def ngrams_of(task: CodeTask) -> tuple[NgramFiller, Ragged]:
    """Return n-grams of the functions that were trained on, and these."""
    functions = task.train.store.take(torch.arange(len(task.train.store)))
    return NgramFiller.fit(functions, task.text.size), functions


def spans_by_counting(filler: NgramFiller, task: CodeTask, spans: Spans) -> Writer:
    """Return what fills spans by n-grams, 1 to 8 tokens."""

    def write(items: Sequence[Any], first_sequence: int = 0, **options: Any) -> list[Answer]:
        around = spans.tokens[first_sequence : first_sequence + len(items)]
        found = by_counting(filler, [(before, after) for before, _, after in around], MOST)
        texts = map(task.text.decode, found)
        return [
            Answer(text, (text,), tuple(one), 0, False, Prompt.empty()) for text, one in zip(texts, found, strict=True)
        ]

    return write


def by_counting(filler: NgramFiller, gaps: list[tuple[list[int], list[int]]], most: int) -> list[list[int]]:
    """Return what n-grams put there, 1 to ``most`` tokens."""
    return [filler.fill(before, after, 1, most, beam=8) for before, after in gaps]


def floor_of_lines(task: CodeTask, problems: dict[str, Problem]) -> dict[str, Any]:
    """Return pass@1 of the n-grams on single lines of HumanEval-infilling, which have a line feed at their end."""
    before, after = (
        task.text.encode([getattr(problem, side) for problem in problems.values()]) for side in ("prompt", "suffix")
    )
    found = by_counting(ngrams_of(task)[0], list(zip(before, after, strict=True)), LINE)
    lines = map(task.text.decode, found)
    samples = [Sample(name, line.split("\n")[0] + "\n") for name, line in zip(problems, lines, strict=True)]
    scored = score_with_bar(problems, samples)
    return {"num": len(problems), "pass@1": asdict(scored.pass_at[1])}


# Both -----------------------------------------------------------------------------------------------------------------


def counting(writer: Writer, sequences: int) -> Row:
    """Return the row of the n-grams of so many training sequences."""
    options = {"sampler": "beam", "steps": 8, "draws": 1, "trained_on": sequences}
    return Row("n-grams", FLOOR, Entrant(FLOOR, "n-grams", False, "", writer), options)


def seen_in(train: Ragged, sequences: Sequence[Sequence[int]]) -> int:
    """Return how many of some sequences were trained on."""
    wanted = set(map(tuple, sequences))
    found = {row for tokens in train.split() if (row := tuple(tokens.tolist())) in wanted}
    return sum(tuple(one) in found for one in sequences)


def entrant_of(name: str, pipeline: Pipeline, writer: Writer) -> Entrant:
    """Return a run as an entrant that fills gaps in some way."""
    return Entrant(name, pipeline.task.model, pipeline.task.layout.inserts, fingerprint(pipeline.model), writer)


def differences(rows: Sequence[Row], points: Sequence[Point], filled: Sequence[Filled], first: str) -> dict[str, Any]:
    """Return the scores of the first run minus those of each other model, for as many draws, on the same gaps.

    Of several rows of a model that one is taken which filled more gaps rightly.
    """
    found = {}
    exact = [point.measured.value for point in points]
    for draws in dict.fromkeys(row.options["draws"] for row in rows if row.model == first):
        best: dict[str, int] = {}
        for number in sorted(range(len(rows)), key=lambda number: exact[number]):  # the last one stays
            if rows[number].options["draws"] == draws or rows[number].model == "n-grams":
                best[rows[number].model] = number
        ours = best.pop(first)
        for number in best.values():
            scores = filled[ours].minus(filled[number])
            found[f"{rows[ours].label} - {rows[number].label}"] = {name: asdict(one) for name, one in scores.items()}
    return found


def main() -> None:
    """Measure, print, and write benchmarks/results/NAME.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", help="FlexMDM first; folders, or weights of the package")
    parser.add_argument("--name", default="infilling", help="of the result files")
    parser.add_argument("--data", type=Path, nargs="+", default=(), help="what they learned from, if it has moved")
    parser.add_argument("--num", type=int, help="texts (default 500), or spans of code (2000)")
    parser.add_argument("--reference", default="auto", help="for texts, as of flexmdm eval; none for no perplexity")
    parser.add_argument("--humaneval", type=Path, help="folder of the official files")
    parser.add_argument("--fresh", action="store_true", help="ask for everything again")
    parser.add_argument("--quick", action="store_true", help=f"see that it works: {QUICK} items, files NAME-quick")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(num=QUICK, name=f"{arguments.name}-quick")
    if len({Path(run).name for run in arguments.runs}) < len(arguments.runs):
        raise SystemExit("the runs need different names, as they stand in the table by them")
    problems = read_problems(arguments.humaneval) if arguments.humaneval else None  # if they are not there, say so now
    pipelines: dict[str, Any] = {}
    for run in arguments.runs:
        task, model = load_run(run, data=arguments.data)
        pipelines[Path(run).name] = task.pipeline(model)
    if len({(pipeline.task.name, pipeline.task.compared_on) for pipeline in pipelines.values()}) > 1:
        raise SystemExit("these runs have other data or other tokens: they cannot be compared on the same gaps")
    first, task = next(iter(pipelines.items()))[0], next(iter(pipelines.values())).task
    folder = Path(arguments.runs[0]).parent / f"{arguments.name}.items"
    if arguments.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    if task.name == "text":
        lm = ReferenceLM.named(arguments.reference)
        experiment = sentences(pipelines, 500 if arguments.num is None else arguments.num, lm)
    else:
        experiment = programs(pipelines, 2000 if arguments.num is None else arguments.num)
    answered = [row.measure(experiment.gaps, folder) for row in experiment.rows]
    results = results_of(experiment, answered, first)
    results["humaneval"] = floor_of_lines(task, problems) if problems else None
    text = markdown(results)
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / f"{arguments.name}.md").write_text(text)
    if task.name == "code":  # those of runs on text are kept by benchmarks/text.py, with what came before
        for run in map(Path, arguments.runs):
            shutil.copy(run / LOG_FILE, RESULTS / "logs" / f"{run.name}.jsonl")
    Console().print(text, markup=False, soft_wrap=True, highlight=False)


def results_of(
    experiment: Experiment, answered: Sequence[tuple[Point, list[dict[str, Any]]]], first: str
) -> dict[str, Any]:
    """Return what goes to the file: scores, differences, and the first items with their fillings."""
    gaps, rows = experiment.gaps, experiment.rows
    points = [point for point, _ in answered]
    examples = [{"text": "___".join(cut.pieces), "cut": cut.gaps, "filled": {}} for cut in gaps.cuts[:SHOWN]]
    for row, (_, lines) in zip(rows, answered, strict=True):
        for example, line in zip(examples, lines, strict=False):
            example["filled"][row.label] = line["gaps"]
    filled = [gaps.filled(lines) for _, lines in answered]
    return {
        "command": command_of("benchmarks/infilling.py"),
        "num": len(gaps.cuts),
        "about": experiment.about,
        "rows": [
            {**point.to_dict(gaps.measure), "model": row.model, "sampler": row.label, "options": row.options}
            for row, point in zip(rows, points, strict=True)
        ],
        "differences": differences(rows, points, filled, first),
        "examples": examples,
    }


def markdown(results: dict[str, Any]) -> str:
    """Return the tables, and how they were made."""
    rows, shortened = results["rows"], max(row["shortened"] for row in results["rows"])
    scores = [name for name in ("exact", "similarity", "length", "perplexity") if name in rows[0]]
    titles = {"exact": "exact", "similarity": "edit similarity", "length": "right length", "perplexity": "perplexity"}
    seen = f" Of {shortened:,} items the networks saw only a part of what is around." if shortened else ""
    heads = " | ".join(titles[name] for name in scores)
    lines = [
        f"{results['about']}{seen} 95% intervals; evaluations of all draws. Made by `{results['command']}`.",
        "",
        f"| filled by | {heads} | evaluations | seconds |",
        f"|---|{'---|' * len(scores)}---|---|",
        *(
            f"| {row['sampler']} | {' | '.join(_score(name, row[name]) for name in scores)} | "
            f"{row['evaluations'] * row['options']['draws']:.0f} | {row['seconds']:.2f} |"
            for row in rows
        ),
        "",
        f"| on the same gaps, the row of each that did better on them, for as many draws | {heads} |",
        f"|---|{'---|' * len(scores)}",
        *(
            f"| {pair} | {' | '.join(_score(name, of[name], '+') for name in scores)} |"
            for pair, of in results["differences"].items()
        ),
    ]
    if (floor := results["humaneval"]) is not None:
        passed = Interval(**floor["pass@1"]).percent()
        lines += ["", f"{FLOOR} on {floor['num']:,} single lines of HumanEval-infilling: pass@1 {passed}."]
    return "\n".join(lines) + "\n"


def _score(name: str, found: dict[str, float], sign: str = "") -> str:
    if name != "perplexity":
        return Interval(**found).percent()
    value, low, high = (f"{found[part]:{sign}.2f}" for part in ("value", "low", "high"))
    return f"{value} ({low} - {high})"


def _listed(words: Counter[int]) -> str:
    """Return how many gaps have how many words."""
    return ", ".join(f"{words[size]} of {size}" for size in sorted(words)) + " words"


if __name__ == "__main__":
    main()
