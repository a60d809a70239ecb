"""From texts to stored token sequences: choosing a tokenizer, encoding in batches, cutting, holding documents out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from flexmdm.data.reading import ReadReport, RecordSource, files, numbered
from flexmdm.data.splitting import chunk
from flexmdm.data.stores import StoreWriter, token_dtype
from flexmdm.data.tokenizers import KINDS, TextTokenizer, UnknownCharacters, first_few, suggest, unknown_characters
from flexmdm.progress import ProgressBar
from flexmdm.randomness import stream, uniform

TRAIN, VALIDATION = "train", "validation"
_HELD_OUT = stream("held-out document")
_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 2000, 2_000_000
_SAMPLE = 8_000_000  # characters to learn bpe from; those of a new word count _NEW_WORD times, as they cost that much
_NEW_WORD = 4
_LONG = 1_000_000  # bytes that take a while


@dataclass(frozen=True)
class Preparation:
    """The data, and how its texts become sequences.

    The tokenizer is ``auto``, ``characters``, ``bytes``, ``bpe`` or a folder, file or name of a Hugging Face tokenizer.
    """

    source: RecordSource
    tokenizer: str = "auto"
    vocab_size: int | None = None  # of bpe
    max_length: int = 256  # the most tokens of a sequence
    long: Literal["split", "drop"] = "split"  # what becomes of longer documents
    held_out: float = 0.05  # the share of documents to validate on
    held_out_source: RecordSource | None = None  # validate on these documents instead
    seed: int = 0  # of which documents are held out

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
    def sources(self) -> list[RecordSource]:
        return [self.source] if self.held_out_source is None else [self.source, self.held_out_source]

    @property
    def contents(self) -> str:
        """Return what the texts are called in an error."""
        return "the data"

    def texts(self, record: Any) -> list[str]:
        """Return the texts of a record, which a tokenizer learns from or has to know."""
        return [record]

    def encoder(self, tokenizer: TextTokenizer, folder: Path) -> Encoder:
        """Return what turns the records into sequences in a folder."""
        return Encoder(self, tokenizer, folder)


class ReadingProgress:
    """The reading of some sources, which a progress bar follows; a line of text where no bar is shown."""

    def __init__(self, bar: ProgressBar, description: str, sources: Iterable[RecordSource]) -> None:
        self.bar, self.report = bar, ReadReport()
        self.size = sum(file.stat().st_size for source in sources for file in files(source))  # 0 if unknown
        self.begin(description, self.size or None)

    def begin(self, description: str, total: int | None = None) -> None:
        """Show what is being done now; without a total nobody knows how long it takes."""
        self.bar.restart(description, total)
        progress = self.bar.progress
        if progress.disable and not 0 < self.size < _LONG:
            size = f" ({self.size / 1e6:,.0f} MB)" if self.size else ""
            progress.console.out(f"{description}{size} ...", highlight=False)

    def records(self, source: RecordSource) -> Iterator[tuple[int, Any]]:
        """Yield what `numbered` does, and show how much of it has been read."""
        for count, record in enumerate(numbered(source, self.report)):
            if count % 1000 == 0:
                self.bar.update(self.report.bytes)
            yield record
        self.bar.update(self.report.bytes)


def choose_tokenizer(preparation: Preparation, bar: ProgressBar) -> TextTokenizer:
    """Return the tokenizer that the settings ask for, made from the data where need be."""
    kind = preparation.tokenizer
    if kind == "auto":
        first = next(_batches(numbered(preparation.source)))
        texts = [text for _, record in first for text in preparation.texts(record)]
        kind = "bpe" if preparation.vocab_size else suggest(texts)
    if kind not in KINDS:
        return TextTokenizer.named(kind)
    # Characters of held-out documents must have a token too; what bpe learns is from training data.
    sources = preparation.sources if kind == "characters" else [preparation.source]
    progress = ReadingProgress(bar, "making the tokenizer", sources)
    texts = (text for source in sources for _, record in progress.records(source) for text in preparation.texts(record))
    return TextTokenizer.train(kind, _sample(texts, progress) if kind == "bpe" else texts, preparation.vocab_size)


def _sample(texts: Iterator[str], progress: ReadingProgress) -> Iterator[str]:
    """Yield texts from all over the files; the first ones where the size is unknown."""
    taken, words = 0, set()
    for text in texts:
        if taken < _SAMPLE * (progress.report.bytes / progress.size if progress.size else 1):
            text = text[: _SAMPLE // _NEW_WORD]
            yield text
            new = set(text.split()) - words
            words |= new
            taken += len(text) + (_NEW_WORD - 1) * sum(map(len, new))
        if taken >= _SAMPLE:
            break
    progress.begin("learning the vocabulary")


def _batches(records: Iterator[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    batch, characters = [], 0
    for number, record in records:
        batch.append((number, record))
        characters += len(record)
        if len(batch) >= _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Encoder:
    """Write the sequences of all records to the stores ``train`` and ``validation``, and count (see `Prepared`)."""

    def __init__(self, preparation: Preparation, tokenizer: TextTokenizer, folder: Path) -> None:
        self.preparation, self.tokenizer = preparation, tokenizer
        self.writers = {side: StoreWriter(folder, side, token_dtype(tokenizer.size)) for side in (TRAIN, VALIDATION)}
        self.counts = Counter(
            documents=0, characters=0, skipped=0, empty=0, split=0, dropped=0, sequences=0, tokens=0, unknown=0
        )
        self.unknown: Counter[str] = Counter()  # characters, or words, that a pretrained tokenizer does not know
        self.notes: list[str] = []  # what to say of the data besides the counts

    def encode_all(self, bar: ProgressBar) -> None:
        progress = ReadingProgress(bar, "tokenizing", self.preparation.sources)
        try:
            for source in self.preparation.sources:
                for batch in _batches(progress.records(source)):
                    self._store(source, *map(list, zip(*batch, strict=True)))
        except UnknownCharacters as error:
            raise ValueError(self._all_unknown(bar)) from error
        report = progress.report
        self.counts.update(documents=report.documents, skipped=report.skipped)
        for side, writer in self.writers.items():
            if not writer.sequences:
                raise ValueError(self._too_small(side, report))
            self.counts.update(sequences=writer.sequences, tokens=writer.tokens)
        if report.first_guess:
            self.notes.append(report.first_guess)
        if report.first_problem:
            self.notes.append(f"the first bad {self.preparation.source.unit}: {report.first_problem}")
        if self.unknown:
            frequent = first_few([one for one, _ in self.unknown.most_common()], self.unknown)
            self.notes.append(f"what the tokenizer does not know, the most frequent first: {frequent}")

    def _store(self, source: RecordSource, numbers: list[int], records: list[Any]) -> None:
        """Encode a batch of records and append its sequences to their side; all paragraphs of one are on the same."""
        held_out = [source is self.preparation.held_out_source] * len(numbers)
        if self.preparation.held_out_source is None:
            chance = uniform(self.preparation.seed, _HELD_OUT, torch.tensor(numbers))
            held_out = (chance < self.preparation.held_out).tolist()
        rows: dict[str, list[tuple]] = {side: [] for side in self.writers}
        for sequences, held in zip(self.sequences(records), held_out, strict=True):
            rows[VALIDATION if held else TRAIN] += sequences
        for side, writer in self.writers.items():
            if rows[side]:
                writer.append(*map(list, zip(*rows[side], strict=True)))
        self.counts["characters"] += sum(map(len, records))
        if not self.tokenizer.takes_any:
            words = [[word for text in self.preparation.texts(one) for word in text.split(" ")] for one in records]
            unknown = self.tokenizer.unknown_words(set().union(*words))
            lost = [[one for word in some for one in unknown.get(word, ())] for some in words]
            self.counts["unknown"] += sum(map(bool, lost))
            self.unknown.update(chain.from_iterable(lost))

    def sequences(self, records: list[Any]) -> Iterator[list[tuple]]:
        """Yield for each record (a text) its sequences, each with what else `StoreWriter.append` takes."""
        for text, ids in zip(records, self.tokenizer.encode_arrays(records), strict=True):
            if not len(ids) or text.isspace():
                self.counts["empty"] += 1
                yield []
            elif len(ids) <= self.preparation.max_length:
                yield [(ids, len(text))]
            elif self.preparation.long == "drop":
                self.counts["dropped"] += 1
                yield []
            else:
                self.counts["split"] += 1
                pieces = chunk(ids, self.preparation.max_length, self.tokenizer.delimiters)
                yield [(piece, int(self.tokenizer.characters[piece].sum())) for piece in pieces]

    def _all_unknown(self, bar: ProgressBar) -> str:
        """Name the characters without a token in all of the data: the first batch may not have them all."""
        sources, texts = self.preparation.sources, self.preparation.texts
        progress = ReadingProgress(bar, "looking for unknown characters", sources)
        alphabet = {c for source in sources for _, one in progress.records(source) for text in texts(one) for c in text}
        unknown = sorted(alphabet - self.tokenizer.alphabet)
        return (
            f"{self.preparation.contents} has {unknown_characters(unknown)}; a characters tokenizer knows only the "
            f"characters of the data that it was made from: {self.advice_on_unknown(unknown)}"
        )

    def advice_on_unknown(self, unknown: Sequence[str]) -> str:
        """Return what to do if the data has characters without a token."""
        if self.preparation.tokenizer in ("auto", *KINDS):  # it was made from this data, which is not what it was
            return "put the data back as it was, or train a new run"
        return "start from a run with bpe or bytes, or train without --from"

    def _too_small(self, side: str, report: ReadReport) -> str:
        """Say why no sequence is left on one side, and what to do."""
        settings, counts, unit = self.preparation, self.counts, self.preparation.source.unit
        nothing_fits = bool(counts["dropped"]) and not any(writer.sequences for writer in self.writers.values())
        problem = "the longest sequence is too short" if nothing_fits else "the data is too small"
        use = "train" if side == TRAIN else "validate"
        problem += f": of {counts['documents']:,} {settings.noun}(s) none is left to {use} on"
        if counts["dropped"] or counts["empty"]:
            problem += f" ({counts['dropped']:,} longer than {settings.max_length} tokens, {counts['empty']:,} empty)"
        advice = [] if nothing_fits else ["give more data"]
        if settings.held_out_source is None and not nothing_fits:
            problem += f", with a share of {settings.held_out:g} of the {settings.record}s held out"
            advice.append("hold out another share (--held-out)")
        if counts["skipped"]:
            problem += (
                f"; {counts['skipped']:,} bad {unit}(s) were skipped, the first bad {unit}: {report.first_problem}"
            )
        if counts["dropped"]:
            advice.append("allow longer sequences (--max-length)")
            if settings.long != type(settings).long:  # they are not dropped unless somebody asks for it
                advice.append(f"split long {settings.noun}s (--long split)")
        advice[0] = advice[0].capitalize()
        return f"{problem}. {' or '.join(advice)}"
