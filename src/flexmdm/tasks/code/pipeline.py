"""Text before and behind a gap in, what goes between them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from flexmdm.canvas import Prompt
from flexmdm.tasks.code.preparation import encode_lines
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.pipeline import Answer, Callback, Generated, Pipeline, of_each, texts_of
from flexmdm.tasks.text.pipeline import GAP_MARKER, pieces_of

_SHOWN = 80  # characters to either side of the gap in a preview


@dataclass(frozen=True)
class CodePipeline(Pipeline[CodeTask]):
    """A model that fills gaps in programs, with its tokenizer.

    Load one by `from_pretrained`, then ``pipeline.fill([("def double(x):\\n", "    return y\\n")])``. It takes options
    of `flexmdm.generate`; for HumanEval-infilling the paper has, for both models, the same as for GSM8K:
    ``sampler="adaptive", confidence="top_prob", window=(5.0, 64), temperature=0.0``.
    """

    task_name: ClassVar[str] = "code"
    uses: ClassVar[str] = "flexmdm infill RUN --file program.py, with ___ where the gap is"
    whole_files: ClassVar[bool] = True

    def infill(
        self,
        text: str | Sequence[str],
        num: int = 1,
        gap_marker: str = GAP_MARKER,
        *,
        full: bool = False,
        minimum: int = 0,
        maximum: int | None = None,
        **options: Any,
    ) -> Any:
        """Fill the one gap of a program (or of several): the program, and the middle alone among its ``gaps``."""
        if minimum or maximum is not None:
            raise ValueError("--min and --max are for runs on text: a run on code has learned how long a middle is")
        texts = [text] if isinstance(text, str) else list(text)
        pairs = of_each(texts, lambda one: _pair(one, gap_marker), options.get("names") or ())
        middles = self.answers(pairs, num, **options)
        around = [pair for pair in pairs for _ in range(num)]
        whole = [
            replace(one, text=a + one.text + b, pieces=(a, b)) for one, (a, b) in zip(middles, around, strict=True)
        ]
        return texts_of(whole, isinstance(text, str), full)

    def fill(
        self,
        pairs: Sequence[tuple[str, str]],
        num: int = 1,
        trace: bool = False,
        seed: int = 0,
        names: Sequence[str] = (),
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Answer]:
        """Write ``num`` middles for each pair of a prefix and a suffix, either of which may be empty."""
        return self.answers(pairs, num, trace, seed, names, callback, **options)

    def encode(self, request: tuple[str, str]) -> tuple[list[int], list[int]]:
        """Return the tokens before and behind the gap."""
        return self.task.encode(*request)

    def prompt(self, tokens: tuple[list[int], list[int]], **settings: Any) -> Prompt:
        """Return the prompt with the middle to find."""
        return self.task.prompt(*tokens)

    def decode(
        self, request: tuple[str, str], tokens: tuple[list[int], list[int]], prompt: Prompt, one: Generated
    ) -> Answer:
        """Return the middle alone; prefix, middle and suffix side by side are the program."""
        prefix, suffix = tokens
        found = self.task.middle(one.sequence, prefix, suffix)
        text = self.task.text.decode(found)
        around = sum(map(len, chain(*encode_lines(self.task.text, request))))
        measured = one.evaluations, one.hit_max_length, prompt, one.events
        return Answer(text, (text,), tuple(found), *measured, len(prefix) + len(suffix), around)

    def preview(self, num: int, seed: int, **options: Any) -> list[str]:
        """Return some held-out functions with their middles filled."""
        examples = self.task.validation
        index = examples.some(num, seed=seed)
        pairs = [(prefix, suffix) for prefix, _, suffix in examples.triples(index, index)]
        filled = self.fill(pairs, seed=seed, **options)
        return [
            f"{prefix[-_SHOWN:]}⟦{one.text}⟧{suffix[:_SHOWN]}"
            for (prefix, suffix), one in zip(pairs, filled, strict=True)
        ]


def _pair(text: str, gap_marker: str) -> tuple[str, str]:
    pieces = pieces_of(text, gap_marker)
    if len(pieces) != 2:
        raise ValueError(f"a run on code fills one gap, and there are {len(pieces) - 1}: fill them one after the other")
    return pieces[0], pieces[1]
