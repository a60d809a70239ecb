"""Instruction fine-tuning: prompts with their answers, the prompt fixed from the start."""

from flexmdm.tasks.sft.formats import PromptFormat
from flexmdm.tasks.sft.pipeline import Answer, SFTPipeline
from flexmdm.tasks.sft.task import PairExamples, SFTTask
from flexmdm.tasks.sft.templates import prompt_templates

__all__ = ["Answer", "PairExamples", "PromptFormat", "SFTPipeline", "SFTTask", "prompt_templates"]
