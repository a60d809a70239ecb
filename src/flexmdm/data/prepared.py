"""Texts made into token sequences on disk: once per data and settings, then opened in no time."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from flexmdm.data.cache import default_cache, publish, unfinished
from flexmdm.data.making import TRAIN, VALIDATION, Maker, choose_tokenizer
from flexmdm.data.reading import Records, address, fingerprint
from flexmdm.data.stores import TokenStore, token_dtype
from flexmdm.data.tokenizers import TextTokenizer

_FORMAT = 1  # of the cache; a new one makes all data anew
_ABOUT = "prepared.json"
_BARS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Preparation:
    """How texts become sequences.

    Args:
        source: what to read.
        tokenizer: ``characters``, ``bytes``, ``bpe``, a folder, file or name of a Hugging Face tokenizer, or ``auto``.
        vocab_size: of bpe.
        max_length: the most tokens of a sequence.
        long: what becomes of longer documents.
        held_out: the share of documents to validate on.
        held_out_source: validate on these documents instead.
        seed: of which documents are held out.
    """

    source: Records
    tokenizer: str = "auto"
    vocab_size: int | None = None
    max_length: int = 256
    long: Literal["split", "drop"] = "split"
    held_out: float = 0.05
    held_out_source: Records | None = None
    seed: int = 0

    noun: ClassVar[str] = "document"  # what is counted
    record: ClassVar[str] = "document"  # what is held out as a whole

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"the longest sequence has at least 1 token, got max_length {self.max_length}")
        if self.long not in ("split", "drop"):
            raise ValueError(f"long documents are split or dropped: long is split or drop, got {self.long!r}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"the held-out share lies between 0 and 1, such as 0.05; got {self.held_out}")
        if self.vocab_size is not None and self.tokenizer not in ("auto", "bpe"):
            raise ValueError(f"only bpe has a vocabulary size to choose; leave it out for {self.tokenizer}")

    @property
    def sources(self) -> list[Records]:
        return [self.source] if self.held_out_source is None else [self.source, self.held_out_source]

    @property
    def contents(self) -> str:
        """What the texts are, in an error."""
        return "the data"

    def texts(self, record: Any) -> list[str]:
        """The texts of a record, which a tokenizer learns from or has to know."""
        return [record]

    def maker(self, tokenizer: TextTokenizer, folder: Path) -> Maker:
        """What turns the records into sequences."""
        return Maker(self, tokenizer, folder)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Sequences to train and to validate on.

    Attributes:
        tokenizer: how their tokens become text.
        train, validation: the sequences.
        counts: ``documents`` and ``characters`` that were read; ``skipped`` bad lines; ``empty`` documents; documents
            that were ``split`` or ``dropped`` because they are long; ``sequences`` and ``tokens`` that came out;
            documents with something ``unknown`` to a pretrained tokenizer; of functions also ``duplicates`` that were
            left out.
        folder: where it is kept.
        notes: what else there is to say.
    """

    tokenizer: TextTokenizer
    train: TokenStore
    validation: TokenStore
    counts: dict[str, int]
    folder: Path
    notes: tuple[str, ...] = ()

    def lengths_histogram(self, rows: int = 10, width: int = 40) -> str:
        """A small picture of how many sequences have how many tokens."""
        return histogram(torch.cat([self.train.lengths, self.validation.lengths]), rows, width)


def prepare(
    preparation: Preparation,
    tokenizer: TextTokenizer | None = None,
    cache: Path | None = None,
    console: Console | None = None,
) -> Prepared:
    """Read, tokenize, cut and store the data, or open what an earlier call stored.

    Args:
        preparation: the data and the settings.
        tokenizer: to use instead of the one in ``preparation``, such as that of a run that was trained on the data,
            for which what was prepared is found even if the files are gone.
        cache: where prepared data is kept; by default $FLEXMDM_CACHE, or flexmdm in the user's cache folder.
        console: where progress and counts go; by default stderr, and the counts only if the data is new.
    """
    asked_for, console = console is not None, console or Console(stderr=True)
    cache = Path(cache or default_cache())
    try:
        folder = cache / _key(preparation, tokenizer)
    except FileNotFoundError as error:
        prepared = _recalled(preparation, tokenizer, cache, error)
        _say(console, f"{error}; going by what was prepared from it earlier")
        return prepared
    if folder.exists():
        prepared = _open(folder)
        if prepared:
            _remember(preparation, prepared, cache)
            if asked_for:
                _print_counts(preparation, prepared, console)
            return prepared
        _say(console, f"the prepared data in {folder} is damaged; making it anew")
    with unfinished(cache) as draft:
        _make(preparation, tokenizer, draft, console)
        if folder.name != _key(preparation, tokenizer):
            raise ValueError("the data changed while it was read; begin again when nothing writes to it any more")
        publish(draft, folder, _is_whole)
    prepared = _open(folder)
    if prepared is None:
        raise OSError(f"the prepared data in {folder} was damaged as soon as it was written; is the disk full?")
    _remember(preparation, prepared, cache)
    _print_counts(preparation, prepared, console)
    return prepared


# The cache ------------------------------------------------------------------------------------------------------------


