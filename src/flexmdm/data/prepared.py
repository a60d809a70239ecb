"""Texts made into token sequences on disk: once per data and settings, then opened in no time."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import uuid
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from flexmdm.data.encoding import TRAIN, VALIDATION, Preparation, choose_tokenizer
from flexmdm.data.reading import address, fingerprint, states
from flexmdm.data.stores import TokenStore, token_dtype
from flexmdm.data.tokenizers import TextTokenizer
from flexmdm.progress import ProgressBar

_FORMAT = 1  # of the cache; a new one makes all data anew
_ABOUT, _UNFINISHED = "prepared.json", "unfinished"


@dataclass(frozen=True, eq=False)
class Prepared:
    """Sequences to train and to validate on, and where they are kept.

    Attributes:
        counts: ``documents`` and ``characters`` that were read; ``skipped`` bad lines; ``empty`` documents; documents
            that were ``split`` or ``dropped`` because they are long; ``sequences`` and ``tokens`` that came out;
            documents with something ``unknown`` to a pretrained tokenizer; of functions also ``duplicates`` that were
            left out.
    """

    tokenizer: TextTokenizer
    train: TokenStore
    validation: TokenStore
    counts: dict[str, int]
    folder: Path
    notes: tuple[str, ...] = ()  # what else there is to say


def prepare(
    preparation: Preparation,
    tokenizer: TextTokenizer | None = None,
    cache: Path | None = None,
    console: Console | None = None,
) -> Prepared:
    """Read, tokenize, cut and store the data, or open what an earlier call stored.

    Args:
        tokenizer: to use instead of the one in ``preparation``, such as that of a run that was trained on the data,
            for which what was prepared is found even if the files are gone.
        cache: where prepared data is kept; by default $FLEXMDM_CACHE, or flexmdm in the user's cache folder.
        console: where progress and counts go; by default stderr, and the counts only if the data is new.
    """
    asked_for, console = console is not None, console or Console(stderr=True)
    general = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "flexmdm")
    cache = Path(cache or os.environ.get("FLEXMDM_CACHE") or general).expanduser()
    try:
        folder = cache / _key(preparation, tokenizer)
    except FileNotFoundError as gone:
        if tokenizer is None:  # nobody has asked for it before
            raise
        prepared = _open(cache / _key(preparation, tokenizer, by_address=True))
        if prepared is None:
            raise FileNotFoundError(
                f"{gone}, and what was prepared from it is not in {cache}: put it back, or set FLEXMDM_CACHE to the "
                "cache that it was prepared in"
            ) from gone
        console.out(f"{gone}; going by what was prepared from it earlier", highlight=False)
        return prepared
    prepared = _open(folder)
    if prepared is None:
        asked_for = True
        if folder.exists():
            console.out(f"the prepared data in {folder} is damaged; making it anew", highlight=False)
        with _unfinished(cache) as draft:
            _make(preparation, tokenizer, draft, console)
            if folder.name != _key(preparation, tokenizer):
                raise ValueError("the data changed while it was read; begin again when nothing writes to it any more")
            prepared = _publish(draft, folder)
    _remember(preparation, prepared, cache)
    if asked_for:
        _print_counts(preparation, prepared, console)
    return prepared


# The cache ------------------------------------------------------------------------------------------------------------


def _key(preparation: Preparation, tokenizer: TextTokenizer | None, by_address: bool = False) -> str:
    """Return the name of a folder of the cache, which depends on files and settings; by address, on settings alone."""
    settings = asdict(preparation)
    for name in ("source", "held_out_source"):
        settings[name] = settings[name] and (address if by_address else fingerprint)(getattr(preparation, name))
    if tokenizer is not None:
        settings["tokenizer"], settings["vocab_size"] = tokenizer.to_json(), None
    elif (path := Path(preparation.tokenizer).expanduser()).exists():
        settings["tokenizer"] = [preparation.tokenizer, states(sorted(path.iterdir()) if path.is_dir() else [path])]
    return hashlib.sha256(json.dumps([_FORMAT, settings]).encode()).hexdigest()


def _remember(preparation: Preparation, prepared: Prepared, cache: Path) -> None:
    """Link to it for a run that was trained on it and asks with its tokenizer, perhaps when the files are gone."""
    for by_address in (False, True):
        link = cache / _key(preparation, prepared.tokenizer, by_address)
        if link != prepared.folder:
            with suppress(OSError):  # it is a folder, or this file system has no links
                link.unlink(missing_ok=True)
                link.symlink_to(prepared.folder.name)


def _open(folder: Path) -> Prepared | None:
    """Open a folder of the cache; return ``None`` if a part of it is missing or does not have the size it had."""
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if any((folder / name).stat().st_size != size for name, size in about["files"].items()):
            return None
        tokenizer = TextTokenizer.load(folder)
    except (OSError, ValueError, KeyError):
        return None
    train, validation = (TokenStore.open(folder, side, token_dtype(tokenizer.size)) for side in (TRAIN, VALIDATION))
    return Prepared(tokenizer, train, validation, Counter(about["counts"]), folder, tuple(about.get("notes", ())))


def _make(preparation: Preparation, tokenizer: TextTokenizer | None, folder: Path, console: Console) -> None:
    with ProgressBar("preparing", console=console) as bar:
        tokenizer = tokenizer or choose_tokenizer(preparation, bar)
        tokenizer.save(folder)
        encoder = preparation.encoder(tokenizer, folder)
        encoder.encode_all(bar)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    about = {"counts": encoder.counts, "notes": encoder.notes, "files": sizes}
    (folder / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")


@contextmanager
def _unfinished(cache: Path) -> Generator[Path]:
    """Make a new folder for work that may be interrupted, and remove those of processes that are gone."""
    import psutil

    host = platform.node()
    draft = cache / f"{_UNFINISHED}-{host}-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"prepared data cannot be kept in {cache} ({error.strerror}): "
            "set FLEXMDM_CACHE to a folder you can write to"
        ) from error
    for left in cache.glob(f"{_UNFINISHED}-*"):
        owner, process, _ = left.name.rsplit("-", 2)
        if owner == f"{_UNFINISHED}-{host}" and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # gone already if all went well


def _publish(draft: Path, folder: Path) -> Prepared:
    """Move finished work to its folder, unless another process was first; what is there but not whole is replaced."""
    if folder.is_symlink():
        folder.unlink()
    elif _open(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        draft.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    prepared = _open(folder)
    if prepared is None:
        raise OSError(f"the prepared data in {folder} was damaged as soon as it was written; is the disk full?")
    return prepared


# What a person sees ---------------------------------------------------------------------------------------------------


def _print_counts(preparation: Preparation, prepared: Prepared, console: Console) -> None:
    counts, noun, unit = prepared.counts, preparation.noun, preparation.source.unit
    special = {
        "split": f"long {noun}s split",
        "dropped": f"long {noun}s dropped",
        "empty": f"empty {noun}s dropped",
        "duplicates": f"{noun}s left out that stood there already",
        "skipped": f"bad {unit}s skipped",
        "unknown": f"{noun}s with characters that the tokenizer does not know",
    }
    lines = [
        f"{counts['documents']:,} {noun}s, {counts['characters']:,} characters: {counts['sequences']:,} sequences of "
        f"{counts['tokens']:,} tokens ({prepared.tokenizer.kind}, {prepared.tokenizer.size:,} different ones)",
        f"{len(prepared.train):,} sequences to train on, {len(prepared.validation):,} held out",
        *(f"{counts[name]:,} {meaning}" for name, meaning in special.items() if counts.get(name)),
        *prepared.notes,
        "tokens per sequence",
        histogram(torch.cat([prepared.train.lengths, prepared.validation.lengths])),
    ]
    console.out("\n".join(lines), highlight=False)


def histogram(lengths: Tensor, rows: int = 10, width: int = 40) -> str:
    """Draw counts of lengths ``[S]`` in at most ``rows`` classes of the same size, as bars of text.

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
    bars = ["█" * round(width * count / max(counts)) for count in counts]
    margin, rows_of_text = max(map(len, names)), zip(names, bars, counts, strict=True)
    return "\n".join(f"{name:>{margin}}  {bar:<{width}} {count:,}" for name, bar, count in rows_of_text)
