"""A job: what the lines of a file are answered with, shard by shard, the same wherever a shard is answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from flexmdm.data.tokenizers import Unanswerable
from flexmdm.generation.defaults import DEFAULTS
from flexmdm.tasks.loading import load_named
from flexmdm.tasks.registry import PRETRAINED

_SEQUENCES = 512  # drawn at a time, by one process: what is lost when it is interrupted
_LONGEST = 2**22  # bytes of a line
_BLOCK = 2**20  # bytes read at a time
_SAMPLED = 64  # places of a file of weights that its digest looks at
JSON = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Shard:
    """Consecutive lines that are answered together; ``offset`` is where the first of them begins in the file."""

    first: int
    size: int
    offset: int = 0


@dataclass(frozen=True)
class Job:
    """Say how lines are answered; it can be sent to other processes.

    Attributes:
        method: ``sample``, ``complete`` or ``infill``, of the pipeline of the run.
        run, pretrained, device: of `flexmdm.tasks.loading.load_named`.
        file: the lines; each a JSON object with a ``prompt`` if it is called .jsonl, else a text. ``None`` for samples.
        num: answers to each line, or how many samples there are.
        options: of the method; they are kept as JSON.
    """

    method: str
    run: str | None = None
    pretrained: str | None = None
    device: str | None = None
    file: str | None = None
    num: int = 1
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def at_a_time(self) -> int:
        """Return the lines of a shard, which the answers do not depend on."""
        if self.file is None:
            return _SEQUENCES
        fills = self.method == "infill" and self.options.get("best") is None
        return max(_SEQUENCES // (self.num * (DEFAULTS["filling"].draws if fills else 1)), 1)

    def made_with(self) -> dict[str, Any]:
        """Return whatever decides the answers, with the number of lines."""
        lines, digest = (self.num, "") if self.file is None else _counted(Path(self.file))
        settings = {**asdict(self), "run": None, "file": self.file and Path(self.file).name}
        return {**settings, "lines": lines, "digest": digest, "weights": _fingerprint(self.run, self.pretrained)}

    def shards(self, lines: int, begin: int = 0) -> Iterator[Shard]:
        """Yield the shards of so many lines, from the line ``begin`` on, at which one begins."""
        size = self.at_a_time
        if self.file is None:
            yield from (Shard(first, min(size, lines - first)) for first in range(begin, lines, size))
            return
        with open(self.file, "rb") as file:
            for first in range(0, lines, size):
                shard = Shard(first, min(size, lines - first), file.tell())
                for _ in range(shard.size):
                    _next_line(file)
                if first >= begin:
                    yield shard


class Answerer:
    """A job with its model loaded: answers shards."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def pipeline(self) -> Any:
        run = None if self.job.run is None else Path(self.job.run)
        task, model = load_named(run, self.job.pretrained, self.job.device)
        pipeline = task.pipeline(model)
        if "prompt" in self.job.options and not pipeline.takes_prompts:
            raise ValueError(f"--prompt is for runs on prompts and answers, and {self.job.run} is none: leave it out")
        return pipeline

    def __call__(self, shard: Shard) -> list[dict[str, Any]]:
        """Return a line of answers for each line of a shard; of one that cannot be answered, why."""
        job = self.job
        numbers = range(shard.first, shard.first + shard.size)
        if job.file is None:
            answers = self.pipeline.sample(
                shard.size, full=True, seed=job.seed, first_sequence=shard.first, **job.options
            )
            return [self.pipeline.row(answer) for answer in answers]
        made: dict[int, dict[str, Any]] = {}  # what is known of each line by its number
        texts: dict[int, str] = {}
        for number, line in zip(numbers, _lines(Path(job.file), shard), strict=True):
            try:
                made[number] = _read(line, Path(job.file).suffix in JSON)
                texts[number] = _prompt_of(made[number])
            except Unanswerable as error:
                made[number] = _refused(number, error, made.get(number, {}))
        for number, error in self._refusals(texts).items():
            made[number] = _refused(number, error, made[number])
            texts.pop(number)
        answered = list(texts)
        for number in answered:
            made[number]["answers"] = []
        for answer in self._ask(list(texts.values()), job.num, first_sequence=answered):
            made[answered[answer.request]]["answers"].append(self.pipeline.row(answer))
        return [made[number] for number in numbers]

    def _ask(self, texts: list[str], num: int, **options: Any) -> list[Any]:
        if not texts:
            return []
        method = getattr(self.pipeline, self.job.method)
        return method(texts, num, full=True, seed=self.job.seed, **self.job.options, **options)

    def _refusals(self, texts: dict[int, str]) -> dict[int, Unanswerable]:
        """Return why texts cannot be answered, by the number of their lines."""
        try:
            self._ask(list(texts.values()), 0)
            return {}
        except Unanswerable as error:
            if len(texts) == 1:
                return dict.fromkeys(texts, error)
        items, half = list(texts.items()), len(texts) // 2
        return self._refusals(dict(items[:half])) | self._refusals(dict(items[half:]))


