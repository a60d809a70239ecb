"""From requests to answers with a trained model: encode, prompt, generate, decode; one `Answer` for all tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
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
from flexmdm.progress import ProgressBar
from flexmdm.tasks.likelihoods import answer_nats
from flexmdm.tasks.task import Task

if TYPE_CHECKING:  # seconds to import; whoever has a model has done so
    from flexmdm.backbones.model import FlexMDMModel

BATCH = 64
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
        return Answer(*found, self.evaluations, self.hit_max_length, prompt, self.events, **more)


AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True)
class Pipeline(Generic[AnyTask]):
    """A task with a trained model; what requests, prompts and answers are, the pipeline of each task says."""

    task: AnyTask
    model: FlexMDMModel
    task_name: ClassVar[str] = ""  # the task whose runs it takes
    uses: ClassVar[str] = ""  # for errors, the commands that such a run is for
    whole_files: ClassVar[bool] = False  # a file is one text, and not one text per line
    draws: ClassVar[int] = 1  # draws per answer of `infill`
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
        row = {"text": answer.text, "gaps": list(answer.gaps), "evaluations": answer.evaluations}
        return row if answer.log_prob is None or math.isinf(answer.log_prob) else row | {"log_prob": answer.log_prob}

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
        draws: int = 1,
        first_sequence: int = 0,
        **options: Any,
    ) -> list[Answer]:
        """Write ``num`` answers to each request.

        Args:
            requests, num: what to answer, and how often.
            trace, seed: of `flexmdm.generate`.
            names: what an error calls each request, such as its line; by default text 1, text 2 and so on.
            callback: called with (answers already complete, `flexmdm.generation.Progress`) after every step.
            prompt: settings of `prompt`.
            draws: draws per answer; with more than 1 the most probable ones of each request are kept, the best first.
            first_sequence: number of the first request, for requests that come in several parts.
            options: of `flexmdm.generate`.
        """
        if isinstance(requests, str):
            raise ValueError(f"requests are a list, and this is one text: [{requests!r}]")
        tokens = of_each(requests, self.encode, names)
        prompts = of_each(tokens, lambda one: self.prompt(one, **(prompt or {})), names)
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws}")
        first, each = first_sequence * num * draws, num * draws
        found = list(generated(self.task, self.model, prompts, each, trace, seed, first, callback=callback, **options))
        answers = [self.decode(requests[one.prompt], tokens[one.prompt], prompts[one.prompt], one) for one in found]
        return answers if draws == 1 else self.most_probable(answers, found, num, seed)

    def most_probable(self, answers: list[Answer], found: list[Generated], num: int, seed: int) -> list[Answer]:
        """Return the ``num`` best answers to each prompt: those that fit, distinct ones first, by their probability."""
        names = [(one.prompt, tuple(one.sequence)) for one in found]
        first = {name: index for index, name in reversed(list(enumerate(names)))}  # of equal draws one is measured
        measured, prompts = [found[i] for i in first.values()], [answers[i].prompt for i in first.values()]
        sequences, given = [one.sequence for one in measured], [one.given for one in measured]
        nats = answer_nats(denoiser_of(self.task, self.model), self.task, prompts, sequences, given, seed=seed)
        nats_of = dict(zip(first, nats.tolist(), strict=True))
        seen: set[tuple[int, str]] = set()
        ranks = []
        for index in sorted(range(len(answers)), key=lambda index: nats_of[names[index]]):
            name = found[index].prompt, answers[index].text
            ranks.append((found[index].prompt, not answers[index].fits, name in seen, nats_of[names[index]], index))
            seen.add(name)
        each = groupby(sorted(ranks), key=itemgetter(0))
        chosen = [index for _, ranked in each for *_, index in islice(ranked, num)]
        return [replace(answers[index], log_prob=-nats_of[names[index]]) for index in chosen]

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
    first_sequence: int = 0,
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
