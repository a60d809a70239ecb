"""Where the parts of known architectures are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transformers import PretrainedConfig

from flexmdm.backbones.encoder import Anatomy
from flexmdm.backbones.relatives import DREAM

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

BERT = Anatomy(
    embedding="bert.embeddings",
    words="word_embeddings",
    first_position=0,
    layers="bert.encoder.layer",
    norm=None,
    rotary=None,
    transform="cls.predictions.transform",
    head="cls.predictions.decoder",
    norms_last=True,
    attention=["attention.self", "attention.output.dense"],
    attention_norm="attention.output.LayerNorm",
    feed=["intermediate", "output.dense"],
    feed_norm="output.LayerNorm",
    queries=["query", "key", "value"],
)


def _roberta(config: Any) -> Anatomy:
    return replace(
        BERT,
        embedding="roberta.embeddings",
        first_position=config.pad_token_id + 1,
        layers="roberta.encoder.layer",
        transform=["lm_head.dense", "gelu", "lm_head.layer_norm"],
        head="lm_head.decoder",
    )


def _electra(config: Any) -> Anatomy:
    return replace(
        BERT,
        embedding="electra.embeddings",
        projection=None if config.embedding_size == config.hidden_size else "electra.embeddings_project",
        layers="electra.encoder.layer",
        transform="generator_predictions",
        head="generator_lm_head",
    )


def _albert(config: Any) -> Anatomy:
    depth, groups = config.num_hidden_layers, config.num_hidden_groups
    layer = "albert.encoder.albert_layer_groups.{}.albert_layers.{}".format
    inner = range(config.inner_group_num)
    return replace(
        BERT,
        embedding="albert.embeddings",
        projection="albert.encoder.embedding_hidden_mapping_in",
        layers=[layer(int(number / (depth / groups)), one) for number in range(depth) for one in inner],
        transform=["predictions.dense", "predictions.activation", "predictions.LayerNorm"],
        head="predictions.decoder",
        attention=["attention", "attention.dense"],
        attention_norm="attention.LayerNorm",
        feed=["ffn", "activation", "ffn_output"],
        feed_norm="full_layer_layer_norm",
    )


_ESM_MASKS = 0.15 * 0.8  # share of masks that all of its family were trained with


def _esm(config: Any) -> Anatomy:
    rotates = config.position_embedding_type == "rotary"
    return replace(
        _roberta(config),
        embedding="esm.embeddings",
        first_position=None if rotates else config.pad_token_id + 1,
        mask_share=_ESM_MASKS if config.token_dropout else None,
        rotary="esm.rotary_embeddings" if rotates else None,
        layers="esm.encoder.layer",
        norm="esm.encoder.emb_layer_norm_after",
        head_bias="lm_head.bias",
        norms_last=False,
        attention_norm="attention.LayerNorm",
        feed_norm="LayerNorm",
    )


_ANATOMIES: dict[str, Anatomy | Callable[[Any], Anatomy]] = {
    "modernbert": MODERN_BERT,
    "bert": BERT,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "electra": _electra,
    "albert": _albert,
    "esm": _esm,
}


def anatomy_of(model_type: str, encoder: PretrainedConfig) -> Anatomy:
    """Return where the parts of an architecture are, by its name and its configuration: as in Llama by default.

    >>> from transformers import RobertaConfig
    >>> anatomy_of("roberta", RobertaConfig(pad_token_id=1)).first_position
    2
    """
    if model_type == DREAM:
        return Anatomy(shifted=True)
    found = _ANATOMIES.get(model_type, Anatomy())
    return found if isinstance(found, Anatomy) else found(encoder)
