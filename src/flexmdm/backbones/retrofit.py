"""Retrofitted models: made from a pretrained model or from a run of ours, saved, loaded and merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from flexmdm.backbones import bases, llada
from flexmdm.backbones.bases import Base
from flexmdm.backbones.encoder import Anatomy, Parts, body_class, body_of
from flexmdm.backbones.folders import check_whole, foreign, local_folder, stored_config
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
from flexmdm.backbones.retrofit_network import OF_ADDED_PARTS, Retrofit, RetrofitConfig, is_quantised


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
        anatomy = Anatomy(**config.anatomy)
        encoder = config.encoder_config
        parts = self.__dict__.pop("_parts") or Parts.of(body_class(encoder.model_type).from_config(encoder), anatomy)
        network = Retrofit(parts, config)
        if config.lora is not None:
            network.adapt(**config.lora, queries=anatomy.queries)
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
        device_map: dict[str, Any] | None = None,
        config: RetrofitConfig | None = None,
        **options: Any,
    ) -> Self:
        """Load what `save_pretrained` wrote.

        Args:
            dtype: of all weights; of a model with adapters, of the frozen ones. By default as they were.
            base: where the frozen weights are now, if they have moved.
            device_map: ``{"": device}`` loads frozen weights straight to a device.
            config: its configuration, for who has read it already, as `AutoModel`.
            options: ``revision`` and others that say what is fetched from the Hub.
        """
        folder = local_folder(folder, **options)
        if (found := stored_config(folder)).get("model_type") != RetrofitConfig.model_type:
            raise foreign(folder, found)
        config = config or RetrofitConfig.from_pretrained(folder)
        config.name_or_path = str(folder)
        if config.lora is None:
            model = cls.without_weights(config)
        else:
            config.base = base or config.base
            model = cls(config, cls._frozen_parts(config, folder, dtype, device_map))
        return model.filled(stored_weights(folder), folder, dtype=dtype)

    @classmethod
    def without_weights(cls, config: RetrofitConfig) -> Self:
        """Return a model that is to be `filled`; only what is computed and not stored is there."""
        body = body_of(config.encoder_config)
        with torch.device("meta"):
            return cls(config, Parts.of(body, Anatomy(**config.anatomy)))

    def filled(
        self,
        stored: Mapping[str, Tensor],
        where: Path,
        names: Callable[[str], str] = str,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Put stored weights in their places; raise unless they are just those that are kept of the model.

        Args:
            stored: the weights, by name.
            where: their folder, for an error.
            names: the stored name of each weight of the model.
            dtype: of the weights of a model without any.
        """
        kept = {name: value.shape for name, value in self.state_dict().items() if name in self.kept_weights}
        stored_as = {names(name): name for name in kept}
        other = [name for name in stored_as.keys() & stored if stored[name].shape != kept[stored_as[name]]]
        missing, unknown = stored_as.keys() - stored.keys(), stored.keys() - stored_as.keys()
        check_whole(where, {"are missing": missing, "are unknown": unknown, "are of another shape": other})
        state = {stored_as[name]: value for name, value in stored.items()}
        if self.config.lora is None:
            weights = dict(self.named_parameters())  # buffers keep their precision
            state = {name: value.to(dtype if name in weights else None) for name, value in state.items()}
        self.load_state_dict(state, strict=False, assign=self.config.lora is None)
        return self.eval()

    @classmethod
    def _frozen_parts(cls, config: RetrofitConfig, folder: Path, dtype: Any, device_map: dict | None = None) -> Parts:
        four_bit = dtype is None and config.base_dtype == "4-bit"
        dtype = dtype or (torch.float32 if config.base_dtype == "float32" else torch.bfloat16)
        anatomy = Anatomy(**config.anatomy)
        moved = f'if they are elsewhere now, write where as "base" in {folder / "config.json"}'
        try:
            loaded = load_base(config.base or "", dtype, config.mask_id, anatomy, four_bit, device_map)
        except ValueError as error:
            raise ValueError(
                f"the adapters of {folder} need the weights they were trained on: {error}; {moved}"
            ) from error
        if not bases.same_base(bases.digest_of(loaded.parts), config.base_digest):
            raise ValueError(
                f"{folder} was trained on top of other weights than those of {config.base}: an adapter fits only its "
                f"own base; {moved}"
            )
        return loaded.parts

    def check_checkpoint(self, folder: Path) -> None:
        then = RetrofitConfig.from_pretrained(folder).base_digest
        if not bases.same_base(self.config.base_digest, then):
            raise ValueError(
                f"{folder} was trained on top of other weights than those that {self.config.base} holds now: put those "
                "back, or begin a new run"
            )

    def merged(self) -> RetrofitModel:
        """Merge the adapters into the weights and return the model: from now on all weights are trained and saved.

        Weights in 4 bits cannot take up adapters: then it is another model, on the same weights in bfloat16.
        """
        if is_quantised(self.network):
            config = copy.deepcopy(self.config)
            config.base_dtype = "bfloat16"
            parts = self._frozen_parts(config, Path(config.name_or_path or "."), torch.bfloat16)
            whole = type(self)(config, parts)
            whole.load_state_dict({n: p for n, p in self.state_dict().items() if n in self.kept_weights}, strict=False)
            return whole.merged()
        self.network.merge_adapters()
        self.requires_grad_(True)
        self.config.lora = self.config.base = self.config.base_digest = self.config.base_dtype = None
        return self

    def count_trained(self) -> dict[str, int]:
        """Return the number of trained parameters, by part."""
        named = {"lora blocks": "lora on queries, keys, values", "lora head": "lora on the head"}
        named |= {"modulations": "adaln", "clock": "time embedding", "insertion_head": "insertion head"}
        named |= {**dict.fromkeys(("given", "open", "end"), "flags and end"), "": "pretrained"}
        counts = dict.fromkeys(named.values(), 0)
        for name, p in self.network.named_parameters():
            part = ("lora " if "lora_" in name else "") + name.partition(".")[0]
            counts[named.get(part, "pretrained")] += p.numel() if p.requires_grad else 0
        return {part: count for part, count in counts.items() if count}


