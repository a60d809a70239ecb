"""Filling gaps in Python functions: training, the HumanEval-infilling problems, and scoring by their tests."""
