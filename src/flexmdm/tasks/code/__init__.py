"""Filling gaps in Python functions: training, the HumanEval-infilling problems, and scoring by running their tests."""

from flexmdm.tasks.code.cutting import Cut, Cutting
from flexmdm.tasks.code.pipeline import CodePipeline, Filled
from flexmdm.tasks.code.problems import SPLITS, Problem, Sample, read_problems, read_samples
from flexmdm.tasks.code.scoring import CodeScore, Item, pass_at_k, score
from flexmdm.tasks.code.task import CodeExamples, CodeTask

__all__ = [
    "SPLITS",
    "CodeExamples",
    "CodePipeline",
    "CodeScore",
    "CodeTask",
    "Cut",
    "Cutting",
    "Filled",
    "Item",
    "Problem",
    "Sample",
    "pass_at_k",
    "read_problems",
    "read_samples",
    "score",
]
