"""From requests to answers with a trained model: encode, prompt, generate, decode; one `Answer` for all tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Prompt
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.denoiser import Denoiser, Prediction
from flexmdm.generation import Event, Progress, Sample, stream
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.generation.lengths import length_laws
from flexmdm.generation.ranking import answer_likelihood, confidences
from flexmdm.progress import ProgressBar
from flexmdm.tasks.task import Task

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

BATCH = 64
_MORE, _TRAJECTORIES = 2, 4  # answers more than are wanted that are measured a second time, and how well
EMPTY = "(empty)"  # shown for a text without characters
_NAMED = 10  # bad texts in one error
Callback = Callable[[int, Progress], None]


@dataclass(frozen=True)
class Answer:
    """One answer of a model.

    Attributes:
        text: what it wrote: a whole text with its gaps filled (text), an answer (sft), the middle of a program (code).
        gaps: what it found for each gap.
        evaluations, hit_max_length, events: of `flexmdm.Generation`; no events without a trace.
        prompt: what it started from.
        context, around: tokens of the given text that the model saw, and that there are; fewer if they left no room.
        pieces: the given text before, between and behind the gaps, where the answer is the whole text.
        fits: whether it can stand where it stands: no gap is empty, and words do not run into a space that was given.
        log_prob: log of its probability given the prompt in nats, where answers were ranked: an estimated lower bound
            (and if gaps have a least length, also of which of its tokens are the masks that they began with).
        standard_error: of ``log_prob``, by the trajectories that it was measured along.
        confidence: each token that was found, as text, with its probability given all others; where ``best`` was asked.
        lengths: the chance of each number of tokens, for each gap; where ``best`` was asked. Of one gap it is what the
            insertion head says (see `flexmdm.generation.lengths`), of several it is their share of the draws.
        request: the number of the request that it answers.
    """

    text: str
    gaps: tuple[str, ...]
    tokens: tuple[int, ...]
    evaluations: int
    hit_max_length: bool
    prompt: Prompt
    events: tuple[Event, ...] = ()
    context: int = 0
    around: int = 0
    pieces: tuple[str, ...] = ()
    fits: bool = True
    log_prob: float | None = None
    standard_error: float | None = None
    confidence: tuple[tuple[str, float], ...] = ()
    lengths: tuple[dict[int, float], ...] = ()
    request: int = 0

    @property
    def shortened(self) -> bool:
        """Return whether the model saw only a part of what was given."""
        return self.context < self.around


@dataclass(frozen=True)
class Generated:
    """One sequence of a `flexmdm.Generation`; no events without a trace."""

    prompt: int  # the number of the prompt that it began as
    sequence: list[int]
    given: list[bool]
    evaluations: int
    hit_max_length: bool
    events: tuple[Event, ...]

    def answer(self, text: str, gaps: Sequence[str], tokens: Sequence[int], prompt: Prompt, **more: Any) -> Answer:
        """Return the answer that this sequence is read as."""
        found = text, tuple(gaps), tuple(tokens)
        return Answer(*found, self.evaluations, self.hit_max_length, prompt, self.events, request=self.prompt, **more)


AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True)
class Pipeline(Generic[AnyTask]):
    """A task with a trained model; what requests, prompts and answers are, the pipeline of each task says."""

    task: AnyTask
    model: FlexMDMModel
    task_name: ClassVar[str] = ""  # the task whose runs it takes
    uses: ClassVar[str] = ""  # for errors, the commands that such a run is for
    whole_files: ClassVar[bool] = False  # a file is one text, and not one text per line
    draws: ClassVar[int] = 1  # draws per answer of `infill`, if nobody says how many
    takes_prompts: ClassVar[bool] = False  # whether what is infilled is the answer to a prompt

    @classmethod
    def from_pretrained(cls, run: str | Path, device: str | None = None, data: Sequence[str | Path] = ()) -> Self:
        """Load the folder of a run, or weights that come with the package by their name (such as ``text``).

        ``data`` says where the files are now that it was trained on, if they are not where they were.
        """
        from flexmdm.tasks.loading import load_as

        return cls(*load_as(cls.task_name, run, device, data))

    # What commands ask; a pipeline overrides what its task can do -----------------------------------------------------

    def sample(self, num: int = 1, *, full: bool = False, **options: Any) -> list[Any]:
        """Write ``num`` sequences from nothing: texts, or with ``full`` their `Answer`s."""
        raise ValueError(f"a run on {self.task.name} does not write from nothing: {self.uses}")

    def complete(self, text: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Go on behind a text: a string for a string, a list for a list, ``num`` > 1 or ``full`` `Answer`s."""
        raise ValueError(f"a run on {self.task.name} does not go on behind a text: {self.uses}")

    def infill(self, text: Any, num: int = 1, *, full: bool = False, **options: Any) -> Any:
        """Fill the gaps of a text: a string for a string, a list for a list, ``num`` > 1 or ``full`` `Answer`s."""
        raise ValueError(f"a run on {self.task.name} does not fill the gaps of a text: {self.uses}")

    def preview(self, num: int, seed: int, **options: Any) -> list[str]:
        """Return what to show of the model while it trains."""
        return self.sample(num, seed=seed, **options)

    def row(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as a file has it."""
        row: dict[str, Any] = {"text": answer.text, "gaps": list(answer.gaps), "evaluations": answer.evaluations}
        if answer.log_prob is not None and math.isfinite(answer.log_prob):
            row |= {"log_prob": answer.log_prob, "standard_error": answer.standard_error}
        if answer.lengths:
            laws = [{size: round(chance, 4) for size, chance in law.items()} for law in answer.lengths]
            row |= {"confidence": [[text, round(chance, 4)] for text, chance in answer.confidence], "lengths": laws}
        return row

    # From requests to answers -----------------------------------------------------------------------------------------

    def encode(self, request: Any) -> Any:
        """Return the tokens of a request."""
        raise NotImplementedError

    def prompt(self, tokens: Any, **settings: Any) -> Prompt:
        """Return what generation starts from, given the tokens of a request."""
        raise NotImplementedError

    def decode(self, request: Any, tokens: Any, prompt: Prompt, one: Generated) -> Answer:
        """Return the answer to a request that a generated sequence is."""
        raise NotImplementedError

    def answers(
        self,
        requests: Sequence[Any],
        num: int = 1,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callback | None = None,
        prompt: dict[str, Any] | None = None,
        best: int = 0,
        first_sequence: int | Sequence[int] = 0,
        detailed: bool = True,
        **options: Any,
    ) -> list[Answer]:
        """Write ``num`` answers to each request, or of so many the ``best``.

        Args:
            requests, num: what to answer, and how often; 0 checks the requests alone.
            trace, seed: of `flexmdm.generate`.
            names: what an error calls each request, such as its line; by default text 1, text 2 and so on.
            callback: called with (answers already complete, `flexmdm.generation.Progress`) after every step.
            prompt: settings of `prompt`.
            best: how many to keep of each request: the most probable distinct ones, the best first; fewer if there are
                no more. Those that do not fit come last. 0 keeps all as they are drawn.
            first_sequence: number of the first request, for requests that come in several parts; or of each.
            detailed: the best ones also say how sure each token is, and how long a gap may be.
            options: of `flexmdm.generate`.
        """
        if isinstance(requests, str):
            raise ValueError(f"requests are a list, and this is one text: [{requests!r}]")
        if best < 0 or best > num > 0:
            raise ValueError(f"best is how many to keep of the {num} that are drawn: from 1 to {num}, or 0; got {best}")
        tokens = of_each(requests, self.encode, names)
        prompts = of_each(tokens, lambda one: self.prompt(one, **(prompt or {})), names)
        each = isinstance(first_sequence, int)
        first = first_sequence * num if each else [number * num for number in first_sequence]
        found = list(generated(self.task, self.model, prompts, num, trace, seed, first, callback=callback, **options))
        answers = [self.decode(requests[one.prompt], tokens[one.prompt], prompts[one.prompt], one) for one in found]
        return self.most_probable(answers, found, best, seed, detailed) if best and answers else answers

    def most_probable(
        self, answers: list[Answer], found: list[Generated], most: int, seed: int = 0, detailed: bool = False
    ) -> list[Answer]:
        """Return the ``most`` probable distinct answers to each prompt; those that do not fit come last.

        All are measured along one trajectory, then the best ones and some more along several. Equal ones are measured
        once, and of two that read the same the more probable one stands for both.
        """
        denoiser = denoiser_of(self.task, self.model)

        def measured(chosen: list[int], num: int) -> dict[int, tuple[float, float]]:
            both = [answers[i].prompt for i in chosen], [found[i].sequence for i in chosen]
            nats, error = vars(answer_likelihood(denoiser, *both, [found[i].given for i in chosen], num, seed)).values()
            return dict(zip(chosen, zip(nats.tolist(), error.tolist(), strict=True), strict=True))

        def ranked(nats: dict[int, tuple[float, float]], most: int) -> list[int]:
            seen: dict[int, dict[str, int]] = {}
            for i in sorted(nats, key=lambda i: (found[i].prompt, not answers[i].fits, nats[i][0], i)):
                of_prompt = seen.setdefault(found[i].prompt, {})
                if len(of_prompt) < most:
                    of_prompt.setdefault(answers[i].text, i)
            return [i for of_prompt in seen.values() for i in of_prompt.values()]

        names = [(one.prompt, tuple(one.sequence), tuple(one.given)) for one in found]
        distinct = sorted({name: i for i, name in reversed(list(enumerate(names)))}.values())
        nats = measured(ranked(measured(distinct, 1), most + _MORE), _TRAJECTORIES)
        chosen = ranked(nats, most)
        kept = [replace(answers[i], log_prob=-nats[i][0], standard_error=nats[i][1]) for i in chosen]
        if not detailed:
            return kept
        sequences = [found[i].sequence for i in chosen]
        sure = confidences(denoiser, [one.prompt for one in kept], sequences, [found[i].given for i in chosen])
        laws = self._length_laws(
            denoiser, found, {one.prompt: answer.prompt for one, answer in zip(found, answers, strict=True)}
        )
        return [
            replace(one, confidence=self._named(found[i], one.prompt, chances), lengths=laws[found[i].prompt])
            for i, one, chances in zip(chosen, kept, sure, strict=True)
        ]

    def _named(self, one: Generated, prompt: Prompt, chances: Sequence[float]) -> tuple[tuple[str, float], ...]:
        """Return the tokens that a sequence found, as text, with their probabilities."""
        inside = [token for gap in found_in(one.sequence, one.given, prompt) for token in gap]
        return tuple((self.task.show([token]), chance) for token, chance in zip(inside, chances, strict=True))

    def _length_laws(
        self, denoiser: Denoiser, found: list[Generated], prompts: dict[int, Prompt]
    ) -> dict[int, tuple[dict[int, float], ...]]:
        """Return the chances of the numbers of tokens of each gap, for each prompt by its number."""
        sizes: dict[int, list[list[int]]] = {}
        for one in found:
            sizes.setdefault(one.prompt, []).append(
                [len(gap) for gap in found_in(one.sequence, one.given, prompts[one.prompt])]
            )
        laws = {number: tuple(map(_shares, zip(*each, strict=True))) for number, each in sizes.items()}
        single = [number for number, prompt in prompts.items() if sum(prompt.open_gaps) == 1 and len(laws[number]) == 1]
        most = self.task.layout.most_entries
        for number, law in zip(
            single, length_laws(denoiser, [prompts[i] for i in single], max_length=most), strict=True
        ):
            masks = prompts[number].tokens.count(None)
            laws[number] = ({masks + size: chance for size, chance in enumerate(law)},)
        return laws

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model and all that `from_pretrained` needs to a folder, which can then go anywhere.

        The tokenizer is inside, the data is not: of its paths only the names stay.
        """
        config = self.model.config
        if getattr(config, "lora", None) is not None:
            raise ValueError(
                "this model is adapters on a base that stays where it is: merge them first, so that it stands alone "
                "(flexmdm retrofit RUN --merge --out FOLDER)"
            )
        stored, config.task = config.task, _without_folders(self.task.to_dict())
        try:
            self.model.save_pretrained(folder)
        finally:
            config.task = stored
        self.task.save(Path(folder))

    def push_to_hub(self, repo_id: str, private: bool | None = None, token: str | None = None) -> str:
        """Upload what `save_pretrained` writes to the Hugging Face Hub, and return its address.

        Args:
            repo_id: such as ``someone/stories``; created if there is none.
            private: whether a new repository is seen by nobody else.
            token: of an account that may write there; by default the one that is logged in.
        """
        from huggingface_hub import HfApi

        hub = HfApi(token=token)
        address = hub.create_repo(repo_id, private=private, exist_ok=True)
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            hub.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a FlexMDM")
        return str(address)


def _without_folders(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a task with the names alone of what lies in folders: data and tokenizer.

    >>> _without_folders(
    ...     {"data": ["/home/me/stories.txt", "hf:/home/me/tales:test", "hf:a/tales"], "format": "/{prompt}"}
    ... )
    {'data': ['stories.txt', 'hf:tales:test', 'hf:a/tales'], 'format': '/{prompt}'}
    """

    def name(path: str) -> str:
        before, path = ("hf:", path[3:]) if path.startswith("hf:") else ("", path)
        return before + (Path(path).name if Path(path).is_absolute() else path)

    kept = dict(stored)
    for key in {"data", "held_out_data", "tokenizer"} & set(stored):
        kept[key] = name(kept[key]) if isinstance(kept[key], str) else [name(path) for path in kept[key]]
    return kept


def texts_of(answers: Sequence[Answer], one: bool, full: bool) -> Any:
    """Return the answers, or their texts, or the text of the only one where ``one`` was asked for."""
    found = list(answers) if full else [answer.text for answer in answers]
    return found[0] if one and not full and len(found) == 1 else found


def generated(
    task: Task,
    model: FlexMDMModel,
    prompts: Sequence[Prompt],
    num: int = 1,
    trace: bool = False,
    seed: int = 0,
    first_sequence: int | Sequence[int] = 0,
    batch_size: int | None = None,
    callback: Callback | None = None,
    purpose: str = "writing",
    insertion_schedule: str | None = None,
    unmasking_schedule: str | None = None,
    **options: Any,
) -> Iterator[Generated]:
    """Generate ``num`` sequences for each prompt, some at a time; FlexMDM stays within what its layout allows.

    Args:
        task, model: what was trained.
        prompts, num: what to start from, and how often.
        trace, seed, first_sequence: of `flexmdm.generate`.
        batch_size: sequences under way at a time; by default 64.
        callback: called with (sequences already complete, `flexmdm.generation.Progress`) after every step.
        purpose: the row of `flexmdm.generation.defaults.DEFAULTS` that holds where options are not given.
        insertion_schedule, unmasking_schedule: schedules as `Schedule.parse` reads them, instead of those of the
            training; what is learned depends on neither.
        options: of `flexmdm.generate`.
    """
    if insertion_schedule or unmasking_schedule:
        if insertion_schedule and not task.layout.inserts:
            raise ValueError("an MDM inserts nothing: leave its --insertion-schedule out")
        options["interpolant"] = model.interpolant.changed(insertion_schedule, unmasking_schedule)
    options = DEFAULTS[purpose].options(task.layout.inserts, **options)
    if task.layout.inserts:
        most = task.layout.most_entries
        options["max_length"] = min(options.get("max_length") or most, most)
    samples = stream(
        denoiser_of(task, model),
        num,
        prompts=prompts,
        seed=seed,
        first_sequence=first_sequence,
        batch_size=BATCH if batch_size is None else batch_size,
        trace=trace,
        callback=None if callback is None else partial(callback, 0),
        **options,
    )
    for one in in_order(samples):
        events = tuple(one.trace or ())
        yield Generated(one.number // num, one.sequence, one.given, one.evaluations, one.hit_max_length, events)


def in_order(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield samples that come as they finish in the order of their numbers."""
    early: dict[int, Sample] = {}
    following = 0
    for sample in samples:
        early[sample.number] = sample
        while following in early:
            yield early.pop(following)
            following += 1


def found_in(sequence: Sequence[int], given: Sequence[bool], prompt: Prompt) -> list[list[int]]:
    """Return the tokens that were found in each place of a prompt, between fixed tokens, that had something to find.

    >>> found_in([1, 7, 8, 2], [True, False, True, True], Prompt((1, None, 2), (False, True, True, False)))
    [[7, 8]]
    """
    fixed = [entry is not None for entry in prompt.tokens]
    before = [0, *accumulate(fixed)]  # fixed tokens ahead of each gap, and of each entry
    masks = {place for place, entry in zip(before, prompt.tokens, strict=False) if entry is None}
    grown = {place for place, is_open in zip(before, prompt.open_gaps, strict=True) if is_open}
    found: dict[int, list[int]] = {place: [] for place in sorted(masks | grown)}
    entries, place = iter(fixed), 0
    for token, was_given in zip(sequence, given, strict=True):
        if was_given and next(entries):
            place += 1
        else:
            found[place].append(token)
    return list(found.values())


def _shares(sizes: Sequence[int]) -> dict[int, float]:
    """Return how often each number occurs.

    >>> _shares([3, 1, 3, 3])
    {1: 0.25, 3: 0.75}
    """
    return {size: count / len(sizes) for size, count in sorted(Counter(sizes).items())}


def denoiser_of(task: Task, model: FlexMDMModel) -> Denoiser:
    """Return the denoiser of a model, without the tokens of the task's vocabulary that are always given."""
    never = getattr(task, "never_found", ())
    return Without(model.denoiser(), never) if never else model.denoiser()


class Without:
    """A denoiser that gives some tokens no chance, and all others theirs given that."""

    def __init__(self, denoiser: Denoiser, tokens: Sequence[int]) -> None:
        self.denoiser, self.tokens = denoiser, tokens
        self.vocab_size, self.mask_id = denoiser.vocab_size, denoiser.mask_id
        self.interpolant, self.device = (getattr(denoiser, name, None) for name in ("interpolant", "device"))

    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction:
        prediction = self.denoiser(canvas, alpha)
        never = torch.tensor(self.tokens, device=prediction.log_probs.device)
        return replace(prediction, log_probs=prediction.log_probs.index_fill(1, never, -torch.inf).log_softmax(1))


def of_each(requests: Sequence[Any], make: Callable[[Any], Any], names: Sequence[str] = ()) -> list[Any]:
    """Return what ``make`` makes of every request; if it refuses some, raise one error that names them all.

    The error is `Unanswerable` if all of theirs are, and else a plain ``ValueError``.

    >>> of_each(["1", "one", "2", "two"], int)
    Traceback (most recent call last):
    ValueError: text 2: invalid literal for int() with base 10: 'one'; bad too: text 4
    """
    made, errors = [], {}
    names = names or ([""] if len(requests) == 1 else [f"text {number}" for number in range(1, len(requests) + 1)])
    for name, request in zip(names, requests, strict=True):
        try:
            made.append(make(request))
        except ValueError as error:
            errors[name] = error
    if errors:
        first, *others = errors
        more = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else "")
        kind = Unanswerable if all(isinstance(error, Unanswerable) for error in errors.values()) else ValueError
        raise kind((f"{first}: " if first else "") + str(errors[first]) + (f"; bad too: {more}" if more else ""))
    return made


@contextmanager
def progress_bar(total: int, what: str = "writing") -> Generator[Callback]:
    """Show a bar on standard error; yields the callback that moves it."""
    with ProgressBar(what, total) as bar:
        yield lambda done, step: bar.update(min(done + 0.1 * step.finished + 0.9 * step.share * step.total, total))
