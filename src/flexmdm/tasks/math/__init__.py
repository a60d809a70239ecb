"""Word problems whose answer is a number: GSM8K, how its answers are read out of a text, and how they are scored."""

from flexmdm.tasks.math.answers import extract_answer, is_correct
from flexmdm.tasks.math.problems import WordProblem, read_problems
from flexmdm.tasks.math.scoring import Item, MathScore, judged, read_items, score

__all__ = [
    "Item",
    "MathScore",
    "WordProblem",
    "extract_answer",
    "is_correct",
    "judged",
    "read_items",
    "read_problems",
    "score",
]
