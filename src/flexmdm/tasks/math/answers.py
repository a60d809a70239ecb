r"""The final number of a written solution, by the two rules of lm-evaluation-harness for GSM8K.

The flexible rule (``flexible-extract``) takes the last number of the text, the strict one (``strict-match``) the first
that stands behind ``#### ``. Numbers are compared as texts without commas, dollar signs and a final period, so that
1,000 and $1000. are the same but 18 and 18.00 are not. A text is read up to where the harness stops a generation.
"""

from __future__ import annotations

import re

_STOPS = re.compile(r"Question:|</s>|<\|im_end\|>")
_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def extract_answer(text: str, strict: bool = False) -> str | None:
    r"""Return the answer of a solution, normalised, or ``None`` without any.

    >>> extract_answer("48 + 24 = 72 clips.\n#### 72"), extract_answer("She pays $1,234.50.")
    ('72', '1234.50')
    >>> extract_answer("She has 72 clips.", strict=True) is None
    True
    """
    text = _STOPS.split(text, maxsplit=1)[0]
    found = _STRICT.findall(text)[:1] if strict else _FLEXIBLE.findall(text)
    return normalise(found[-1]) if found else None


def normalise(answer: str) -> str:
    r"""Return what two answers are compared by; of a whole solution, what stands behind its last ``#### ``.

    >>> normalise("48 + 24 = 72 clips.\n#### 72"), normalise("$2,125.")
    ('72', '2125')
    """
    return answer.replace(",", "").replace("$", "").rpartition("#### ")[2].strip().removesuffix(".").lower()


def is_correct(generation: str, gold: str, strict: bool = False) -> bool:
    """Return whether a generated solution has the answer of the reference, which is a solution too or just the number.

    >>> is_correct("She makes $18 a day.", "16 - 3 - 4 = 9 eggs a day.\\n#### 18")
    True
    """
    return extract_answer(generation, strict) == normalise(gold)
