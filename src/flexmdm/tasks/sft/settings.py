"""The settings of prompts with answers: options, configuration and what a run stores of its task."""

from __future__ import annotations

from dataclasses import dataclass

from flexmdm.settings import setting
from flexmdm.tasks.settings import FileSettings


@dataclass(frozen=True)
class SFTSettings(FileSettings):
    """The settings of pairs of a prompt and its answer; pairs longer than ``max_length`` are dropped."""

    prompt_field: str | None = setting(
        None, help="Field of the prompt. [default: prompt, question, instruction, messages]"
    )
    answer_field: str | None = setting(
        None, help="Field of the answer. [default: answer, completion, response, output]"
    )
    format: str = setting(
        "plain",
        help="Format of a prompt: plain (a line of its own), a text with {prompt} in it, or chat, the chat "
        "template of the tokenizer. [default: plain]",
    )
    pad_id: int | None = None  # PAD of MDM, by default a new token behind all others; LLaDA's is its end of text
    before: tuple[int, ...] = ()  # tokens in front of every prompt
    behind: tuple[int, ...] = ()  # tokens between every prompt and its answer
    remove: str | None = None  # of the `flexmdm.data.PairSource`
    name: str = setting("sft", init=False)
