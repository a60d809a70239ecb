"""Text before and behind a gap in, what goes between them out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from flexmdm.canvas import Prompt
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.tasks.code.preparation import encode_lines
from flexmdm.tasks.code.task import NUM_SPECIALS, CodeTask
from flexmdm.tasks.pipeline import Answer, Generated, Pipeline, of_each, texts_of
from flexmdm.tasks.text.pipeline import GAP_MARKER, pieces_of

_ROOM = 1 / 8  # of the longest function, for a middle at least: the text around it is shortened if need be
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
        both = [(one, pairs[one.request]) for one in middles]
        whole = [replace(one, text=a + one.text + b, pieces=(a, b)) for one, (a, b) in both]
        return texts_of(whole, isinstance(text, str), full)

    def fill(self, pairs: Sequence[tuple[str, str]], num: int = 1, **options: Any) -> list[Answer]:
        """Write ``num`` middles for each pair of a prefix and a suffix, either of which may be empty."""
        return self.answers(pairs, num, **options)

    def encode(self, request: tuple[str, str]) -> tuple[list[int], list[int]]:
        """Return the tokens before and behind the gap, as in training: each line on its own.

        Where they leave less than an eighth of the longest function to the middle, the lines that are farthest from
        the gap are left out; in training, long functions are seen in windows too.
        """
        self.task.text.refuse_unknown(request)
        before, after = ([line.tolist() for line in lines] for lines in encode_lines(self.task.text, request))
        most = self.task.width - NUM_SPECIALS
        before, after = _nearest(before, after, most - math.ceil(most * _ROOM))
        return sum(before, []), sum(after, [])

    def prompt(self, tokens: tuple[list[int], list[int]], **settings: Any) -> Prompt:
        """Return the prompt with the middle to find."""
        given, width = sum(map(len, tokens)), self.task.width
        if given + NUM_SPECIALS >= width:
            raise Unanswerable(
                f"prefix and suffix leave no room for a middle: they have {given} tokens, "
                f"and this model was trained on at most {width} with {NUM_SPECIALS} special ones"
            )
        return self.task.layout.between(self.task.around(*tokens))

    def decode(
        self, request: tuple[str, str], tokens: tuple[list[int], list[int]], prompt: Prompt, one: Generated
    ) -> Answer:
        """Return the middle alone; prefix, middle and suffix side by side are the program."""
        left, right = self.task.around(*tokens)
        found = self.task.clean(self.task.layout.found(one.sequence[len(left) : len(one.sequence) - len(right)]))
        text = self.task.text.decode(found)
        around = sum(map(len, chain(*encode_lines(self.task.text, request))))
        return one.answer(text, [text], found, prompt, context=sum(map(len, tokens)), around=around)

    def preview(self, num: int, seed: int, **options: Any) -> list[str]:
        """Return some held-out functions with their middles filled."""
        examples = self.task.validation
        index = examples.some(num, seed=seed)
        pairs = [(prefix, suffix) for prefix, _, suffix in examples.triples(index, index)]
        filled = self.fill(pairs, seed=seed, **options)
        return [f"{a[-_SHOWN:]}⟦{one.text}⟧{b[:_SHOWN]}" for (a, b), one in zip(pairs, filled, strict=True)]


def _pair(text: str, gap_marker: str) -> tuple[str, str]:
    pieces = pieces_of(text, gap_marker)
    if len(pieces) != 2:
        raise Unanswerable(
            f"a run on code fills one gap, and there are {len(pieces) - 1}: fill them one after the other"
        )
    return pieces[0], pieces[1]


def _nearest(before: list[list[int]], after: list[list[int]], most: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the lines nearest to the gap, ``most`` tokens of them: the farthest line of the longer side goes first."""
    before, after = list(before), list(after)
    while (left := sum(map(len, before))) + (right := sum(map(len, after))) > most:
        side, farthest = (before, 0) if left >= right else (after, -1)
        if len(side) > 1:
            side.pop(farthest)
        elif side is before:
            before = [before[0][left - max(most - right, most // 2) :]]
        else:
            after = [after[0][: max(most - left, most // 2)]]
    return before, after