def stored_weights(folder: Path, device: Any = "cpu") -> dict[str, Tensor]:
    """Return the weights in a folder, in one file or several, by name and on a device."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no weights (model.safetensors)")
    try:
        return {name: value for file in files for name, value in load_file(file, device).items()}
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged ({error}): fetch or train them again") from error


def load_base(
    base: str | Path,
    dtype: torch.dtype | None = None,
    mask_id: int | None = None,
    anatomy: Anatomy | None = None,
    four_bit: bool = False,
    device_map: dict[str, Any] | None = None,
) -> Base:
    """Load a pretrained model by its folder or its name on the Hub.

    Args:
        base: LLaDA under its own names, a model of transformers with the same anatomy, or a run of ours.
        dtype: of the weights; default: as they are stored.
        mask_id: its mask token, where its configuration does not say.
        anatomy: of a model that is not built like Llama.
        four_bit: load the weights in 4 bits; needs bitsandbytes and a GPU.
        device_map: ``{"": device}`` loads the weights straight to a device.
    """
    stored = bases.check_base(base, mask_id, four_bit)
    model_type = str(stored.get("model_type"))
    if model_type == RetrofitConfig.model_type:
        return base_of(RetrofitModel.from_pretrained(base, device_map=device_map).merged(), dtype)
    bases.check_memory(base, stored, dtype, four_bit, device_map)
    encoder, anatomy = bases.encoder_config_of(stored), anatomy or bases.anatomy_of(stored)
    options: dict[str, Any] = {"dtype": dtype or "auto", "device_map": device_map, "output_loading_info": True}
    options |= {"config": encoder, "trust_remote_code": False}
    if four_bit:
        options["quantization_config"] = bases.four_bits()
    if model_type == llada.MODEL_TYPE:
        options["key_mapping"] = llada.KEY_MAPPING
    try:
        model, info = body_class(encoder.model_type).from_pretrained(base, **options)
    except torch.OutOfMemoryError as error:
        raise bases.too_large(base, "more than there is", device_map) from error
    except UnpicklingError as error:
        raise ValueError(
            f"{base} holds more than tensors (pytorch_model.bin), and code from a checkpoint is not run: where you "
            "trust it, load it with the library that wrote it and save it again as safetensors"
        ) from error
    except Exception as error:  # of network, files and formats
        raise ValueError(
            f"{base} cannot be loaded: {str(error).strip().splitlines()[0]} (if a file is damaged or missing, "
            "fetch it again)"
        ) from error
    bases.check_used(base, anatomy, model, info)
    mask = stored["mask_token_id"]
    return Base(_take_apart(base, model, anatomy, mask), model.config, anatomy, mask)


_TRIAL_LENGTH = 8  # tokens
_ROUNDING, _ROUNDING_OF_4_BITS = 1e-4, 0.05  # of the largest logit


@torch.no_grad()
def _take_apart(base: str | Path, model: Any, anatomy: Anatomy, mask: int) -> Parts:
    """Take a model apart; raise if its parts put together again give other logits, as it has parts unknown to us.

    Both predict the masks among a few trial tokens that all attend to each other, in single precision.
    """
    size, pad = model.config.vocab_size, getattr(model.config, "pad_token_id", None)
    usual = [token for token in range(size) if token not in (mask, pad)][:_TRIAL_LENGTH] or [mask]
    index = torch.arange(_TRIAL_LENGTH, device=model.get_input_embeddings().weight.device)
    masked, tokens = index % 2 == 1, torch.tensor(usual, device=index.device)[index % len(usual)]
    causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    everything = index.new_ones(1, 1, _TRIAL_LENGTH, _TRIAL_LENGTH).bool() if causal else None
    with _single_precision(model):
        expected = model.eval()(tokens.masked_fill(masked, mask)[None], attention_mask=everything).logits[0]
    parts = Parts.of(model, anatomy)
    if model.config.tie_word_embeddings:  # adapters on the head must not change what is read
        parts.head.weight = nn.Parameter(parts.head.get_parameter("weight").detach().clone())
        model.config.tie_word_embeddings = False
    config = RetrofitConfig(
        encoder=bases.as_stored(model.config), anatomy=asdict(anatomy), mask_id=mask, insertions=False
    )
    network = Retrofit(parts, config).eval()
    tokens = tokens.masked_fill(masked, config.vocab_size)
    nothing = torch.zeros(_TRIAL_LENGTH + 1, device=tokens.device)
    lengths = nothing[:1].long() + _TRIAL_LENGTH
    try:
        with _single_precision(network):
            logits, _ = network(tokens, lengths, nothing[1:].bool(), nothing.bool(), nothing[:1])
    except Exception as error:  # whatever modules say that are called in another way than theirs
        raise ValueError(
            f"the parts of {base} cannot be called as those of Llama or BERT ({error}): this architecture cannot be "
            "retrofitted"
        ) from error
    rows = masked.nonzero().flatten() - int(anatomy.shifted)
    rounding = _ROUNDING_OF_4_BITS if is_quantised(network) else _ROUNDING
    if float((logits - expected[rows]).abs().max()) > rounding * float(expected.abs().max()):
        raise ValueError(
            f"{base} does more than its attention and feed-forward layers one after the other, so its parts put "
            "together again say something else: this architecture cannot be retrofitted"
        )
    return parts


@contextmanager
def _single_precision(network: nn.Module) -> Generator[None]:
    """Compute with weights of half precision in single precision, widened for one module at a time."""
    stored: dict[nn.Parameter, Tensor] = {}

    def widen(module: nn.Module, *_: Any) -> None:
        for p in module.parameters(recurse=False):
            if p.dtype in (torch.bfloat16, torch.float16):
                stored[p], p.data = p.data, p.data.float()

    def restore(module: nn.Module, *_: Any) -> None:
        for p in module.parameters(recurse=False):
            if p in stored:
                p.data = stored.pop(p)

    hooks = [module.register_forward_pre_hook(widen) for module in network.modules()]
    hooks += [module.register_forward_hook(restore, always_call=True) for module in network.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def base_of(model: RetrofitModel, dtype: torch.dtype | None = None) -> Base:
    """Return the pretrained part of one of our own models without adapters, with its weights in any precision."""
    network = model.network
    names = [one.name for one in fields(Parts)]
    parts = Parts(**{name: getattr(network, name) for name in names})
    for part in (parts.embedding, parts.projection, parts.blocks, parts.norm, parts.head):
        for p in part.parameters():  # not buffers
            p.data = p.data.to(dtype or p.dtype)
    return Base(parts, model.config.encoder_config, Anatomy(**model.config.anatomy), model.config.mask_id)


def retrofit(
    base: str | Path,
    insertions: bool = True,
    groups: int = 4,
    lora: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    mask_id: int | None = None,
    anatomy: Anatomy | None = None,
    four_bit: bool = False,
    device_map: dict[str, Any] | None = None,
    **common: Any,
) -> FlexMDMModel:
    """Return a model that starts as the pretrained one, ``base``, is.

    An MDM becomes a FlexMDM if it is to have ``insertions``; what is a FlexMDM already goes on as it is. A DiT can also
    become an MDM: if its templates had known lengths among them, it can fill masks already.

    Args:
        base: as `load_base` takes it, or a run.
        insertions: whether it is to be a FlexMDM.
        groups, lora: of the `RetrofitConfig`; there are at most as many groups as layers.
        dtype, mask_id, anatomy, four_bit, device_map: as `load_base` takes them.
        common: the rest of the configuration: expected_gap, regions, interpolant, task.
    """
    base = str(Path(base).resolve()) if Path(base).exists() else str(base)
    common["insertions"] = insertions
    stored = bases.check_base(base, mask_id, four_bit, lora is not None)
    if stored["model_type"] == FlexMDMConfig.model_type:
        own = FlexMDMModel.from_pretrained(base)
        return _continued(own, common) if own.config.insertions == insertions else _converted(own, common)
    if stored["model_type"] != RetrofitConfig.model_type:
        loaded, learned = load_base(base, dtype, mask_id, anatomy, four_bit, device_map), {}
    else:
        run = RetrofitModel.from_pretrained(base, device_map=device_map)  # in the precision it was trained in
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
            common |= {name: getattr(run.config, name) for name in OF_ADDED_PARTS}
        loaded = base_of(run.merged(), dtype)
    if lora:
        precision = "4-bit" if four_bit else str(dtype or torch.float32).removeprefix("torch.")
        common |= {"base": base, "base_digest": bases.digest_of(loaded.parts), "base_dtype": precision}
    config = RetrofitConfig(
        encoder=bases.as_stored(loaded.encoder),
        anatomy=asdict(loaded.anatomy),
        groups=min(groups, len(loaded.parts.order)),
        lora=lora,
        mask_id=loaded.mask_id,
        **common,
    )
    model = RetrofitModel(config, loaded.parts)
    for name, state in learned.items():
        model.network.get_submodule(name).load_state_dict(state)
    return model.train()


def _continued(model: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """Return a model that needs no other parts, ready for training on another task."""
    model.name_or_path = ""  # what lies beside its weights belongs to the task it had
    model.config.trainings = getattr(model.config, "trainings", 0) + 1
    model.config.task = common.get("task")
    model.config.interpolant = common.get("interpolant") or model.config.interpolant
    if getattr(model.config, "lora", None) is None:  # what is trained is trained in full precision
        model.float()
    return model.train()


def untrained(encoder: PretrainedConfig, mask_id: int, **common: Any) -> RetrofitModel:
    """Return a new model in the body of an encoder, for pretraining."""
    return RetrofitModel(RetrofitConfig(encoder=bases.as_stored(encoder), mask_id=mask_id, **common))


def _converted(dit: FlexMDMModel, common: dict[str, Any]) -> FlexMDMModel:
    """Return a FlexMDM from an MDM, or an MDM from a FlexMDM: a DiT gets or loses only its insertion head."""
    own: dict[str, Any] = {name: getattr(dit.config, name) for name in FlexMDMConfig.__annotations__}
    own |= {"task": None, "regions": None, "expected_gap": 1.0} | common
    model = FlexMDMModel(FlexMDMConfig(**own))
    model.load_state_dict(dit.state_dict(), strict=False)
    return model.train()


AutoConfig.register(RetrofitConfig.model_type, RetrofitConfig, exist_ok=True)
AutoModel.register(RetrofitConfig, RetrofitModel, exist_ok=True)
