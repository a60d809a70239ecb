"""The parts of a pretrained transformer, run over packed rows with the clock in both norms of every block.

A transformer that was made to be called on padded batches is taken apart here, its modules are kept as they are (with
adapters, quantised, whatever they have become), and put together again so that the condition is an argument of each
block: nothing is hooked, so gradient checkpointing, compilation and sharding see ordinary modules.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from flexmdm.backbones.attention import Layout, attend

_PACKED = "flexmdm_packed"


def _attend_packed(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **more: Any
) -> tuple[Tensor, None]:
    """Call `attend` in the way of transformers: ``[1, H, R, E]`` -> ``[1, R, H, E]``; keys may have fewer heads."""
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return attend(q, k, v, more["layout"], scaling, more.get("sliding_window")).view(1, *q.shape), None


AttentionInterface.register(_PACKED, _attend_packed)


@dataclass(frozen=True)
class Anatomy:
    """Where the parts of a transformer with norms before its branches are, by the names of its modules.

    The names are those of Llama and its relatives (LLaDA as `flexmdm.backbones.llada` loads it, Qwen2, Mistral). To
    retrofit another one, describe it, as `MODERN_BERT` describes ModernBERT: its attention must take part in
    transformers' attention interface.
    """

    embedding: str = "model.embed_tokens"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"
    rotary: str = "model.rotary_emb"
    # Paths in a layer:
    attention_norm: str = "input_layernorm"
    attention: str = "self_attn"
    feed_norm: str = "post_attention_layernorm"
    feed: str = "mlp"
    queries: list[str] = field(default_factory=lambda: ["q_proj", "k_proj", "v_proj"])  # linear layers to adapt
    shifted: bool = False  # row i predicts entry i + 1, as in models made from autoregressive ones (Dream)
    transform: str | None = None  # path of what is between the last norm and the head, if anything is


MODERN_BERT = Anatomy(
    embedding="model.embeddings",
    norm="model.final_norm",
    transform="head",
    head="decoder",
    attention_norm="attn_norm",
    attention="attn",
    feed_norm="mlp_norm",
    queries=["Wqkv"],
)


def body_class(model_type: str) -> Any:
    """Return the class of transformers whose ``from_pretrained`` and ``from_config`` give a model with its head."""
    return AutoModelForCausalLM if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModelForMaskedLM


class Block(nn.Module):
    """A layer of the pretrained model whose norms are shifted and scaled by the clock."""

    def __init__(self, layer: nn.Module, anatomy: Anatomy) -> None:
        super().__init__()
        self.attention_norm = layer.get_submodule(anatomy.attention_norm)
        self.attention = layer.get_submodule(anatomy.attention)
        self.feed_norm = layer.get_submodule(anatomy.feed_norm)
        self.feed = layer.get_submodule(anatomy.feed)
        self.attention_type = getattr(layer, "attention_type", None)  # layers of several types have several rotations

    def forward(self, x: Tensor, modulation: Tensor | None, layout: Layout, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Map rows ``[R, D]``; ``modulation`` ``[R, 2, D]`` shifts and scales both norms, ``None`` leaves them."""
        y = modulated(self.attention_norm(x), modulation)
        mixed = self.attention(hidden_states=y[None], position_embeddings=rotation, attention_mask=None, layout=layout)
        return self.feed_forward(x + mixed[0][0], modulation)

    def feed_forward(self, x: Tensor, modulation: Tensor | None) -> Tensor:
        return x + self.feed(modulated(self.feed_norm(x), modulation))


def modulated(y: Tensor, modulation: Tensor | None) -> Tensor:
    """Shift and scale normed rows ``[R, D]``."""
    if modulation is None:
        return y
    shift, scale = modulation.unbind(1)
    return y + torch.addcmul(shift, y, scale)  # not y (1 + scale): in half precision a small scale would be lost


@dataclass(frozen=True, eq=False)
class Parts:
    """A transformer taken apart."""

    embedding: nn.Module
    blocks: nn.ModuleList
    norm: nn.Module  # and all that is between it and the head
    head: nn.Module
    rotary: nn.Module

    @classmethod
    def of(cls, model: PreTrainedModel, anatomy: Anatomy) -> Parts:
        """Take a model apart; from then on it can only be used through its parts."""
        try:
            layers = model.get_submodule(anatomy.layers)
            blocks = nn.ModuleList(Block(layer, anatomy) for layer in layers)  # ty: ignore[not-iterable]
            names = ("embedding", "norm", "head", "rotary")
            named = {name: model.get_submodule(getattr(anatomy, name)) for name in names}
            if anatomy.transform is not None:
                named["norm"] = nn.Sequential(named["norm"], model.get_submodule(anatomy.transform))
        except AttributeError as error:
            raise ValueError(
                f"{type(model).__name__} is not built as its anatomy says ({error}): describe where its layers and "
                "its head are by flexmdm.backbones.encoder.Anatomy"
            ) from error
        model.set_attn_implementation(_PACKED)
        return cls(blocks=blocks, **named)


def rotations(rotary: nn.Module, blocks: nn.ModuleList, x: Tensor, position: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return cos and sin of the positions ``[R]`` for each block; blocks of one attention type share theirs."""
    if "layer_type" not in inspect.signature(rotary.forward).parameters:
        return [rotary(x[None], position[None])] * len(blocks)
    types: list[Any] = [block.attention_type for block in blocks]
    of_type = {name: rotary(x[None], position[None], name) for name in set(types)}
    return [of_type[name] for name in types]
