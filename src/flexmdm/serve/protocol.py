"""Describe what clients send and get: completions as those of OpenAI know them, and gaps with ranked fillings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_TEXTS, MOST_ANSWERS, MOST_DRAWS, MOST_STEPS, LONGEST_TEXT = 64, 64, 256, 1024, 100_000


class _Generation(BaseModel):
    """Say how the model generates, in every request; what is not said is as on the command line."""

    model_config = ConfigDict(protected_namespaces=())

    model: str | None = Field(None, max_length=200, description="The name that /v1/models tells.")
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="The same seed gives the same answers.")
    steps: int | None = Field(None, ge=1, le=MOST_STEPS, description="Steps of the sampler.")
    quality: Literal["fast", "balanced", "exact"] | None = Field(None, description="8, 32 or 128 steps.")
    sampler: Literal[
        "tau", "adaptive", "spaced", "entropy_bounded", "dilated", "likeliest", "low_confidence"
    ] | None = None  # fmt: skip

    @property
    def sampling(self) -> dict[str, Any]:
        """Return the options of `flexmdm.generate` that were given."""
        options = {name: getattr(self, name) for name in ("temperature", "top_p", "quality", "steps", "sampler")}
        return {name: value for name, value in options.items() if value is not None}


class CompletionRequest(_Generation):
    """A text to go on behind, or with a ``suffix`` a gap to fill; further fields of OpenAI's are taken and ignored."""

    model_config = ConfigDict(protected_namespaces=(), extra="allow")

    prompt: str | list[str] = Field("", description="A text or several; empty for texts from nothing.")
    suffix: str | None = Field(None, max_length=LONGEST_TEXT, description="What stands behind the gap.")
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    n: int = Field(1, ge=1, le=MOST_ANSWERS, description="Answers for each prompt.")
    best_of: int | None = Field(None, ge=1, le=MOST_DRAWS, description="Draws, of which the n most probable are kept.")
    echo: bool = Field(False, description="Put the prompt in front of the answer.")
    stream: bool = Field(False, description="Send each answer as soon as it is finished, as server-sent events.")


class InfillRequest(_Generation):
    """A text, or several, with gaps of unknown length."""

    text: str | list[str] = Field(description="Texts with ___ at each gap.")
    gap_marker: str = Field("___", min_length=1, max_length=100)
    num: int = Field(1, ge=1, le=MOST_ANSWERS, description="Answers for each text.")
    best: int | None = Field(
        None,
        ge=0,
        le=MOST_DRAWS,
        description="Of num answers keep so many, the most probable distinct ones; 0 keeps all as they are drawn. "
        "[default: the best num of 8 times as many]",
    )
    min: int = Field(0, ge=0, le=100_000, description="Fewest tokens of a gap.")
    max: int | None = Field(None, ge=1, le=100_000, description="Most tokens of a gap.")


class Choice(BaseModel):
    """One answer; ``finish_reason`` is ``length`` where it was not let grow further."""

    text: str
    index: int
    logprobs: None = None
    log_prob: float | None = Field(None, description="Of the whole answer, where several draws were ranked.")
    finish_reason: Literal["stop", "length"]


class Usage(BaseModel):
    """Tokens that were given, found, and both."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """The answers to a `CompletionRequest`."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    seed: int
    choices: list[Choice]
    usage: Usage | None = None


class Filling(BaseModel):
    """One text with its gaps filled."""

    text: str
    gaps: list[str]
    log_prob: float | None = Field(None, description="Of the fillings given the text, an estimated lower bound.")
    evaluations: int


class Infilling(BaseModel):
    """The answers to an `InfillRequest`: for each text a list, the most probable first."""

    model: str
    seed: int
    answers: list[list[Filling]]


class Problem(BaseModel):
    """Say what was wrong, as clients of OpenAI read it."""

    message: str
    type: str
    code: int


class ErrorResponse(BaseModel):
    """The body of every answer that is an error."""

    error: Problem