def _counted(file: Path) -> tuple[int, str]:
    """Return the number of lines of a file, and its digest."""
    digest, lines, last = hashlib.sha256(), 0, b"\n"
    with open(file, "rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n"), digest.hexdigest()[:16]


def _fingerprint(run: str | None, pretrained: str | None) -> str:
    """Return what tells a run from others without loading it: a digest of its files, of large ones of some places."""
    folder = PRETRAINED / pretrained if pretrained is not None else Path(run or "")
    if not folder.is_dir():
        return str(run)
    digest = hashlib.sha256()
    for file in sorted(one for one in folder.iterdir() if one.suffix in (".json", ".safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode())
        with open(file, "rb") as content:
            for place in range(_SAMPLED):
                content.seek(size * place // _SAMPLED)
                digest.update(content.read(_BLOCK // _SAMPLED))
    return digest.hexdigest()[:16]


def _next_line(file: IO[bytes]) -> bytes | None:
    """Return the next line without its end; ``None`` for one that is too long, of which no more is kept."""
    line = file.readline(_LONGEST + 2)
    whole = len(line.rstrip(b"\r\n")) <= _LONGEST
    rest = line
    while not whole and rest and not rest.endswith(b"\n"):
        rest = file.readline(_BLOCK)
    return line.rstrip(b"\r\n") if whole else None


def _lines(file: Path, shard: Shard) -> Iterator[bytes | None]:
    with open(file, "rb") as content:
        content.seek(shard.offset)
        for number in range(shard.size):
            line = _next_line(content)
            yield line.removeprefix(b"\xef\xbb\xbf") if line and shard.first + number == 0 else line


def _read(line: bytes | None, as_json: bool) -> dict[str, Any]:
    """Return what a line says, with its ``prompt`` first.

    >>> _read(b'{"id": 7, "prompt": "a ___"}', True), _read(b"a ___", False)
    ({'prompt': 'a ___', 'id': 7}, {'prompt': 'a ___'})
    """
    if line is None:
        raise Unanswerable(f"the line is too long: it has more than {_LONGEST:,} bytes")
    try:
        text = line.decode()
        found = json.loads(text) if as_json else text
    except UnicodeDecodeError as error:
        raise Unanswerable(f"the line is not UTF-8 ({error}): save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise Unanswerable(f"the line is not JSON ({error})") from error
    if isinstance(found, str):
        return {"prompt": found}
    if not isinstance(found, dict):
        raise Unanswerable(f"a line is an object with a prompt, or a text; this is a {type(found).__name__}")
    return {"prompt": found["prompt"], **found} if "prompt" in found else found


def _prompt_of(found: dict[str, Any]) -> str:
    if "prompt" not in found:
        raise Unanswerable(f'there is no "prompt" in the line; it has {", ".join(found) or "nothing"}')
    if not isinstance(found["prompt"], str):
        raise Unanswerable(f"the prompt must be a text, and this is a {type(found['prompt']).__name__}")
    if not found["prompt"].strip():
        raise Unanswerable("the prompt is empty")
    return found["prompt"]


def _refused(number: int, error: Unanswerable, found: dict[str, Any]) -> dict[str, Any]:
    return {"error": str(error), "line": number + 1, **{k: v for k, v in found.items() if k not in ("error", "line")}}
