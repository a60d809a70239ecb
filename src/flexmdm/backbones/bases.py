"""Pretrained models to start from: LLaDA and its relatives in transformers, checked, loaded and taken apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from flexmdm.backbones import anatomies, llada
from flexmdm.backbones.encoder import Anatomy, Parts, body_class, is_encoder
from flexmdm.backbones.folders import check_whole, has_extras, stored_config
from flexmdm.backbones.model import FlexMDMConfig
from flexmdm.backbones.relatives import RELATIVES, pretrained_tokenizer
from flexmdm.backbones.retrofit_network import RetrofitConfig, is_quantised


@dataclass(frozen=True, eq=False)
class Base:
    """A pretrained masked diffusion model, taken apart, and its configuration in transformers."""

    parts: Parts
    encoder: PretrainedConfig
    anatomy: Anatomy
    mask_id: int


_USUAL_LENGTH = 1024  # tokens of a sequence that a base goes on with
_MARKS_AND_END = 3  # entries around a text, and the row behind them that only we have
_OF_REMOTE_CODE = ("auto_map", "architectures")  # what a config.json says of classes that are not ours


def anatomy_of(stored: dict[str, Any]) -> Anatomy:
    """Return where the parts of a model with this config.json are: as in Llama, unless we know better."""
    return anatomies.anatomy_of(str(stored.get("model_type")), encoder_config_of(stored))


def brings(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a task that go with a base, by its config.json: whether tokens stand around a text.

    Where an encoder has a table of positions, also the most tokens that fit in it.
    """
    if _is_ours(stored):
        return {"framed": bool((stored.get("task") or {}).get("framed"))}
    encoder = encoder_config_of(stored)
    rows = anatomy_of(stored).most_rows(encoder)
    fits = {} if rows is None else {"max_length": min(rows - _MARKS_AND_END, _USUAL_LENGTH)}
    return {"framed": is_encoder(encoder.model_type), **fits}


def _is_ours(stored: dict[str, Any]) -> bool:
    return stored.get("model_type") in (FlexMDMConfig.model_type, RetrofitConfig.model_type)


def digest_of(parts: Parts) -> str:
    """Return a digest that tells the weights of one pretrained model from another's, in whatever precision they are.

    One half looks at the norms and at some rows of embedding and head, which no quantisation changes; the other, for
    weights that are not quantised, at a few of every matrix.
    """
    matrices = [p for block in parts.blocks for p in block.parameters() if p.ndim == 2 and p.is_floating_point()]
    fine = "" if is_quantised(parts.blocks) else _hash(p[:1, :64] for p in matrices)
    norms = [block.get_submodule(name) for block in parts.blocks for name in ("attention_norm", "feed_norm")]
    tables = [next(parts.embedding.parameters()), parts.head.get_parameter("weight")]
    ends = [rows for table in tables for rows in (table[:16], table[-16:])]
    return f"{_hash([*(p for norm in [*norms, parts.norm] for p in norm.parameters()), *ends])}-{fine}"


