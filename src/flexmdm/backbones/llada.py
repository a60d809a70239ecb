"""LLaDA without its own code: its checkpoints in the Llama architecture of transformers, and back under its names.

LLaDA is Llama with bidirectional attention; only the names of its weights and of its configuration differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn
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

_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_OUTSIDE = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}

# Patterns for the names in a checkpoint, as `from_pretrained` takes them.
KEY_MAPPING = {
    **{rf"^model\.transformer\.{theirs}\.": f"{ours}." for theirs, ours in _OUTSIDE.items()},
    **{
        rf"^model\.transformer\.blocks\.(\d+)\.{theirs}\.": rf"model.layers.\1.{ours}."
        for theirs, ours in _IN_LAYER.items()
    },
}

_REQUIRED = {"block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu", "rope": True}
_WITHOUT = (
    "include_bias",
    "include_qkv_bias",
    "alibi",
    "clip_qkv",
    "attention_layer_norm",
    "scale_logits",
    "input_emb_norm",
)


def llama_config(stored: dict[str, Any]) -> LlamaConfig:
    """Return the configuration of Llama for a configuration of LLaDA.

    >>> llama_config(SHAPE_8B).num_hidden_layers
    32
    """
    for name, needed in _REQUIRED.items():
        if stored.get(name, needed) != needed:
            raise ValueError(f"this LLaDA has {name} = {stored[name]!r}; only {needed!r} is supported")
    extra = [name for name in _WITHOUT if stored.get(name)]
    if extra:
        raise ValueError(f"this LLaDA has {', '.join(extra)}, which is not supported")
    try:
        config = LlamaConfig(
            vocab_size=stored.get("embedding_size") or stored["vocab_size"],
            hidden_size=stored["d_model"],
            intermediate_size=stored["mlp_hidden_size"],
            num_hidden_layers=stored["n_layers"],
            num_attention_heads=stored["n_heads"],
            num_key_value_heads=stored.get("n_kv_heads") or stored["n_heads"],
            max_position_embeddings=stored["max_sequence_length"],
            rms_norm_eps=stored["rms_norm_eps"],
            rope_parameters={"rope_type": "default", "rope_theta": stored["rope_theta"]},
            tie_word_embeddings=stored.get("weight_tying", False),
            attention_dropout=0.0,
            pad_token_id=None,
            eos_token_id=stored.get("eos_token_id"),
        )
    except KeyError as error:
        raise ValueError(f"the configuration of this LLaDA has no {error.args[0]}") from error
    config.is_causal = False
    return config


def shape(vocab_size: int, hidden: int, layers: int, heads: int) -> LlamaConfig:
    """Return the configuration of a LLaDA of another size."""
    size = {"vocab_size": vocab_size, "embedding_size": vocab_size, "d_model": hidden, "mlp_hidden_size": 3 * hidden}
    counts = {"n_layers": layers, "n_heads": heads, "n_kv_heads": heads}
    return llama_config(SHAPE_8B | size | counts | {"eos_token_id": None})


def llada_config(config: LlamaConfig, mask_id: int, pad_id: int | None = None) -> dict[str, Any]:
    """Return the configuration of LLaDA for one of Llama, the inverse of `llama_config`."""
    rotary: Any = config.rope_parameters
    return SHAPE_8B | {
        "architectures": ["LLaDAModelLM"],
        "d_model": config.hidden_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "n_kv_heads": config.num_key_value_heads,
        "mlp_hidden_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "max_sequence_length": config.max_position_embeddings,
        "rope_theta": rotary["rope_theta"],
        "rms_norm_eps": config.rms_norm_eps,
        "weight_tying": config.tie_word_embeddings,
        "mask_token_id": mask_id,
        "eos_token_id": pad_id,
        "pad_token_id": pad_id,
    }


def export(network: nn.Module, config: LlamaConfig, mask_id: int, folder: Path, pad_id: int | None = None) -> None:
    """Write the pretrained part of a `Retrofit` (without adapters) as a checkpoint of LLaDA."""
    folder.mkdir(parents=True, exist_ok=True)
    state = _under_their_names(network)
    save_torch_state_dict(state, str(folder), max_shard_size="5GB")
    stored = llada_config(config, mask_id, pad_id)
    (folder / "config.json").write_text(json.dumps(stored, indent=2) + "\n")


# Names in a `Retrofit`, without the parts that were added to it.
_IN_BLOCK = {
    "attention_norm": "attn_norm",
    **{f"attention.{name}": name for name in ("q_proj", "k_proj", "v_proj")},
    "attention.o_proj": "attn_out",
    "feed_norm": "ff_norm",
    "feed.gate_proj": "ff_proj",
    "feed.up_proj": "up_proj",
    "feed.down_proj": "ff_out",
}


def _under_their_names(network: nn.Module) -> dict[str, Tensor]:
    state = {}
    for ours, theirs in (("embedding", "wte"), ("norm", "ln_f"), ("head", "ff_out")):
        state[f"model.transformer.{theirs}.weight"] = network.get_parameter(f"{ours}.weight").detach()
    for number, block in enumerate(network.get_submodule("blocks").children()):
        for ours, theirs in _IN_BLOCK.items():
            name = f"model.transformer.blocks.{number}.{theirs}.weight"
            state[name] = block.get_parameter(f"{ours}.weight").detach()
    return state
