"""From texts to stored token sequences: choosing a tokenizer, encoding in batches, cutting, holding documents out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from rich.progress import Progress

from flexmdm.data.reading import ReadReport, Records, files, numbered
from flexmdm.data.splitting import chunk
from flexmdm.data.stores import StoreWriter, token_dtype
from flexmdm.data.tokenizers import (
    KINDS,
    TextTokenizer,
    UnknownCharacters,
    not_known,
    suggest,
    with_code_point,
    words_of,
)
from flexmdm.randomness import stream, uniform

if TYPE_CHECKING:
    from flexmdm.data.prepared import Preparation

TRAIN, VALIDATION = "train", "validation"
_HELD_OUT = stream("held-out document")
_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 2000, 2_000_000
_SAMPLE = 8_000_000  # characters to learn bpe from; those of a new word count _NEW_WORD times, as they cost that much
_NEW_WORD = 4
_LONG = 1_000_000  # bytes that take a while
_NAMED = 10  # unknown characters


class Watch:
    """A progress bar, the only one, that follows the reading of some sources; a line of text if bars are not shown."""

    def __init__(self, bar: Progress, title: str, sources: Iterable[Records]) -> None:
        self.report = ReadReport()
        self.size = sum(file.stat().st_size for source in sources for file in files(source))  # 0 if unknown
        self.bar = bar
        self._begin(title, self.size or None)

    def _begin(self, title: str, total: int | None) -> None:
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        self.task = self.bar.add_task(title, total=total)
        if self.bar.disable and not 0 < self.size < _LONG:
            size = f" ({self.size / 1e6:,.0f} MB)" if self.size else ""
            self.bar.console.print(f"{title}{size} ...", markup=False, highlight=False, soft_wrap=True)

    @property
    def share(self) -> float:
        """How much has been read; 1 if nobody knows."""
        return min(self.report.bytes / self.size, 1.0) if self.size else 1.0

    def show(self) -> None:
        self.bar.update(self.task, completed=self.report.bytes)

    def wait(self, title: str) -> None:
        """The reading is over; something goes on whose end is unknown."""
        self._begin(title, None)


def choose_tokenizer(preparation: Preparation, bar: Progress) -> TextTokenizer:
    """The tokenizer that the settings ask for, made from the data where need be."""
    kind = preparation.tokenizer
    if kind == "auto":
        _, first = next(_batches(numbered(preparation.source)))
        texts = [text for record in first for text in preparation.texts(record)]
        kind = "bpe" if preparation.vocab_size else suggest(texts)
    if kind not in KINDS:
        return TextTokenizer.named(kind)
    # Characters of held-out documents must have a token too; what bpe learns is from training data.
    sources = preparation.sources if kind == "characters" else [preparation.source]
    watch = Watch(bar, "making the tokenizer", sources)
    records = (record for source in sources for _, record in numbered(source, watch.report))
    texts = (text for record in records for text in preparation.texts(record))
    return TextTokenizer.train(
        kind, _sample(texts, watch) if kind == "bpe" else texts, preparation.vocab_size, watch.show
    )


def _sample(texts: Iterator[str], watch: Watch) -> Iterator[str]:
    """Texts from all over the files; the first ones where the size is unknown."""
    taken, words = 0, set()
    for text in texts:
        if taken < _SAMPLE * watch.share:
            text = text[: _SAMPLE // _NEW_WORD]
            yield text
            new = set(text.split()) - words
            words |= new
            taken += len(text) + (_NEW_WORD - 1) * sum(map(len, new))
        if taken >= _SAMPLE:
            break
    watch.wait("learning the vocabulary")


class Maker:
    """Fills a folder with the stores ``train`` and ``validation``; to be used in a ``with``.

    Attributes:
        counts: see `Prepared`.
        first_problem, first_guess: see `ReadReport`.
        unknown: how often there are characters, or words, that a pretrained tokenizer does not know.
        prompts: whether the sequences begin with prompts.
    """

    prompts: ClassVar[bool] = False

    def __init__(self, preparation: Preparation, tokenizer: TextTokenizer, folder: Path) -> None:
        self.preparation, self.tokenizer = preparation, tokenizer
        dtype = token_dtype(tokenizer.size)
        self.writers = {side: StoreWriter(folder, side, dtype, self.prompts) for side in (TRAIN, VALIDATION)}
        self.counts = Counter(
            documents=0, characters=0, skipped=0, empty=0, split=0, dropped=0, sequences=0, tokens=0, unknown=0
        )
        self.unknown: Counter[str] = Counter()
        self.first_problem: str | None = None
        self.first_guess: str | None = None

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers.values():
            writer.close()

    @property
    def notes(self) -> list[str]:
        """What to say of the data besides the counts."""
        notes = [self.first_guess] if self.first_guess else []
        if self.first_problem:
            notes.append(f"the first bad {self.preparation.source.unit}: {self.first_problem}")
        if self.unknown:
            common = ", ".join(
                f"{with_code_point(one)} {count:,} times" for one, count in self.unknown.most_common(_NAMED)
            )
            more = ", ..." if len(self.unknown) > _NAMED else ""
            notes.append(f"what the tokenizer does not know, the most frequent first: {common}{more}")
        return notes

    def make(self, bar: Progress) -> None:
        """Read and store everything."""
        try:
            self._make(bar)
        except UnknownCharacters as error:
            raise ValueError(self._all_unknown(bar)) from error

    def _make(self, bar: Progress) -> None:
        for source in self.preparation.sources:
            watch = Watch(bar, "tokenizing", [source])
            for numbers, records in _batches(numbered(source, watch.report)):
                self._store(records, self._held_out(source, numbers))
                watch.show()
            self.counts.update(documents=watch.report.documents, skipped=watch.report.skipped)
            self.first_problem = self.first_problem or watch.report.first_problem
            self.first_guess = self.first_guess or watch.report.first_guess
        for side, writer in self.writers.items():
            if not writer.sequences:
                raise ValueError(self._too_small(side))
            self.counts.update(sequences=writer.sequences, tokens=writer.tokens)

    def _held_out(self, source: Records, numbers: list[int]) -> list[bool]:
        """Which documents are for validation; all paragraphs of one are, or none."""
        if self.preparation.held_out_source is not None:
            return [source is self.preparation.held_out_source] * len(numbers)
        return (uniform(self.preparation.seed, _HELD_OUT, torch.tensor(numbers)) < self.preparation.held_out).tolist()

    def _store(self, records: list[Any], held_out: list[bool]) -> None:
        """Encode a batch of records and append its sequences to their side."""
        rows: dict[str, list[tuple]] = {TRAIN: [], VALIDATION: []}
        for made, held in zip(self.sequences(records), held_out, strict=True):
            rows[VALIDATION if held else TRAIN] += made
        for side, writer in self.writers.items():
            if rows[side]:
                writer.append(*map(list, zip(*rows[side], strict=True)))
        self.counts["characters"] += sum(map(len, records))
        self._count_unknown(records)

    def _count_unknown(self, records: list[Any]) -> None:
        if self.tokenizer.takes_any:
            return
        texts = map(self.preparation.texts, records)
        words = [[word for text in of_one for word in words_of(text)] for of_one in texts]
        unknown = self.tokenizer.unknown_words(set().union(*words))
        lost = [[one for word in some if word in unknown for one in unknown[word]] for some in words if unknown]
        self.counts["unknown"] += sum(map(bool, lost))
        self.unknown.update(chain.from_iterable(lost))

    def sequences(self, records: list[Any]) -> Iterator[list[tuple]]:
        """For each record (a text) the sequences that it becomes: what `StoreWriter.append` wants to know of each."""
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

    def _all_unknown(self, bar: Progress) -> str:
        """About the characters without a token in all of the data: the first batch may not have them all."""
        alphabet: set[str] = set()
        for source in self.preparation.sources:
            watch = Watch(bar, "looking for unknown characters", [source])
            for _, records in _batches(numbered(source, watch.report)):
                alphabet.update(*(text for record in records for text in self.preparation.texts(record)))
                watch.show()
        unknown = self.tokenizer.unknown(alphabet)
        return (
            f"{self.preparation.contents} has {not_known(unknown)}; a characters tokenizer knows only the characters "
            f"of the data that it was made from: {self.remedy(unknown)}"
        )

    def remedy(self, unknown: Sequence[str]) -> str:
        """What to do if the data has characters without a token."""
        if self.preparation.tokenizer in ("auto", *KINDS):  # it was made from this data, which is not what it was
            return "put the data back as it was, or train a new run"
        return "start from a run with bpe or bytes, or train without --from"

    def _too_small(self, side: str) -> str:
        settings, counts = self.preparation, self.counts
        nothing_fits = bool(counts["dropped"]) and not any(writer.sequences for writer in self.writers.values())
        problem = "the longest sequence is too short" if nothing_fits else "the data is too small"
        problem += f": of {counts['documents']:,} {settings.noun}(s) none is left to "
        problem += "train on" if side == TRAIN else "validate on"
        if counts["dropped"] or counts["empty"]:
            problem += f" ({counts['dropped']:,} longer than {settings.max_length} tokens, {counts['empty']:,} empty)"
        if settings.held_out_source is None and not nothing_fits:
            problem += f", with a share of {settings.held_out:g} of the {settings.record}s held out"
        if counts["skipped"]:
            unit = settings.source.unit
            problem += f"; {counts['skipped']:,} bad {unit}(s) were skipped, the first bad {unit}: {self.first_problem}"
        return f"{problem}. {' or '.join(self._advice(nothing_fits))}"

    def _advice(self, nothing_fits: bool) -> list[str]:
        """What to do if no sequence is left."""
        settings, advice = self.preparation, []
        if not nothing_fits:
            advice.append("give more data")
            if settings.held_out_source is None:
                advice.append("hold out another share (--held-out)")
        if self.counts["dropped"]:
            advice.append("allow longer sequences (--max-length)")
            if settings.long != type(settings).long:  # they are not dropped unless somebody asks for it
                advice.append(f"split long {settings.noun}s (--long split)")
        return [advice[0].capitalize(), *advice[1:]]


def _batches(records: Iterator[tuple[int, Any]]) -> Iterator[tuple[list[int], list[Any]]]:
    numbers, batch, characters = [], [], 0
    for number, record in records:
        numbers.append(number)
        batch.append(record)
        characters += len(record)
        if len(batch) >= _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield numbers, batch
            numbers, batch, characters = [], [], 0
    if batch:
        yield numbers, batch
