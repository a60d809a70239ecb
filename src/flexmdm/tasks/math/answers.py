r"""The number that a written solution ends with.

Where it is looked for, in this order; what comes first and holds a number decides:

1. after ``####``, as GSM8K writes it: the first such line that begins with a number, so not a heading;
2. in the last ``\boxed{}``;
3. after "the answer is" and its like, the last time it is said;
4. the last number of the text.

A text that goes on with another question is read up to there. Numbers are compared exactly, so 18 and $18.00 are the
same and 0.33 is not 1/3. A percent sign is a unit: 50% is 50, as in GSM8K.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

_SPACES = r"[ \t]*"
_COMMAS = r"[0-9]{1,3}(?:,[0-9]{3}){1,10}|[0-9]{1,2}(?:,[0-9]{2}){1,10},[0-9]{3}"  # 123,456 or 1,23,456; not any longer
_DIGITS = rf"(?:(?:{_COMMAS})(?![0-9])|[0-9]+)"
_PLAIN = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{{1,2}}(?![0-9]))?"
_RATIO = rf"{_DIGITS}{_SPACES}/{_SPACES}{_DIGITS}(?![0-9.])"
_NUMBER = re.compile(
    r"(?<![\w.^)\]}])(?<![0-9] )(?<![A-Za-z]-)(?P<before>-)?"  # a minus that joins two things is no sign
    rf"(?P<currency>(?:[$€£¥₹]|USD|US\$|Rs\.?){_SPACES})?(?P<after>-)?"
    rf"(?<![A-Za-z_^.])(?:(?P<whole>{_DIGITS})[ \t]+(?P<part>{_RATIO})|(?P<ratio>{_RATIO})|(?P<plain>{_PLAIN}))"
    rf"(?:{_SPACES}(?P<scale>hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
_GROUPS = re.compile(r"(?<![\w.,])(?<![0-9] )[0-9]{1,3}(?: [0-9]{3})+(?![0-9]| ?/)")  # 12 345
_JUST_GROUPS = re.compile(
    rf"[^\w\n]{{0,20}}(?:USD|US|Rs)?[^\w\n]{{0,20}}{_GROUPS.pattern}(?:\.[0-9]+)?(?:[^\w\n]+(?:[A-Za-z]+\W*)?)?"
)
_CLEAR_GROUPS = re.compile(  # with a currency, or at the end; else they may be "3 500 ml bottles"
    rf"(?<=[$€£¥₹]){_GROUPS.pattern}|{_GROUPS.pattern}(?=(?:\.[0-9]+)?[^\w\n]*$)"
)
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LONGEST_NUMBER = 100
_FEW = 3

_NEXT_QUESTION = re.compile(r"\n[ \t]*(?:#+[ \t]*|\*\*)?(?:Q|Question|Problem)\s*\d*\s*(?:\*\*)?:", re.IGNORECASE)
_MARKER = re.compile(r"####(?!#)[ \t:]*(.*)")
_LIST_NUMBER = re.compile(r"\W{0,20}[0-9]{1,3}[.):](?:\s+\S|\s*\*)")  # "1. First, ..." after #### is a heading
_SAID = re.compile(
    r"\banswer\b[^\n.:=0-9]{0,40}?(?P<how>\bis\b|\bwould be\b|\bequals\b|:|=)[*_\s]*(?:[:=])?", re.IGNORECASE
)
_JUST_A_NUMBER = re.compile(r"[^\w\n]*" + _NUMBER.pattern + r"[^0-9\n=+*/]*(?:\n|$)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?:\s|$)")
_EXPLAINED = re.compile(  # "12, as each has 4*3=12", "12 because x=3", "12. Each has 4*3=12", "12 (x = 3)"
    r"[,;:!?]\s+(?!plus\b|minus\b|times\b)[A-Za-z]|\.\s+[A-Z]|\([^()=≈]*[=≈]"
    r"|\b(?i:because|since|where|when|if|(?<!many )(?<!much )as(?! many\b| much\b))\b"
)
_GOES_ON = re.compile(r"[^0-9\n]{0,20}?[-+*/÷][ \t]*[($0-9]")  # what follows a number that is a part of a calculation


def extract_answer(text: str) -> str | None:
    r"""The answer of a solution in canonical form: an integer, a decimal, or else a fraction; ``None`` without any.

    >>> extract_answer("48 + 24 = 72 clips.\n#### 72")
    '72'
    >>> extract_answer(r"So she pays \boxed{\$1{,}234.50}."), extract_answer("The answer is 3/4 of a cup.")
    ('1234.5', '0.75')
    >>> extract_answer("I do not know.") is None
    True
    """
    text = _plain(_NEXT_QUESTION.split(text.strip(), maxsplit=1)[0])
    for candidates in (_marked(text), _boxed(text), _said(text)):
        for candidate in candidates:
            number = _result(candidate)
            if number is not None:
                return _canonical(number)
    number = _first(reversed(list(_NUMBER.finditer(_CLEAR_GROUPS.sub(_with_commas, text)))))
    return None if number is None else _canonical(number)


def is_correct(generation: str, gold: str) -> bool:
    """Whether a generated solution has the answer of the reference, which is a solution too or just the number.

    >>> is_correct("She makes $18.00 a day.", "16 - 3 - 4 = 9 eggs a day.\\n#### 18")
    True
    """
    wanted = extract_answer(gold)
    if wanted is None:
        raise ValueError(f"the reference {gold!r} has no number to compare with")
    return extract_answer(generation) == wanted


# Where the answer stands ----------------------------------------------------------------------------------------------


def _marked(text: str) -> list[str]:
    lines = [line for line in _MARKER.findall(text) if not _LIST_NUMBER.match(line)]
    said = [_SAID.sub("", line, count=1) for line in lines]
    return [line for line in said if re.match(r"[^\w\n]{0,20}(?:[A-Za-z]\s?=|USD|US|Rs)?[^\w\n]{0,20}[0-9]", line)]


def _boxed(text: str) -> list[str]:
    found = []
    for match in _last(re.finditer(r"\\(?:boxed|fbox)\s*", text)):
        rest = text[match.end() :]
        found.append(_in_braces(rest) if rest.startswith("{") else rest.split("\n")[0])
    return found


def _in_braces(text: str) -> str:
    """From an opening brace to the one that closes it, or to the end."""
    depth = 0
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[1:place]
    return text[1:]


def _said(text: str) -> list[str]:
    """What follows "the answer is"; after "Answer:" a solution may begin, so there only a number alone counts."""
    found = []
    for match in _last(_SAID.finditer(text)):
        rest = text[match.end() :].lstrip()
        line = rest.split("\n")[0]
        if match["how"] not in (":", "="):
            found += [_SENTENCE_END.split(line, maxsplit=1)[0], line]
        elif _JUST_A_NUMBER.match(_joined(line)):
            found.append(line)
    return found


def _last(matches: Iterator[re.Match[str]]) -> list[re.Match[str]]:
    """The last few, from the end."""
    return list(matches)[: -_FEW - 1 : -1]


def _result(text: str) -> Fraction | None:
    """The number of a short statement: the first behind the last equals sign, or the first of all.

    The latter if there a calculation stands behind the sign: "72 = 48 + 24". What explains the number is left out.
    """
    first = _first_match(text)
    if first is None:
        return None
    if explained := _EXPLAINED.search(text, first.end()):
        text = text[: explained.start()]
    *before, last = [_joined(part) for part in re.split(r"[=≈]", text)]
    result = _first_match(last)
    if result is None or (_GOES_ON.match(last, result.end()) and _NUMBER.search(" ".join(before))):
        return _first(_NUMBER.finditer(" = ".join([*before, last])))
    return _value(result)


def _first_match(text: str) -> re.Match[str] | None:
    return next((match for match in _NUMBER.finditer(text) if _value(match) is not None), None)


def _joined(text: str) -> str:
    """12 345 as one number if there is nothing else but a unit, as "3 500 ml bottles" are 3."""
    return _GROUPS.sub(_with_commas, text) if _JUST_GROUPS.fullmatch(text) else text


def _with_commas(match: re.Match[str]) -> str:
    return match[0].replace(" ", ",")


# Numbers --------------------------------------------------------------------------------------------------------------

_MINUS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"  # hyphens, dashes as long as a digit, and minus signs
_FULL_WIDTH = {0xFF00 + ord(sign) - 0x20: sign for sign in "0123456789.,%$/+=#"}
_TIMES = "\u00b7\u00d7\u2217\u2219\u22c5"  # · × and their like
_SAME = {ord(sign): "-" for sign in _MINUS} | {ord(sign): "*" for sign in _TIMES} | {0x2044: "/"} | _FULL_WIDTH
_MULTIPLIED = re.compile(  # "3x4", "3 times 4", "3 boxes x $4"; but x is a name in "x2" and in "2x-4"
    r"(?<=[0-9])[ \t]*(?:x|times)[ \t]*(?=[($\\.]{0,3}[0-9])"
    r"|(?<=[\w)*])[ \t]+(?:x|times)[ \t]+(?=[-($\\.]{0,3}[0-9])",
    re.IGNORECASE,
)
_THIN = "\u00a0\u2009\u202f"  # spaces that do not break, or are thin
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8"}


def _plain(text: str) -> str:
    """The text with numbers written plainly: LaTeX and typography gone, exponents of units gone."""
    text = text.translate(_SAME)
    for sign, ratio in _VULGAR.items():
        text = text.replace(sign, f" {ratio}")
    text = re.sub(r"((?:####|[={])[ \t$]*-)[ \t]+(?=[$€£¥₹]?[.0-9])", r"\1", text)  # "#### - 5": nothing to take 5 from
    text = re.sub(r"(?<=[0-9])\s?(?=\\[dtc]?frac)", " ", text)  # a mixed number
    text = re.sub(r"\\[dtc]?frac\s?\{\s?(-?[0-9,.]+)\s?\}\s?\{\s?([0-9,.]+)\s?\}", r"\1/\2", text)
    text = re.sub(r"\\[dtc]?frac\s?([0-9])\s?([0-9])", r"\1/\2", text)
    text = re.sub(rf"(?<=[0-9])(?:\{{,\}}|\\,|\\!,|,\\!|[{_THIN}'_])(?=[0-9]{{3}}(?![0-9]| ?/))", ",", text)
    text = re.sub(rf"[{_THIN}]", " ", text)
    text = _GROUPS.sub(lambda match: _with_commas(match) if " 0" in match[0] else match[0], text)  # 000 is no number
    text = re.sub(r"\\(?:times|cdot|ast)(?![A-Za-z])", "*", text)
    text = _MULTIPLIED.sub(" * ", text)
    text = re.sub(r"(?<=[0-9])\s?\*\s*10\s*\^\s*\{?(-?[0-9]{1,2})\}?", r"e\1", text)
    text = re.sub(r"\^\s*(?:\{[^{}]*\}|[0-9]+)", "", text)
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|left|right|displaystyle)\b", " ", text)
    return re.sub(r"\\([$%(),\[\];!{}: ])", r" \1", text).replace("**", "")


def _first(matches: Iterable[re.Match[str]]) -> Fraction | None:
    """The first that is a number."""
    return next((value for value in map(_value, matches) if value is not None), None)


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > _LONGEST_NUMBER:
        return None
    try:
        size = sum(_fraction(match[name]) for name in ("whole", "part", "ratio", "plain") if match[name])
    except ZeroDivisionError:
        return None
    size *= _SCALES[match["scale"].lower()] if match["scale"] else 1
    return Fraction(-size if match["before"] or match["after"] else size)


def _fraction(text: str) -> Fraction:
    above, _, below = re.sub(r"[,\s]", "", text).partition("/")
    return Fraction(above) / Fraction(below or 1)


def _canonical(number: Fraction) -> str:
    twos_and_fives = number.denominator
    for prime in (2, 5):
        while twos_and_fives % prime == 0:
            twos_and_fives //= prime
    if number.denominator == 1 or twos_and_fives != 1:
        return str(number)
    digits = 0
    while (number * 10**digits).denominator != 1:
        digits += 1
    whole = str(abs(int(number * 10**digits))).rjust(digits + 1, "0")
    return f"{'-' if number < 0 else ''}{whole[:-digits]}.{whole[-digits:]}"
