"""Filling gaps in Python functions: the HumanEval-infilling problems, and scoring by running their tests."""

from flexmdm.tasks.code.problems import SPLITS, Problem, Sample, read_problems, read_samples
from flexmdm.tasks.code.scoring import CodeScore, Item, pass_at_k, score

__all__ = [
    "SPLITS",
    "CodeScore",
    "Item",
    "Problem",
    "Sample",
    "pass_at_k",
    "read_problems",
    "read_samples",
    "score",
]
