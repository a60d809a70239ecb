"""Text and other sequences from files: training, sampling, completing and infilling."""

from flexmdm.tasks.text.pipeline import Filled, TextPipeline
from flexmdm.tasks.text.task import TextExamples, TextTask, padded
from flexmdm.tasks.text.templates import Mixture, draw_templates

__all__ = ["Filled", "Mixture", "TextExamples", "TextPipeline", "TextTask", "draw_templates", "padded"]
