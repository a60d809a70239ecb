"""Models that transformers has by another name, and their tokenizers; light, for who needs a tokenizer alone."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

# What each is with bidirectional attention. Those that begin with a2d are of https://github.com/ZHZisZZ/dllm.
DREAM = "Dream"
RELATIVES = {"llada": "llama", DREAM: "qwen2", "a2d-llama": "llama", "a2d-qwen2": "qwen2", "a2d-qwen3": "qwen3"}


def pretrained_tokenizer(name: str | Path, **options: Any) -> Any:
    """Return the tokenizer of a pretrained model, by its folder or name on the Hub; no code that comes with it is run.

    That of Dream has code, which gives the ids that Qwen2's tokenizer gives.
    """
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a config.json that says things in an old way
        try:
            return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
        except ValueError:
            from transformers import PretrainedConfig

            stored, _ = PretrainedConfig.get_config_dict(str(name), **options)
            kind = stored.get("encoder", stored).get("model_type")  # of one of ours, what it is made from
            if RELATIVES.get(kind, kind) not in RELATIVES.values():
                raise
            return AutoTokenizer.from_pretrained(name, tokenizer_type=RELATIVES.get(kind, kind), **options)
