"""LLaDA without its own code: its checkpoints in the Llama architecture of transformers, and back under its names.

LLaDA is Llama with bidirectional attention; only the names of its weights and of its configuration differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from torch import nn
from transformers import LlamaConfig

MODEL_TYPE = "llada"

# LLaDA-8B as its configuration has it, to know its size without its weights.
SHAPE_8B: dict[str, Any] = {
    "model_type": MODEL_TYPE, "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32,
    "mlp_hidden_size": 12288, "vocab_size": 126464, "embedding_size": 126464, "max_sequence_length": 4096,
    "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "weight_tying": False, "activation_type": "silu",
    "block_type": "llama", "layer_norm_type": "rms", "rope": True, "include_bias": False, "include_qkv_bias": False,
    "mask_token_id": 126336, "eos_token_id": 126081, "pad_token_id": 126081,
}  # fmt: skip

# Names of weights in LLaDA, in Llama and in a `Retrofit`.
_IN_LAYER = {
    "attn_norm": ("input_layernorm", "attention_norm"),
    "q_proj": ("self_attn.q_proj", "attention.q_proj"),
    "k_proj": ("self_attn.k_proj", "attention.k_proj"),
    "v_proj": ("self_attn.v_proj", "attention.v_proj"),
    "attn_out": ("self_attn.o_proj", "attention.o_proj"),
    "ff_norm": ("post_attention_layernorm", "feed_norm"),
    "ff_proj": ("mlp.gate_proj", "feed.gate_proj"),
    "up_proj": ("mlp.up_proj", "feed.up_proj"),
    "ff_out": ("mlp.down_proj", "feed.down_proj"),
}
_OUTSIDE = {"wte": ("model.embed_tokens", "embedding"), "ln_f": ("model.norm", "norm"), "ff_out": ("lm_head", "head")}

# Patterns for the names in a checkpoint, as `from_pretrained` takes them.
KEY_MAPPING = {rf"^model\.transformer\.{theirs}\.": f"{llama}." for theirs, (llama, _) in _OUTSIDE.items()} | {
    rf"^model\.transformer\.blocks\.(\d+)\.{theirs}\.": rf"model.layers.\1.{llama}."
    for theirs, (llama, _) in _IN_LAYER.items()
}

_MLP_RATIO = 4  # width of a feed-forward layer in that of the stream, where a configuration does not say

_AS_IN_8B = ("block_type", "layer_norm_type", "activation_type", "rope", "include_bias", "include_qkv_bias")
_WITHOUT = ("alibi", "clip_qkv", "attention_layer_norm", "scale_logits", "input_emb_norm")
_SUPPORTED = {name: SHAPE_8B[name] for name in _AS_IN_8B} | dict.fromkeys(_WITHOUT, False)
_SETTINGS = {  # names in a configuration of LLaDA and of Llama
    "embedding_size": "vocab_size",
    "d_model": "hidden_size",
    "mlp_hidden_size": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "max_sequence_length": "max_position_embeddings",
    "rms_norm_eps": "rms_norm_eps",
    "weight_tying": "tie_word_embeddings",
}


def llama_config(stored: dict[str, Any]) -> LlamaConfig:
    """Return the configuration of Llama for a configuration of LLaDA.

    >>> llama_config(SHAPE_8B).num_hidden_layers
    32
    """
    for name, needed in _SUPPORTED.items():
        value = stored.get(name, needed)
        if value != needed and (value or needed):  # null is as good as false
            raise ValueError(f"this LLaDA has {name} = {value!r}; only {needed!r} is supported")
    try:
        usual = {"embedding_size": stored["vocab_size"], "n_kv_heads": _kv_heads(stored), "weight_tying": False}
        usual["mlp_hidden_size"] = stored.get("mlp_ratio", _MLP_RATIO) * stored["d_model"]
        given: dict[str, Any] = usual | {name: value for name, value in stored.items() if value is not None}
        config = LlamaConfig(
            **{ours: given[theirs] for theirs, ours in _SETTINGS.items()},
            rope_parameters={"rope_type": "default", "rope_theta": stored["rope_theta"]},
            attention_dropout=0.0,
            pad_token_id=None,
            eos_token_id=stored.get("eos_token_id"),
        )
    except KeyError as error:
        raise ValueError(f"the configuration of this LLaDA has no {error.args[0]}") from error
    config.is_causal = False
    return config


def _kv_heads(stored: dict[str, Any]) -> int:
    """Return the number of heads of keys and values, which a configuration of LLaDA can say in two ways."""
    shares, heads, count = stored.get("multi_query_attention"), stored["n_heads"], stored.get("n_kv_heads")
    meant = count if shares is None and count is not None else 1 if shares else heads
    if count not in (None, meant):
        raise ValueError(
            f"this LLaDA has n_kv_heads = {count} and multi_query_attention = {shares}, which means {meant}: one of "
            "them is wrong"
        )
    return meant


def shape(vocab_size: int, hidden: int, layers: int, heads: int) -> LlamaConfig:
    """Return the configuration of a LLaDA of another size."""
    size = {"vocab_size": vocab_size, "embedding_size": vocab_size, "d_model": hidden, "mlp_hidden_size": 3 * hidden}
    counts = {"n_layers": layers, "n_heads": heads, "n_kv_heads": heads}
    return llama_config(SHAPE_8B | size | counts | {"eos_token_id": None})


def export(network: nn.Module, config: LlamaConfig, mask_id: int, folder: Path, pad_id: int | None = None) -> None:
    """Write the pretrained part of a `Retrofit` (without adapters) as a checkpoint of LLaDA."""
    modules = {f"model.transformer.{theirs}": network.get_submodule(ours) for theirs, (_, ours) in _OUTSIDE.items()}
    for number, block in enumerate(network.get_submodule("blocks").children()):
        for theirs, (_, ours) in _IN_LAYER.items():
            modules[f"model.transformer.blocks.{number}.{theirs}"] = block.get_submodule(ours)
    state = {f"{name}.weight": module.get_parameter("weight").detach() for name, module in modules.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(state, str(folder), max_shard_size="5GB")
    rotary: Any = config.rope_parameters
    stored = SHAPE_8B | {theirs: getattr(config, ours) for theirs, ours in _SETTINGS.items()}
    stored |= {"vocab_size": config.vocab_size, "rope_theta": rotary["rope_theta"], "architectures": ["LLaDAModelLM"]}
    stored |= {"mask_token_id": mask_id, "eos_token_id": pad_id, "pad_token_id": pad_id}
    (folder / "config.json").write_text(json.dumps(stored, indent=2) + "\n")