def _key(preparation: Preparation, tokenizer: TextTokenizer | None, by_address: bool = False) -> str:
    """The name of a folder of the cache: other files or settings, other name; by address, other settings alone."""
    settings = asdict(preparation)
    for name in ("source", "held_out_source"):
        settings[name] = settings[name] and (address if by_address else fingerprint)(getattr(preparation, name))
    if tokenizer is not None:
        settings["tokenizer"], settings["vocab_size"] = tokenizer.to_json(), None
    elif (place := Path(preparation.tokenizer).expanduser()).exists():
        inside = sorted(place.iterdir()) if place.is_dir() else [place]
        states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in inside]
        settings["tokenizer"] = [preparation.tokenizer, states]
    return hashlib.sha256(json.dumps([_FORMAT, settings]).encode()).hexdigest()


def _remember(preparation: Preparation, prepared: Prepared, cache: Path) -> None:
    """A run that was trained on it will ask again with its tokenizer, perhaps when the files are gone."""
    for by_address in (False, True):
        link = cache / _key(preparation, prepared.tokenizer, by_address)
        if link != prepared.folder:
            with suppress(OSError):  # it is a folder, or this file system has no links
                link.unlink(missing_ok=True)
                link.symlink_to(prepared.folder.name)


def _recalled(
    preparation: Preparation, tokenizer: TextTokenizer | None, cache: Path, gone: FileNotFoundError
) -> Prepared:
    """What was prepared for a run from files that are gone."""
    if tokenizer is None:  # nobody has asked for it before
        raise gone
    prepared = _open(cache / _key(preparation, tokenizer, by_address=True))
    if prepared is None:
        raise FileNotFoundError(
            f"{gone}, and what was prepared from it is not in {cache}: put it back, or set FLEXMDM_CACHE to the cache "
            "that it was prepared in"
        ) from gone
    return prepared


def _open(folder: Path) -> Prepared | None:
    """What is in a folder of the cache; ``None`` if a part of it is missing or does not have the size it had."""
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if any((folder / name).stat().st_size != size for name, size in about["files"].items()):
            return None
        tokenizer = TextTokenizer.load(folder)
    except (OSError, ValueError, KeyError):
        return None
    train, validation = (TokenStore.open(folder, side, token_dtype(tokenizer.size)) for side in (TRAIN, VALIDATION))
    return Prepared(tokenizer, train, validation, Counter(about["counts"]), folder, tuple(about.get("notes", ())))


def _is_whole(folder: Path) -> bool:
    return _open(folder) is not None


def _make(preparation: Preparation, tokenizer: TextTokenizer | None, folder: Path, console: Console) -> None:
    """Fill a folder of the cache."""
    columns = TextColumn("[bold]{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        tokenizer = tokenizer or choose_tokenizer(preparation, bar)
        tokenizer.save(folder)
        with preparation.maker(tokenizer, folder) as maker:
            maker.make(bar)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    about = {"counts": maker.counts, "notes": maker.notes, "files": sizes}
    (folder / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")


# What a person sees ---------------------------------------------------------------------------------------------------


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _print_counts(preparation: Preparation, prepared: Prepared, console: Console) -> None:
    counts, noun, unit = prepared.counts, preparation.noun, preparation.source.unit
    _say(
        console,
        f"{counts['documents']:,} {noun}s, {counts['characters']:,} characters: {counts['sequences']:,} sequences of "
        f"{counts['tokens']:,} tokens ({prepared.tokenizer.kind}, {prepared.tokenizer.size:,} different ones)",
    )
    _say(console, f"{len(prepared.train):,} sequences to train on, {len(prepared.validation):,} held out")
    special = {
        "split": f"long {noun}s split",
        "dropped": f"long {noun}s dropped",
        "empty": f"empty {noun}s dropped",
        "duplicates": f"{noun}s left out that stood there already",
        "skipped": f"bad {unit}s skipped",
        "unknown": f"{noun}s with characters that the tokenizer does not know",
    }
    for name, meaning in special.items():
        if counts.get(name):
            _say(console, f"{counts[name]:,} {meaning}")
    for note in prepared.notes:
        _say(console, note)
    _say(console, "tokens per sequence\n" + prepared.lengths_histogram())


def histogram(lengths: Tensor, rows: int = 10, width: int = 40) -> str:
    """Counts of lengths ``[S]`` in at most ``rows`` classes of the same size, as bars of text.

    >>> print(histogram(torch.tensor([1, 1, 1, 1, 2, 2, 4]), width=4))
    1  ████ 4
    2  ██   2
    3       0
    4  █    1
    """
    low, high = int(lengths.min()), int(lengths.max())
    step = -(-(high - low + 1) // rows)
    counts = torch.bincount((lengths - low) // step).tolist()
    starts = [low + step * row for row in range(len(counts))]
    names = [str(start) if step == 1 else f"{start}-{min(start + step - 1, high)}" for start in starts]
    margin = max(map(len, names))
    lines = []
    for name, count in zip(names, counts, strict=True):
        eighths = round(8 * width * count / max(counts))
        bar = "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{name:>{margin}}  {bar:<{width}} {count:,}")
    return "\n".join(lines)
