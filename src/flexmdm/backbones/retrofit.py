"""FlexMDM in the body of a pretrained masked diffusion model: a time embedding, AdaLN, flags and an insertion head.

Before training the new parts change nothing: the token logits are those of the pretrained model, whatever the clock
says. An MDM is the same without the new parts.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MethodType
from typing import Any, Self

import torch
from huggingface_hub import snapshot_download
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, PretrainedConfig

from flexmdm.backbones.attention import Layout, prefers_varlen
from flexmdm.backbones.dit import Clock
from flexmdm.backbones.encoder import Anatomy, Block, Parts, body_class, rotations
from flexmdm.backbones.heads import Regions, insertion_head
from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel


class Retrofit(nn.Module):
    """A pretrained transformer with what FlexMDM needs beyond it.

    Row i of a sequence stands for entry i and for the gap left of it; one row more, the end, stands for the last gap.
    The end sees all entries and no entry sees it, so it does not disturb the pretrained model.

    Args:
        parts: the pretrained transformer.
        hidden: its width.
        vocab_size: its vocabulary V, mask and padding included.
        mask_id: its mask token.
        insertions: whether it has the parts of a FlexMDM; without them it is the MDM it was.
        groups: how many consecutive groups of layers have an AdaLN of their own; within one it is shared.
        expected_gap: g of every gap before training, for a head that looks at each gap on its own.
        regions: mean and variance of the free tokens of a region in the data, for a head that counts.
        shifted: whether row i speaks of entry i + 1 (see `Anatomy`).
    """

    def __init__(
        self,
        parts: Parts,
        hidden: int,
        vocab_size: int,
        mask_id: int,
        insertions: bool = True,
        groups: int = 4,
        expected_gap: float = 1.0,
        shifted: bool = False,
        regions: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm = parts.embedding, parts.blocks, parts.norm
        self.head, self.rotary = parts.head, parts.rotary
        self.vocab_size, self.mask_id, self.shifted = vocab_size, mask_id, shifted
        self.gradient_checkpointing = False
        self.insertion_head = None
        if insertions:
            self.given, self.open = nn.Embedding(2, hidden), nn.Embedding(2, hidden)
            self.end = nn.Embedding(1, hidden)
            self.clock = Clock(hidden // 2, 4 * hidden, hidden)
            self.modulations = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(groups))
            self.insertion_head = insertion_head(hidden, hidden, expected_gap, regions)
            for part in self.added.values():
                part.apply(self.initialise)
                part.to(next(self.embedding.parameters()).device)

    @property
    def added(self) -> dict[str, nn.Module]:
        """The parts that the pretrained model did not have."""
        names = ("given", "open", "end", "clock", "modulations", "insertion_head")
        return {} if self.insertion_head is None else {name: self.get_submodule(name) for name in names}

    def initialise(self, layer: nn.Module) -> None:
        """Give one of the added layers the weights it has before training; what was pretrained stays."""
        if self.insertion_head is None or not isinstance(layer, nn.Linear | nn.Embedding):
            return
        silent = [self.given, self.open, *self.modulations, *self.insertion_head.last_layers]
        if layer is self.end:
            nn.init.normal_(layer.weight, std=0.02)
        elif layer in silent:
            nn.init.zeros_(layer.weight)
        elif isinstance(layer, nn.Linear) and layer in [*self.clock.mlp, *self.insertion_head.modules()]:
            nn.init.xavier_uniform_(layer.weight)
        else:
            return
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)

    @property
    def quantised(self) -> bool:
        """Whether some of the pretrained weights are in 4 bits."""
        return _quantised(self)

    def adapt(self, rank: int, alpha: int, dropout: float, queries: tuple[str, ...]) -> None:
        """Freeze what was pretrained, with LoRA on queries, keys, values and the head."""
        self.is_loaded_in_4bit = self.quantised  # which PEFT asks for
        targets = rf"blocks\.\d+\.attention\.({'|'.join(queries)})|head"
        inject_adapter_in_model(
            LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets), self
        )
        adapted = [any(isinstance(m, BaseTunerLayer) for m in block.modules()) for block in self.blocks]
        if not all(adapted):
            raise ValueError(
                f"the attention of the base has no {', '.join(queries)} to adapt: name its linear layers by "
                "flexmdm.backbones.encoder.Anatomy, or train all weights (--lora-rank 0)"
            )
        for part in self.added.values():
            part.requires_grad_(True)
        for p in self.parameters():  # what is trained is trained in full precision
            p.data = p.data.float() if p.requires_grad else p.data

    def merge_adapters(self) -> None:
        """Add the adapters to the weights they adapt, and be without them."""
        for name, module in list(self.named_modules()):
            if isinstance(module, BaseTunerLayer):
                module.merge()
                self.set_submodule(name, module.get_base_layer())

    def compile_blocks(self) -> None:
        """Compile what does not depend on how the batch is cut into buckets."""
        compiled = torch.compile(Block.fed, dynamic=True)
        for block in self.blocks:  # as a method, so that a copy of the block computes with its own weights
            setattr(block, "fed", MethodType(compiled, block))  # noqa: B010

    def forward(
        self, tokens: Tensor, lengths: Tensor, given: Tensor, open_gaps: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `DiT.forward`: tokens with masks as ``vocab_size`` -> logits ``[M, V]``, insertions ``[N + B]``."""
        masked = tokens == self.vocab_size
        x = self.embedding(tokens.masked_fill(masked, self.mask_id))
        inserts = self.insertion_head is not None
        layout = Layout.of(lengths + inserts, prefers_varlen(tokens.device, x.dtype), onlooker=inserts)
        groups: list[Tensor | None] = [None]
        if inserts:
            entries = ~layout.is_last
            x = self._with_ends(x + self.given(given.long()).to(x.dtype), entries)
            x = x + self.open(open_gaps.long()).to(x.dtype)
            condition = self.clock(alpha)
            groups = [m(condition).to(x.dtype)[layout.sequence].unflatten(1, (2, -1)) for m in self.modulations]
            masked = torch.zeros_like(entries).masked_scatter(entries, masked)
        turned = rotations(self.rotary, self.blocks, x, layout.position)
        for number, (block, rotation) in enumerate(zip(self.blocks, turned, strict=True)):
            modulation = groups[number * len(groups) // len(self.blocks)]
            x = self._run(block, x, modulation, layout, rotation)
        x = self.norm(x).to(tokens.device)
        logits = self.head(x[self._speakers(masked, layout)]).to(tokens.device)
        if self.insertion_head is None:
            return logits, logits.new_zeros(len(tokens) + len(lengths))
        return logits, self.insertion_head(x, alpha, Regions.of(lengths, given)) * open_gaps

    def _with_ends(self, x: Tensor, entries: Tensor) -> Tensor:
        """Entries ``[N, D]`` -> rows ``[R, D]`` with an end behind each sequence."""
        end = self.end.weight.to(x.dtype).expand(len(entries), -1)
        return end.masked_scatter(entries[:, None], x)

    def _run(self, block: nn.Module, x: Tensor, *rest: Any) -> Tensor:
        device = next(block.parameters()).device
        if x.device != device:  # the pretrained model may be spread over several
            x, rest = x.to(device), tuple(_moved(rest, device))
        if self.gradient_checkpointing and self.training:
            return checkpoint(block, x, *rest, use_reentrant=False)
        return block(x, *rest)

    def _speakers(self, masked: Tensor, layout: Layout) -> Tensor:
        """The row that speaks of each mask: its own, or the one before (the first has none, and speaks itself)."""
        rows = masked.nonzero().flatten()
        return torch.where(layout.position[rows] > 0, rows - 1, rows) if self.shifted else rows


def _moved(values: Sequence[Any], device: torch.device) -> list[Any]:
    return [
        tuple(_moved(value, device)) if isinstance(value, tuple) else None if value is None else value.to(device)
        for value in values
    ]


class RetrofitConfig(FlexMDMConfig):
    """What a retrofitted model is made of.

    Args:
        encoder: the configuration of the pretrained transformer, as transformers writes it.
        anatomy: where its parts are.
        groups: see `Retrofit`.
        lora: rank, alpha and dropout of the adapters; ``None`` trains all weights.
        base: where the frozen weights are, of a model that is saved without them.
        base_digest: tells them from others.
        base_dtype: the precision they are loaded in: ``float32``, ``bfloat16`` or ``4-bit``.
        options: the rest, as for `FlexMDMConfig`; the size of the network is the encoder's.
    """

    model_type = "flexmdm-retrofit"

    def __init__(
        self,
        encoder: dict[str, Any] | None = None,
        anatomy: dict[str, Any] | None = None,
        groups: int = 4,
        lora: dict[str, Any] | None = None,
        base: str | None = None,
        base_digest: str | None = None,
        base_dtype: str | None = None,
        **options: Any,
    ) -> None:
        self.encoder = encoder or {"model_type": "llama", "vocab_size": 1}
        self.anatomy = Anatomy().to_dict() if anatomy is None else anatomy
        self.groups, self.lora = groups, lora
        self.base, self.base_digest, self.base_dtype = base, base_digest, base_dtype
        body = self.encoder_config
        options |= {"vocab_size": body.vocab_size, "hidden_size": body.hidden_size, "condition_size": body.hidden_size}
        options |= {"num_layers": body.num_hidden_layers, "num_heads": body.num_attention_heads, "dropout": 0.0}
        super().__init__(**options)
        if self.insertions and not 1 <= groups <= self.num_layers:
            raise ValueError(f"{self.num_layers} layers cannot be cut into {groups} groups")

    @property
    def encoder_config(self) -> PretrainedConfig:
        kind = self.encoder["model_type"]
        return AutoConfig.for_model(kind, **{k: v for k, v in self.encoder.items() if k != "model_type"})


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
        """All weights; of a model with adapters those that are trained."""
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
        from flexmdm.backbones.bases import load_base

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
        """Itself with the adapters merged into the weights: from now on all of them are trained and saved.

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
        """All parameters, and those of the input embeddings."""
        table = sum(p.numel() for p in self.network.embedding.parameters())
        return {"total": sum(p.numel() for p in self.parameters()), "input_embedding": table}

    def count_trained(self) -> dict[str, int]:
        """How many parameters are trained, by part."""
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
        told = {"missing": missing, "unknown": unknown, "of another shape": other}
        said = [f"{len(names)} are {how} ({', '.join(names[:3])})" for how, names in told.items() if names]
        raise ValueError(
            f"{where} is not a whole checkpoint of what its config.json says: of its weights {'; '.join(said)}. Fetch "
            "it again, or train it again"
        )


def digest_of(parts: Parts) -> str:
    """Tells the weights of one pretrained model from another's, in whatever precision they were loaded.

    One half looks at the norms and at some rows of embedding and head, which no quantisation changes; the other, for
    weights that are not quantised, at a few of every matrix.
    """
    matrices = [p for block in parts.blocks for p in block.parameters() if p.ndim == 2 and p.is_floating_point()]
    fine = "" if _quantised(parts.blocks) else _hash(p[:1, :_LOOKED_AT] for p in matrices)
    norms = [block.get_submodule(name) for block in parts.blocks for name in ("attention_norm", "feed_norm")]
    tables = [next(parts.embedding.parameters()), parts.head.get_parameter("weight")]
    ends = [rows for table in tables for rows in (table[:16], table[-16:])]
    return f"{_hash([*(p for norm in [*norms, parts.norm] for p in norm.parameters()), *ends])}-{fine}"


def _quantised(module: nn.Module) -> bool:
    return any(type(p).__name__ == "Params4bit" for p in module.parameters())


_LOOKED_AT = 64  # entries of a matrix


def _hash(weights: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.detach().to(torch.bfloat16).view(torch.int16).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def same_base(one: str | None, other: str | None) -> bool:
    """Whether two of `digest_of` can be of the same weights.

    >>> same_base("a-b", "a-b"), same_base("a-b", "a-"), same_base("a-b", "a-c"), same_base("a-", "b-")
    (True, True, False, False)
    """
    (coarse, _, fine), (their_coarse, _, their_fine) = ((digest or "").partition("-") for digest in (one, other))
    return coarse == their_coarse and (not fine or not their_fine or fine == their_fine)


AutoConfig.register(RetrofitConfig.model_type, RetrofitConfig, exist_ok=True)
AutoModel.register(RetrofitConfig, RetrofitModel, exist_ok=True)
