"""Retrofitted models: made from a pretrained model or from a run of ours, saved, loaded and merged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, PretrainedConfig

from flexmdm.backbones.bases import Base, as_stored, check_base, digest_of, load_pretrained, same_base
from flexmdm.backbones.encoder import Anatomy, Parts, body_class
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.backbones.retrofit_network import Retrofit, RetrofitConfig


class RetrofitModel(FlexMDMModel):
    """A `Retrofit` with its configuration: trained, saved, loaded and used like any `FlexMDMModel`.

    With adapters only what was trained is saved, and the frozen weights are loaded from where they were.
    """

    config_class = RetrofitConfig
    config: RetrofitConfig

    def __init__(self, config: RetrofitConfig, parts: Parts | None = None) -> None:
        self._parts = parts
        super().__init__(config)

    def make_network(self, config: Any) -> Retrofit:
        anatomy = Anatomy.from_dict(config.anatomy)
        encoder = config.encoder_config
        parts = self.__dict__.pop("_parts") or Parts.of(body_class(encoder.model_type).from_config(encoder), anatomy)
        network = Retrofit(
            parts,
            config.hidden_size,
            config.vocab_size,
            config.mask_id,
            config.insertions,
            config.groups,
            config.expected_gap,
            anatomy.shifted,
            config.regions,
        )
        if config.lora is not None:
            network.adapt(config.lora["rank"], config.lora["alpha"], config.lora["dropout"], anatomy.queries)
        return network

    # Saving and loading -----------------------------------------------------------------------------------------------

    @property
    def kept_weights(self) -> set[str]:
        """Return the names of all weights; of a model with adapters, of those that are trained."""
        if self.config.lora is None:
            return super().kept_weights
        return {name for name, p in self.named_parameters() if p.requires_grad}

    def save_pretrained(self, save_directory: Any, *_: Any, state_dict: dict | None = None, **options: Any) -> None:
        state, kept = self.state_dict() if state_dict is None else state_dict, self.kept_weights
        state = {name: value for name, value in state.items() if name in kept}
        super().save_pretrained(save_directory, state_dict=state, **options)

    @classmethod
    def from_pretrained(
        cls,
        folder: Any,
        *_: Any,
        dtype: torch.dtype | None = None,
        base: str | None = None,
        config: RetrofitConfig | None = None,
        **options: Any,
    ) -> Self:
        """Load what `save_pretrained` wrote.

        Args:
            folder: where; or a name on the Hub.
            dtype: of all weights; of a model with adapters, of the frozen ones. By default as they were.
            base: where the frozen weights are now, if they have moved.
            config: its configuration, for who has read it already.
            options: for loading the frozen weights, such as ``device_map``.
        """
        folder = Path(folder) if Path(folder).is_dir() else Path(snapshot_download(str(folder)))
        config = config or RetrofitConfig.from_pretrained(folder)
        stored = _stored_weights(folder)
        if config.lora is None:
            model = cls._assembled(config, stored, dtype, folder)
        else:
            config.base = base or config.base
            model = cls(config, cls._frozen_parts(config, folder, dtype, options))
            _check_weights(stored, {name: model.get_parameter(name) for name in model.kept_weights}, folder)
            model.load_state_dict(stored, strict=False)
        return model.eval()

    @classmethod
    def _assembled(
        cls, config: RetrofitConfig, stored: dict[str, Tensor], dtype: torch.dtype | None, folder: Path
    ) -> Self:
        with torch.device("meta"):
            model = cls(config)
        _check_weights(stored, model.state_dict(), folder)
        model.load_state_dict({name: value.to(dtype or value.dtype) for name, value in stored.items()}, assign=True)
        rotary = model.network.rotary
        model.network.rotary = type(rotary)(config.encoder_config)  # its buffers are computed, not stored
        return model

    @classmethod
    def _frozen_parts(cls, config: RetrofitConfig, folder: Path, dtype: Any, options: dict[str, Any]) -> Parts:
        four_bit = dtype is None and config.base_dtype == "4-bit"
        usual = torch.float32 if config.base_dtype == "float32" else torch.bfloat16
        moved = f'if they are elsewhere now, write where as "base" in {folder / "config.json"}'
        try:
            loaded = load_base(
                config.base or "",
                dtype=dtype or usual,
                mask_id=config.mask_id,
                anatomy=Anatomy.from_dict(config.anatomy),
                four_bit=four_bit,
                **options,
            )
        except ValueError as error:
            raise ValueError(
                f"the adapters of {folder} need the weights they were trained on: {error}; {moved}"
            ) from error
        if not same_base(digest_of(loaded.parts), config.base_digest):
            raise ValueError(
                f"{folder} was trained on top of other weights than those of {config.base}: an adapter fits only its "
                f"own base; {moved}"
            )
        return loaded.parts

    def check_checkpoint(self, folder: Path) -> None:
        then = RetrofitConfig.from_pretrained(folder).base_digest
        if not same_base(self.config.base_digest, then):
            raise ValueError(
                f"{folder} was trained on top of other weights than those that {self.config.base} holds now: put those "
                "back, or begin a new run"
            )

    def merged(self) -> RetrofitModel:
        """Merge the adapters into the weights and return the model: from now on all weights are trained and saved.

        Weights in 4 bits cannot take up adapters: then it is another model, on the same weights in bfloat16.
        """
        if self.network.quantised:
            config = copy.deepcopy(self.config)
            config.base_dtype = "bfloat16"
            parts = self._frozen_parts(config, Path(config.name_or_path or "."), torch.bfloat16, {})
            whole = type(self)(config, parts)
            whole.load_state_dict({n: p for n, p in self.state_dict().items() if n in self.kept_weights}, strict=False)
            return whole.merged()
        self.network.merge_adapters()
        self.requires_grad_(True)
        self.config.lora = self.config.base = self.config.base_digest = self.config.base_dtype = None
        return self

    def count_parameters(self) -> dict[str, int]:
        """Return the number of all parameters, and of those of the input embeddings."""
        table = sum(p.numel() for p in self.network.embedding.parameters())
        return {"total": sum(p.numel() for p in self.parameters()), "input_embedding": table}

    def count_trained(self) -> dict[str, int]:
        """Return the number of trained parameters, by part."""
        parts = {"lora on queries, keys, values": 0, "lora on the head": 0, "adaln": 0, "time embedding": 0}
        parts |= {"insertion head": 0, "flags and end": 0, "pretrained": 0}
        for name, p in self.network.named_parameters():
            if p.requires_grad:
                parts[_part_of(name)] += p.numel()
        return {part: count for part, count in parts.items() if count}


def _part_of(name: str) -> str:
    if "lora_" in name:
        return "lora on the head" if name.startswith("head") else "lora on queries, keys, values"
    named = {"modulations": "adaln", "clock": "time embedding", "insertion_head": "insertion head"}
    named |= dict.fromkeys(("given", "open", "end"), "flags and end")
    return named.get(name.partition(".")[0], "pretrained")


def _stored_weights(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no weights (model.safetensors)")
    try:
        return {name: value for file in files for name, value in load_file(file).items()}
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged ({error}): fetch or train them again") from error


def _check_weights(stored: dict[str, Tensor], wanted: Mapping[str, Tensor], where: Any) -> None:
    missing, unknown = sorted(set(wanted) - set(stored)), sorted(set(stored) - set(wanted))
    other = [name for name in set(wanted) & set(stored) if wanted[name].shape != stored[name].shape]
    if missing or unknown or other:
        groups = {"missing": missing, "unknown": unknown, "of another shape": other}
        faults = [f"{len(names)} are {how} ({', '.join(names[:3])})" for how, names in groups.items() if names]
        raise ValueError(
            f"{where} is not a whole checkpoint of what its config.json says: of its weights {'; '.join(faults)}. "
            "Fetch it again, or train it again"
        )


def load_base(
    base: str | Path,
    dtype: torch.dtype | None = None,
    mask_id: int | None = None,
    anatomy: Anatomy | None = None,
    four_bit: bool = False,
    **options: Any,
) -> Base:
    """Load a pretrained model by its folder or its name on the Hub.

    Args:
        base: LLaDA under its own names, a model of transformers with the same anatomy, or a run of ours.
        dtype: of the weights; default: as they are stored.
        mask_id: its mask token, where its configuration does not say.
        anatomy: of a model that is not built like Llama.
        four_bit: load the weights in 4 bits; needs bitsandbytes and a GPU.
        options: for ``from_pretrained`` of transformers, such as ``device_map``.
    """
    stored = check_base(base, mask_id, four_bit)
    if stored.get("model_type") == RetrofitConfig.model_type:
        return base_of(RetrofitModel.from_pretrained(base, **options).merged(), dtype)
    return load_pretrained(base, stored, dtype, anatomy, four_bit, **options)


def base_of(model: RetrofitModel, dtype: torch.dtype | None = None) -> Base:
    """Return the pretrained part of one of our own models without adapters, with its weights in any precision."""
    network = model.network
    parts = Parts(network.embedding, network.blocks, network.norm, network.head, network.rotary)
    for part in (parts.embedding, parts.blocks, parts.norm, parts.head):
        for p in part.parameters():  # not buffers
            p.data = p.data.to(dtype or p.dtype)
    return Base(parts, model.config.encoder_config, Anatomy.from_dict(model.config.anatomy), model.config.mask_id)


def retrofit(
    base: str | Path,
    insertions: bool = True,
    groups: int = 4,
    lora: dict[str, Any] | None = None,
    expected_gap: float = 1.0,
    regions: tuple[float, float] | None = None,
    interpolant: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    **options: Any,
) -> FlexMDMModel:
    """Return a model that starts as the pretrained one, ``base``, is.

    An MDM becomes a FlexMDM if it is to have ``insertions``; what is a FlexMDM already goes on as it is. A DiT can also
    become an MDM: if its templates had known lengths among them, it can fill masks already.

    Args:
        base: as `load_base` takes it, or a run.
        insertions: whether it is to be a FlexMDM.
        groups, lora, expected_gap, regions: of the `RetrofitConfig`; there are at most as many groups as layers.
        interpolant, task: what it will be trained on.
        options: for `load_base`.
    """
    base = str(Path(base).resolve()) if Path(base).exists() else str(base)
    common: dict[str, Any] = {
        "insertions": insertions,
        "expected_gap": expected_gap,
        "regions": regions,
        "interpolant": interpolant,
        "task": task,
    }
    stored = check_base(base, options.get("mask_id"), options.get("four_bit", False), lora is not None)
    if stored["model_type"] == FlexMDMConfig.model_type:
        own = FlexMDMModel.from_pretrained(base)
        return _continued(own, common) if own.config.insertions == insertions else _converted(own, common)
    if stored["model_type"] != RetrofitConfig.model_type:
        loaded, learned = load_base(base, **options), {}
    else:
        devices = {name: options[name] for name in ("device_map",) if name in options}
        run = RetrofitModel.from_pretrained(base, **devices)  # in the precision it was trained in
        if run.config.insertions and not insertions:
            raise ValueError(f"{base} is a FlexMDM: it cannot become an MDM; start from the MDM it was made from")
        if run.config.lora is not None and lora not in (None, run.config.lora):
            raise ValueError(
                f"{base} has adapters already, {run.config.lora}: go on with these, or merge them first "
                f"(flexmdm retrofit {base} --merge --out FOLDER)"
            )
        if run.config.insertions == insertions and run.config.lora == (lora or run.config.lora):
            return _continued(run, common)
        learned = {name: part.state_dict() for name, part in run.network.added.items()}
        groups = run.config.groups if learned else groups
        if learned:  # the head was trained with these
            common |= {"regions": run.config.regions, "expected_gap": run.config.expected_gap}
        loaded = base_of(run.merged(), options.get("dtype"))
    config = RetrofitConfig(
        encoder=as_stored(loaded.encoder),
        anatomy=loaded.anatomy.to_dict(),
        groups=min(groups, len(loaded.parts.blocks)),
        lora=lora,
        base=base if lora else None,
        base_digest=digest_of(loaded.parts) if lora else None,
        base_dtype=_precision(options) if lora else None,
        mask_id=loaded.mask_id,
        **common,
    )
    model = RetrofitModel(config, loaded.parts)
    for name, state in learned.items():
        model.network.get_submodule(name).load_state_dict(state)
    return model.train()


def _precision(options: dict[str, Any]) -> str:
    return "4-bit" if options.get("four_bit") else str(options.get("dtype") or torch.float32).removeprefix("torch.")


def _continued(model: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """Return a model that needs no other parts, ready for training on another task."""
    model.config.task = common["task"]
    model.config.interpolant = common["interpolant"] or model.config.interpolant
    if getattr(model.config, "lora", None) is None:  # what is trained is trained in full precision
        model.float()
    return model.train()


def untrained(encoder: PretrainedConfig, mask_id: int, **common: Any) -> RetrofitModel:
    """Return a new model in the body of an encoder, for pretraining."""
    return RetrofitModel(RetrofitConfig(encoder=as_stored(encoder), mask_id=mask_id, **common))


def _converted(dit: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """Return a FlexMDM from an MDM, or an MDM from a FlexMDM: a DiT gets or loses only its insertion head."""
    sizes = ("vocab_size", "hidden_size", "num_layers", "num_heads", "condition_size")
    kept = (*sizes, "dropout", "neighbours", "clock", "mask_id")
    model = FlexMDMModel(FlexMDMConfig(**{name: getattr(dit.config, name) for name in kept}, **common))
    model.load_state_dict(dit.state_dict(), strict=False)
    return model.train()


AutoConfig.register(RetrofitConfig.model_type, RetrofitConfig, exist_ok=True)
AutoModel.register(RetrofitConfig, RetrofitModel, exist_ok=True)
