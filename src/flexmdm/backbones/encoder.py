"""The parts of a pretrained transformer, run over packed rows with the clock in both norms of every block.

A transformer that was made to be called on padded batches is taken apart here, its modules are kept as they are (with
adapters, quantised, whatever they have become), and put together again so that the condition is an argument of each
block: nothing is hooked, so gradient checkpointing, compilation and sharding see ordinary modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

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
    """Where the parts of a transformer are, by the names of its modules, and how they are put together.

    The names are those of Llama and its relatives (LLaDA as `flexmdm.backbones.llada` loads it, Qwen2, Mistral);
    `flexmdm.backbones.anatomies` has those of BERT's family and of ESM. To retrofit another one, describe it: its
    attention must take part in transformers' attention interface. Several names stand for modules that are called one
    after the other; the name of an activation (``gelu``) stands for a function, which has no module.
    """

    embedding: str = "model.embed_tokens"
    layers: str | list[str] = "model.layers"  # the list of layers; or each layer in order, where some come again
    norm: str | None = "model.norm"  # behind the last layer
    head: str = "lm_head"
    rotary: str | None = "model.rotary_emb"
    # Paths in a layer:
    attention_norm: str = "input_layernorm"
    attention: str | list[str] = "self_attn"
    feed_norm: str = "post_attention_layernorm"
    feed: str | list[str] = "mlp"
    queries: list[str] = field(default_factory=lambda: ["q_proj", "k_proj", "v_proj"])  # linear layers to adapt
    shifted: bool = False  # row i predicts entry i + 1, as in models made from autoregressive ones (Dream)
    transform: str | list[str] | None = None  # what is between the last norm and the head
    norms_last: bool = False  # each norm is behind the sum of a branch and its input (BERT), not before the branch
    words: str | None = None  # path in the embedding of its table: the embedding then takes vectors and positions
    first_position: int | None = None  # where a table of positions begins that every sequence has to fit in
    projection: str | None = None  # what is between the embedding and the first layer
    mask_share: float | None = None  # ESM: masks are left out of the embedding, which learned with this share of them
    head_bias: str | None = None  # a parameter that is added to the logits, of a head that has no bias itself

    def most_rows(self, encoder: Any) -> int | None:
        """Return how many rows the table of positions has for a sequence, by the configuration; none if it has none."""
        return None if self.first_position is None else encoder.max_position_embeddings - self.first_position

    @property
    def outer(self) -> list[str]:
        """Return the paths in the model of all that is used of it."""
        several = (self.embedding, self.projection, self.layers, self.norm, self.transform, self.head, self.head_bias)
        return [path for one in (*several, self.rotary) for path in _paths(one)]


def is_encoder(model_type: str) -> bool:
    """Return whether transformers has a class of an architecture that predicts masks, whatever else it has."""
    return model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES or model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def body_class(model_type: str) -> Any:
    """Return the class of transformers whose ``from_pretrained`` and ``from_config`` give a model with its head."""
    return AutoModelForMaskedLM if is_encoder(model_type) else AutoModelForCausalLM


class Block(nn.Module):
    """A layer of the pretrained model whose branches are shifted and scaled by the clock."""

    def __init__(self, layer: nn.Module, anatomy: Anatomy) -> None:
        super().__init__()
        first, *others = _paths(anatomy.attention)
        attention = layer.get_submodule(first)
        self.attention_norm = layer.get_submodule(anatomy.attention_norm)
        has_norm = any(module is self.attention_norm for module in attention.modules())
        self.attention = Mixing(attention, anatomy.queries) if has_norm else attention
        self.attention_output = _chain(layer, others)
        self.feed_norm = layer.get_submodule(anatomy.feed_norm)
        self.feed = _chain(layer, _paths(anatomy.feed))
        self.norms_last = anatomy.norms_last
        self.attention_type = getattr(layer, "attention_type", None)  # layers of several types have several rotations

    def forward(self, x: Tensor, modulation: Tensor | None, layout: Layout, rotation: Any) -> Tensor:
        """Map rows ``[R, D]``; ``modulation`` ``[R, 2, D]`` shifts and scales both branches, ``None`` leaves them."""

        def attend_to_all(y: Tensor) -> Tensor:
            mixed = self.attention(
                hidden_states=y[None], position_embeddings=rotation, attention_mask=None, layout=layout
            )
            return self.attention_output(mixed[0][0])

        return self.feed_forward(self._add(attend_to_all, self.attention_norm, x, modulation), modulation)

    def feed_forward(self, x: Tensor, modulation: Tensor | None) -> Tensor:
        return self._add(self.feed, self.feed_norm, x, modulation)

    def _add(self, branch: Callable[[Tensor], Tensor], norm: nn.Module, x: Tensor, modulation: Tensor | None) -> Tensor:
        """Add a branch to the stream. What goes into it is modulated: a norm that comes last is the stream itself."""
        if self.norms_last:
            return norm(x + branch(modulated(x, modulation)))
        return x + branch(modulated(norm(x), modulation))


class Mixing(nn.Module):
    """The queries, keys and values of an attention whose own forward also has its sum and its norm (ALBERT)."""

    def __init__(self, attention: Any, queries: list[str]) -> None:
        super().__init__()
        for name in queries:
            self.add_module(name, attention.get_submodule(name))
        self.width, self.scale = attention.attention_head_size, attention.scaling

    def forward(self, hidden_states: Tensor, layout: Layout, **_: Any) -> tuple[Tensor, None]:
        """Map ``[1, R, D]`` as transformers does."""
        query, key, value = (linear(hidden_states[0]).unflatten(1, (-1, self.width)) for linear in self.children())
        return attend(query, key, value, layout, self.scale)[None], None


def modulated(y: Tensor, modulation: Tensor | None) -> Tensor:
    """Shift and scale rows ``[R, D]`` on their way into a branch."""
    if modulation is None:
        return y
    shift, scale = modulation.unbind(1)
    return y + torch.addcmul(shift, y, scale)  # not y (1 + scale): in half precision a small scale would be lost


@dataclass(frozen=True, eq=False)
class Parts:
    """A transformer taken apart."""

    embedding: nn.Module
    projection: nn.Module
    blocks: nn.ModuleList  # the different ones
    order: tuple[int, ...]  # the block at each depth
    norm: nn.Module  # and all that is between it and the head
    head: nn.Module
    rotary: nn.Module | None

    @classmethod
    def of(cls, model: PreTrainedModel, anatomy: Anatomy) -> Parts:
        """Take a model apart; from then on it can only be used through its parts."""
        try:
            layers: list[nn.Module] = [model.get_submodule(path) for path in _paths(anatomy.layers)]
            if isinstance(anatomy.layers, str):
                layers = list(layers[0])  # ty: ignore[invalid-argument-type]
            different = list(dict.fromkeys(layers))
            head = model.get_submodule(anatomy.head)
            if anatomy.head_bias is not None:
                head.bias = model.get_parameter(anatomy.head_bias)
            parts = cls(
                embedding=model.get_submodule(anatomy.embedding),
                projection=_chain(model, _paths(anatomy.projection)),
                blocks=nn.ModuleList(Block(layer, anatomy) for layer in different),
                order=tuple(map(different.index, layers)),
                norm=_chain(model, _paths(anatomy.norm) + _paths(anatomy.transform)),
                head=head,
                rotary=None if anatomy.rotary is None else model.get_submodule(anatomy.rotary),
            )
        except AttributeError as error:
            raise ValueError(
                f"{type(model).__name__} is not built as its anatomy says ({error}): describe where its layers and "
                "its head are by flexmdm.backbones.encoder.Anatomy"
            ) from error
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # as in all else of a `RetrofitConfig`
        model.set_attn_implementation(_PACKED)
        return parts


def _paths(path: str | list[str] | None) -> list[str]:
    """Return the paths of modules that are called one after the other."""
    return [path] if isinstance(path, str) else list(path or ())


def _chain(model: nn.Module, paths: list[str]) -> nn.Module:
    """Return one module for several that are called one after the other; for none, one that changes nothing."""
    known = dict(model.named_modules())
    modules = [ACT2FN[path] if path in ACT2FN.keys() - known.keys() else model.get_submodule(path) for path in paths]
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


def body_of(encoder: PretrainedConfig) -> PreTrainedModel:
    """Return a model without weights, on no device, which has only the buffers that are computed and not stored."""
    with torch.device("meta"):
        body = body_class(encoder.model_type).from_config(encoder)
    for module in body.modules():
        computed = module._non_persistent_buffers_set
        for name in computed:
            module.register_buffer(name, torch.empty_like(module.get_buffer(name), device="cpu"), persistent=False)
        if computed:
            body._init_weights(module)  # the weights are nowhere, so that only the buffers get values
    return body


def embed(
    embedding: nn.Module, anatomy: Anatomy, tokens: Tensor, masked: Tensor, layout: Layout, entries: Tensor
) -> Tensor:
    """Embed tokens ``[N]`` as their model does, in rows ``[R, E]``.

    Args:
        tokens: with the mask token where ``masked`` ``[N]``.
        entries: ``[R]`` bool, the rows of the layout that stand for tokens; the others have at most a position.
    """
    table = embedding if anatomy.words is None else embedding.get_submodule(anatomy.words)
    words = table(tokens)
    if anatomy.mask_share is not None:
        words = _without_masks(words, masked, layout.sequence[entries], anatomy.mask_share)
    rows = words.new_zeros(len(entries), words.shape[1]).masked_scatter(entries[:, None], words)
    if anatomy.words is None:
        return rows
    positions = None if anatomy.first_position is None else (layout.position + anatomy.first_position)[None]
    return embedding(inputs_embeds=rows[None], position_ids=positions)[0]


def _without_masks(words: Tensor, masked: Tensor, sequence: Tensor, share: float) -> Tensor:
    """Leave out the masks among vectors ``[N, E]`` and scale the others by how many of their sequence are left."""
    count = torch.bincount(sequence)
    left = torch.zeros_like(count, dtype=torch.float32).index_add(0, sequence, (~masked).float()) / count
    scale = (1 - share) / left.clamp(min=torch.finfo(left.dtype).tiny)[sequence]  # nothing is left: all zeros
    return (words.masked_fill(masked[:, None], 0.0) * scale[:, None]).to(words.dtype)


def rotations(rotary: nn.Module | None, blocks: nn.ModuleList, x: Tensor, position: Tensor) -> list[Any]:
    """Return cos and sin of the positions ``[R]`` for each block; blocks of one attention type share theirs."""
    if rotary is None:
        return [None] * len(blocks)
    if "layer_type" not in inspect.signature(rotary.forward).parameters:
        return [rotary(x[None], position[None])] * len(blocks)
    types: list[Any] = [block.attention_type for block in blocks]
    of_type = {name: rotary(x[None], position[None], name) for name in set(types)}
    return [of_type[name] for name in types]
