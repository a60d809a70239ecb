"""Models to start from: LLaDA, its relatives in transformers, and our own runs, MDM or FlexMDM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM, PretrainedConfig, Qwen2ForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from flexmdm.backbones import llada
from flexmdm.backbones.encoder import MODERN_BERT, Anatomy, Parts, body_class
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.backbones.retrofit import Retrofit, RetrofitConfig, RetrofitModel, digest_of


@dataclass(frozen=True, eq=False)
class Base:
    """A pretrained masked diffusion model, taken apart.

    Attributes:
        parts: its modules.
        encoder: its configuration in transformers.
        anatomy: where the parts were.
        mask_id: its mask token.
    """

    parts: Parts
    encoder: PretrainedConfig
    anatomy: Anatomy
    mask_id: int


def load_base(
    place: str | Path,
    dtype: torch.dtype | None = None,
    mask_id: int | None = None,
    anatomy: Anatomy | None = None,
    four_bit: bool = False,
    **options: Any,
) -> Base:
    """A pretrained model by its folder or its name on the Hub.

    Args:
        place: LLaDA under its own names, a model of transformers with the same anatomy, or a run of ours.
        dtype: of the weights; default: as they are stored.
        mask_id: its mask token, where its configuration does not say.
        anatomy: of a model that is not built like Llama.
        four_bit: load the weights in 4 bits; needs bitsandbytes and a GPU.
        options: for ``from_pretrained`` of transformers, such as ``device_map``.
    """
    stored = check_base(place, mask_id, four_bit)
    if stored.get("model_type") == RetrofitConfig.model_type:
        return base_of(RetrofitModel.from_pretrained(place, **options).merged(), dtype)
    _check_room(place, stored, dtype, four_bit, options.get("device_map"))
    if four_bit:
        options["quantization_config"] = _four_bits()
    if stored.get("model_type") in (llada.MODEL_TYPE, _DREAM):
        options["config"] = encoder_config_of(stored)
    if stored.get("model_type") == llada.MODEL_TYPE:
        options["key_mapping"] = llada.KEY_MAPPING
    kind = str(stored.get("model_type"))
    body: Any = _BODIES.get(kind) or body_class(kind)
    try:
        model, info = body.from_pretrained(place, dtype=dtype or "auto", output_loading_info=True, **options)
    except torch.OutOfMemoryError as error:
        raise ValueError(_too_large(place, "more than there is", free_memory(options.get("device_map")))) from error
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"{place} cannot be loaded: {str(error).strip().splitlines()[0]} (if a file is damaged or missing, "
            "fetch it again)"
        ) from error
    _check_whole(place, info)
    if any(p.is_meta for p in model.parameters()):
        raise ValueError(
            f"{place} does not fit on the devices of its device_map: weights on disk cannot be retrofitted"
        )
    anatomy = anatomy or anatomy_of(stored)
    if model.config.tie_word_embeddings:  # adapters on the head must not change what is read
        head = model.get_submodule(anatomy.head)
        head.weight = nn.Parameter(head.get_parameter("weight").detach().clone())
        model.config.tie_word_embeddings = False
    mask = stored["mask_token_id"]
    expected = _own_words(model, mask)
    parts = Parts.of(model, anatomy)
    _check_assembled(place, Retrofit(parts, 1, model.config.vocab_size, mask, False, shifted=anatomy.shifted), expected)
    return Base(parts, model.config, anatomy, mask)


_DREAM = "Dream"  # Qwen2 with bidirectional attention
_BODIES = {llada.MODEL_TYPE: LlamaForCausalLM, _DREAM: Qwen2ForCausalLM}


def anatomy_of(stored: dict[str, Any]) -> Anatomy:
    """Where the parts are in a model of which config.json says this, as far as we know: else as in Llama."""
    return {_DREAM: Anatomy(shifted=True), "modernbert": MODERN_BERT}.get(str(stored.get("model_type")), Anatomy())


def _mask_of(place: str | Path, stored: dict[str, Any]) -> int | None:
    """The mask token by the configuration, or by the tokenizer beside it."""
    if stored.get("mask_token_id") is not None:
        return stored["mask_token_id"]
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(place)
        return tokenizer.mask_token_id
    except Exception:  # there is none, in any of many ways
        return None


_TRIED = 8  # tokens


def _trial(mask: int, vocab_size: int, device: torch.device) -> Tensor:
    """``[_TRIED]``: some tokens, every other one a mask."""
    place = torch.arange(_TRIED, device=device)
    return (place % vocab_size).where(place % 2 == 0, mask)


@torch.no_grad()
def _own_words(model: Any, mask: int) -> Tensor:
    """What a pretrained model itself says of a few tokens that see each other, ``[_TRIED, V]``."""
    device = model.get_input_embeddings().weight.device
    causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    everything = torch.ones(1, 1, _TRIED, _TRIED, dtype=torch.bool, device=device) if causal else None
    return model.eval()(_trial(mask, model.config.vocab_size, device)[None], attention_mask=everything).logits[0]


@torch.no_grad()
def _check_assembled(place: str | Path, network: Retrofit, expected: Tensor) -> None:
    """Say so if its parts put together again do not say what it said: then it has parts that we do not know of."""
    tokens = _trial(network.vocab_size, network.vocab_size, next(network.embedding.parameters()).device)
    nothing = torch.zeros(_TRIED + 1, device=tokens.device)
    said, _ = network.eval()(tokens, nothing[:1].long() + _TRIED, nothing[1:].bool(), nothing.bool(), nothing[:1])
    rows = (tokens == network.vocab_size).nonzero().flatten() - int(network.shifted)
    expected = expected.to(tokens.device)  # of a model over several devices, the last
    if float((said - expected[rows]).abs().max()) > _ROUNDING * float(expected.abs().max()):
        raise ValueError(
            f"{place} does more than its attention and feed-forward layers one after the other, so its parts put "
            "together again say something else: this architecture cannot be retrofitted"
        )


_ROUNDING = 0.05  # of the largest logit; half precision takes other orders of summation for other kernels


def base_of(model: RetrofitModel, dtype: torch.dtype | None = None) -> Base:
    """What one of our own models without adapters was built on; its weights as they are, or in another precision."""
    network = model.network
    parts = Parts(network.embedding, network.blocks, network.norm, network.head, network.rotary)
    for part in (parts.embedding, parts.blocks, parts.norm, parts.head):
        for p in part.parameters():  # not buffers
            p.data = p.data.to(dtype or p.dtype)
    return Base(parts, model.config.encoder_config, Anatomy.from_dict(model.config.anatomy), model.config.mask_id)


def retrofit(
    place: str | Path,
    insertions: bool = True,
    groups: int = 4,
    lora: dict[str, Any] | None = None,
    expected_gap: float = 1.0,
    regions: tuple[float, float] | None = None,
    interpolant: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    **options: Any,
) -> FlexMDMModel:
    """A model that starts as the one at ``place`` is.

    An MDM becomes a FlexMDM if it is to have ``insertions``; what is a FlexMDM already goes on as it is. A DiT can also
    become an MDM: if its templates had known lengths among them, it can fill masks already.

    Args:
        place: as `load_base` takes it, or a run.
        insertions: whether it is to be a FlexMDM.
        groups, lora, expected_gap, regions: of the `RetrofitConfig`; there are at most as many groups as layers.
        interpolant, task: what it will be trained on.
        options: for `load_base`.
    """
    place = str(Path(place).resolve()) if Path(place).exists() else str(place)
    common: dict[str, Any] = {
        "insertions": insertions,
        "expected_gap": expected_gap,
        "regions": regions,
        "interpolant": interpolant,
        "task": task,
    }
    kind = check_base(place, options.get("mask_id"), options.get("four_bit", False), lora is not None)["model_type"]
    if kind == FlexMDMConfig.model_type:
        own = FlexMDMModel.from_pretrained(place)
        return _going_on(own, common) if own.config.insertions == insertions else _other_kind(own, common)
    if kind != RetrofitConfig.model_type:
        base, learned = load_base(place, **options), {}
    else:
        placed = {name: options[name] for name in ("device_map",) if name in options}
        run = RetrofitModel.from_pretrained(place, **placed)  # in the precision it was trained in
        if run.config.insertions and not insertions:
            raise ValueError(f"{place} is a FlexMDM: it cannot become an MDM; start from the MDM it was made from")
        if run.config.lora is not None and lora not in (None, run.config.lora):
            raise ValueError(
                f"{place} has adapters already, {run.config.lora}: go on with these, or merge them first "
                f"(flexmdm retrofit {place} --merge --out FOLDER)"
            )
        if run.config.insertions == insertions and run.config.lora == (lora or run.config.lora):
            return _going_on(run, common)
        learned = {name: part.state_dict() for name, part in run.network.added.items()}
        groups = run.config.groups if learned else groups
        base = base_of(run.merged(), options.get("dtype"))
    config = RetrofitConfig(
        encoder=as_stored(base.encoder),
        anatomy=base.anatomy.to_dict(),
        groups=min(groups, len(base.parts.blocks)),
        lora=lora,
        base=place if lora else None,
        base_digest=digest_of(base.parts) if lora else None,
        base_dtype=_precision(options) if lora else None,
        mask_id=base.mask_id,
        **common,
    )
    model = RetrofitModel(config, base.parts)
    for name, state in learned.items():
        model.network.get_submodule(name).load_state_dict(state)
    return model.train()


def _precision(options: dict[str, Any]) -> str:
    return "4-bit" if options.get("four_bit") else str(options.get("dtype") or torch.float32).removeprefix("torch.")


def _going_on(model: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """What is already what it is to be, with another task."""
    model.config.task = common["task"]
    model.config.interpolant = common["interpolant"] or model.config.interpolant
    if getattr(model.config, "lora", None) is None:  # what is trained is trained in full precision
        model.float()
    return model.train()


def untrained(encoder: PretrainedConfig, mask_id: int, **common: Any) -> RetrofitModel:
    """A new model in the body of an encoder: what pretraining begins with."""
    return RetrofitModel(RetrofitConfig(encoder=as_stored(encoder), mask_id=mask_id, **common))


def as_stored(encoder: PretrainedConfig) -> dict[str, Any]:
    """As a `RetrofitConfig` holds it."""
    return {"model_type": encoder.model_type, **encoder.to_diff_dict()}


def _other_kind(dit: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """A FlexMDM from an MDM or an MDM from a FlexMDM: in our DiT only the insertion head is new, or left out."""
    sizes = ("vocab_size", "hidden_size", "num_layers", "num_heads", "condition_size")
    kept = (*sizes, "dropout", "neighbours", "clock", "mask_id")
    model = FlexMDMModel(FlexMDMConfig(**{name: getattr(dit.config, name) for name in kept}, **common))
    model.load_state_dict(dit.state_dict(), strict=False)
    return model.train()


def encoder_config_of(stored: dict[str, Any]) -> PretrainedConfig:
    """The configuration of a body in transformers, from what config.json says."""
    kind = stored.get("model_type")
    if kind == llada.MODEL_TYPE:
        return llada.llama_config(stored)
    if kind == RetrofitConfig.model_type:
        return RetrofitConfig(**stored).encoder_config
    if kind == FlexMDMConfig.model_type:
        raise ValueError("a DiT has the parts of a FlexMDM already, only its insertion head is new: nothing to count")
    if kind == _DREAM:
        kind = "qwen2"
    try:
        return AutoConfig.for_model(str(kind), **{key: value for key, value in stored.items() if key != "model_type"})
    except ValueError as error:
        raise ValueError(f"{kind!r} is no architecture that transformers knows, nor LLaDA") from error


def stored_config(place: str | Path) -> dict[str, Any]:
    """What config.json says, of a folder or of a name on the Hub."""
    if place in ("", None):
        raise ValueError("it does not say which pretrained model it belongs to")
    on_the_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", str(place)) and not Path(place).parent.exists()
    try:
        if not on_the_hub and not (Path(place) / "config.json").is_file():
            raise OSError("no config.json there")
        stored, _ = PretrainedConfig.get_config_dict(str(place))
    except Exception as error:  # network, hub, formats
        raise ValueError(
            f"there is no pretrained model {str(place)!r} ({str(error).strip().splitlines()[0]}): give a folder with "
            "config.json and safetensors, or OWNER/NAME on the Hugging Face Hub"
        ) from error
    return stored


def check_base(
    place: str | Path, mask_id: int | None = None, four_bit: bool = False, adapters: bool = False
) -> dict[str, Any]:
    """Say what speaks against a base before anything is loaded or prepared; gives its config.json, with its mask."""
    stored = stored_config(place)
    if Path(place).is_dir() and not any(Path(place).glob("*.safetensors")):
        raise ValueError(f"{place} has no weights (*.safetensors): train it first, or fetch them again")
    ours = stored.get("model_type") in (FlexMDMConfig.model_type, RetrofitConfig.model_type)
    if adapters and stored.get("model_type") == FlexMDMConfig.model_type:
        raise ValueError(
            f"{place} is not built as adapters need it: train all its weights (--lora-rank 0), or begin with a network "
            "in LLaDA's shape (flexmdm train --architecture llada)"
        )
    if four_bit and ours:
        raise ValueError(f"{place} is a run, and only a pretrained model can be loaded in 4 bits")
    if four_bit:
        _four_bits()
    if ours:
        return stored
    mask = _mask_of(place, stored) if mask_id is None else mask_id
    size = encoder_config_of(stored).vocab_size
    if mask is None:
        raise ValueError(f"{place} does not say which token is its mask: give its number (--mask-id)")
    if not 0 <= mask < size:
        raise ValueError(
            f"the mask token {mask} of {place} is outside its vocabulary of {size}: give another (--mask-id)"
        )
    return {**stored, "mask_token_id": mask}


def _check_whole(place: str | Path, info: dict[str, Any]) -> None:
    problems = [
        f"{len(info[key])} {key.partition('_')[0]} ({', '.join(map(str, sorted(info[key])[:3]))})"
        for key in _KEYS
        if info.get(key)
    ]
    if problems:
        raise ValueError(
            f"{place} is not a whole checkpoint of what its config.json says: weights {'; '.join(problems)}. Fetch all "
            "of its files again, from one place"
        )


_KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")


def _check_room(
    place: str | Path, stored: dict[str, Any], dtype: torch.dtype | None, four_bit: bool, device_map: Any
) -> None:
    """Say it before the machine does, if the weights do not fit in the memory they are to be loaded into."""
    encoder = encoder_config_of(stored)
    with torch.device("meta"):
        count = sum(p.numel() for p in body_class(encoder.model_type).from_config(encoder).parameters())
    kept = stored.get("dtype") or stored.get("torch_dtype") or "bfloat16"
    each = 0.7 if four_bit else torch.finfo(dtype or getattr(torch, str(kept))).bits / 8  # tables stay in 16 bits
    needed, free = count * each, free_memory(device_map)
    if needed > free:
        raise ValueError(_too_large(place, f"about {needed / 1e9:.1f} GB", free))


def _too_large(place: str | Path, needed: str, free: int) -> str:
    return (
        f"the weights of {place} need {needed} and {free / 1e9:.1f} GB are free where they are to be loaded: load them "
        "in bfloat16 (--dtype bfloat16) or in 4 bits (--four-bit) when you retrofit, or use a machine with more memory"
    )


def free_memory(device_map: Any = None) -> int:
    """Bytes that can be had without swapping: of the machine, of one GPU, or of all of both for a map over several."""
    free = psutil.virtual_memory().available
    if device_map is None or not torch.cuda.is_available():
        return free
    if isinstance(device_map, dict) and list(device_map) == [""]:
        return torch.cuda.mem_get_info(device_map[""])[0]
    return free + sum(torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count()))


def _four_bits() -> Any:
    if not torch.cuda.is_available():
        raise ValueError("4 bits need a GPU, and there is none: leave out --four-bit")
    try:
        import bitsandbytes  # noqa: F401  # ty: ignore[import-not-found]
    except ImportError as error:
        raise ValueError("4 bits need bitsandbytes: pip install bitsandbytes") from error
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_type="nf4")