def _hash(weights: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.detach().to(torch.bfloat16).view(torch.int16).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def same_base(one: str | None, other: str | None) -> bool:
    """Return whether two of `digest_of` can be of the same weights.

    >>> same_base("a-b", "a-b"), same_base("a-b", "a-"), same_base("a-b", "a-c"), same_base("a-", "b-")
    (True, True, False, False)
    """
    (coarse, _, fine), (their_coarse, _, their_fine) = ((digest or "").partition("-") for digest in (one, other))
    return coarse == their_coarse and (not fine or not their_fine or fine == their_fine)


def as_stored(encoder: PretrainedConfig) -> dict[str, Any]:
    """Return the configuration of an encoder as a `RetrofitConfig` holds it."""
    return {"model_type": encoder.model_type, **encoder.to_diff_dict()}


def encoder_config_of(stored: dict[str, Any]) -> PretrainedConfig:
    """Return the configuration of the pretrained transformer from a config.json."""
    model_type = str(stored.get("model_type"))
    if model_type == llada.MODEL_TYPE:
        return llada.llama_config(stored)
    if model_type == RetrofitConfig.model_type:
        return RetrofitConfig(**stored).encoder_config
    if model_type == FlexMDMConfig.model_type:
        raise ValueError("a DiT has the parts of a FlexMDM already, only its insertion head is new: nothing to count")
    known = {name: value for name, value in stored.items() if name not in _OF_REMOTE_CODE}
    if known.get("rope_scaling", "") is None:  # an old way to say nothing, of which transformers warns
        known.pop("rope_scaling")
    try:
        return AutoConfig.for_model(**{**known, "model_type": RELATIVES.get(model_type, model_type)})
    except ValueError as error:
        raise ValueError(f"{model_type!r} is no architecture that transformers knows, nor LLaDA") from error


def check_base(
    base: str | Path, mask_id: int | None = None, four_bit: bool = False, adapters: bool = False
) -> dict[str, Any]:
    """Return the config.json of a base, with its mask token; raise before anything is loaded if it cannot be used."""
    stored = stored_config(base)
    ours = _is_ours(stored)
    files = ("*.safetensors",) if ours else ("*.safetensors", "pytorch_model*.bin")
    if Path(base).is_dir() and not any(file for pattern in files for file in Path(base).glob(pattern)):
        raise ValueError(f"{base} has no weights ({', '.join(files)}): train it first, or fetch them again")
    if adapters and stored.get("model_type") == FlexMDMConfig.model_type:
        raise ValueError(
            f"{base} is not built as adapters need it: train all its weights (--lora-rank 0), or begin with a network "
            "in LLaDA's shape (flexmdm train --architecture llada)"
        )
    if four_bit and ours:
        raise ValueError(f"{base} is a run, and only a pretrained model can be loaded in 4 bits")
    if four_bit:
        four_bits()
    if ours:
        return stored
    check_no_extras(base)
    if stored.get("is_decoder"):
        raise ValueError(f"{base} looks back only (is_decoder in its config.json): it has not learned to fill masks")
    mask = stored.get("mask_token_id") if mask_id is None else mask_id
    if mask is None:
        with suppress(Exception):  # there is no tokenizer, in any of many ways
            mask = pretrained_tokenizer(base).mask_token_id
    size = encoder_config_of(stored).vocab_size
    if mask is None:
        raise ValueError(f"{base} does not say which token is its mask: give its number (--mask-id)")
    if not 0 <= mask < size:
        raise ValueError(
            f"the mask token {mask} of {base} is outside its vocabulary of {size}: give another (--mask-id)"
        )
    return {**stored, "mask_token_id": mask}


def check_no_extras(base: str | Path) -> None:
    """Raise if a base is a FlexMDM already, in the layout that others published it in: its extras would be lost."""
    if has_extras(base):
        raise ValueError(
            f"{base} is a FlexMDM already, in the layout it was published in: write it as a run (flexmdm retrofit "
            f"{base} --merge --out FOLDER) and go on with that"
        )


def check_used(base: str | Path, anatomy: Anatomy, model: PreTrainedModel, info: Mapping[str, Any]) -> None:
    """Raise unless just those weights were loaded that a base needs; ``info`` is what `from_pretrained` says of them.

    Encoders come with heads for other tasks (a pooler, the next sentence), which have no part in it.
    """
    missing, unexpected = (set(info.get(f"{how}_keys", ())) for how in ("missing", "unexpected"))
    if is_encoder(model.config.model_type):
        body, used = f"{model.base_model_prefix}.", anatomy.outer
        heads = {path.rpartition(".")[0] or path for path in used if not path.startswith(body)}
        known = (body, *(f"{head}." for head in heads))
        missing = {name for name in missing if f"{name}.".startswith(tuple(f"{path}." for path in used))}
        unexpected = {name for name in unexpected if name.startswith(known) and not name.startswith(f"{body}pooler.")}
    check_whole(base, {"missing": missing, "unexpected": unexpected, "mismatched": info.get("mismatched_keys", ())})


def check_memory(
    base: str | Path, stored: dict[str, Any], dtype: torch.dtype | None, four_bit: bool, device_map: dict | None
) -> None:
    """Raise if the weights do not fit in the memory they are to be loaded into."""
    encoder = encoder_config_of(stored)
    with torch.device("meta"):
        count = sum(p.numel() for p in body_class(encoder.model_type).from_config(encoder).parameters())
    kept = stored.get("dtype") or stored.get("torch_dtype") or "bfloat16"
    each = 0.7 if four_bit else torch.finfo(dtype or getattr(torch, str(kept))).bits / 8  # tables stay in 16 bits
    if count * each > free_memory(device_map):
        raise too_large(base, f"about {count * each / 1e9:.1f} GB", device_map)


def too_large(base: str | Path, needed: str, device_map: dict[str, Any] | None) -> ValueError:
    """Return the error that weights need more memory than there is."""
    return ValueError(
        f"the weights of {base} need {needed} and {free_memory(device_map) / 1e9:.1f} GB are free where they are to be "
        "loaded: load them in bfloat16 (--dtype bfloat16) or in 4 bits (--four-bit) when you retrofit, or use a "
        "machine with more memory"
    )


def free_memory(device_map: dict[str, Any] | None) -> int:
    """Return the free bytes of the GPU that all weights go to, or of the machine."""
    if device_map is not None and (not isinstance(device_map, dict) or list(device_map) != [""]):
        raise ValueError(f'device_map is {{"": device}}: a model is not spread over devices, got {device_map!r}')
    if device_map is None or not torch.cuda.is_available():
        return psutil.virtual_memory().available
    return torch.cuda.mem_get_info(device_map[""])[0]


def four_bits() -> Any:
    """Return how weights are loaded in 4 bits; raise if they cannot be."""
    if not torch.cuda.is_available():
        raise ValueError("4 bits need a GPU, and there is none: leave out --four-bit")
    try:
        import bitsandbytes  # noqa: F401  # ty: ignore[import-not-found]
    except ImportError as error:
        raise ValueError("4 bits need bitsandbytes: pip install bitsandbytes") from error
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_type="nf4")
