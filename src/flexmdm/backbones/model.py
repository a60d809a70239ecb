"""The network as a Hugging Face model, saved with all that sampling needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from flexmdm.backbones.dit import DiT
from flexmdm.backbones.network import NetworkDenoiser
from flexmdm.generation import Generation, generate
from flexmdm.interpolants import FlexMDMInterpolant


class FlexMDMConfig(PretrainedConfig):
    """What a FlexMDM (or an MDM) is made of.

    Args:
        vocab_size: clean tokens V.
        hidden_size, num_layers, num_heads, condition_size, dropout: the size of the network.
        insertions: whether it inserts; an MDM does not.
        expected_gap: g of every gap before training, for a head that looks at each gap on its own.
        regions: mean and variance of the free tokens of a region in the data, for a head that counts; without them the
            head looks at each gap on its own, as that of earlier checkpoints.
        clock: features of alpha, ``logarithms`` or, as in earlier checkpoints, ``waves``.
        neighbours: whether a new network starts with two heads that look left and right, as `flexmdm train` has it.
        mask_id: how a canvas writes a mask; default: V, outside the vocabulary.
        interpolant: the schedules, as `FlexMDMInterpolant.to_dict` writes them; default: linear.
        task: what it was trained on, with everything that is needed to use it again.

    >>> FlexMDMConfig(vocab_size=10).mask_id
    10
    """

    model_type = "flexmdm"

    def __init__(
        self,
        vocab_size: int = 1,
        hidden_size: int = 256,
        num_layers: int = 8,
        num_heads: int = 8,
        condition_size: int = 128,
        dropout: float = 0.1,
        insertions: bool = True,
        expected_gap: float = 1.0,
        neighbours: bool = False,
        regions: tuple[float, float] | None = None,
        clock: str = "waves",
        mask_id: int | None = None,
        interpolant: dict | None = None,
        task: dict | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size, self.num_layers, self.num_heads = hidden_size, num_layers, num_heads
        self.condition_size, self.dropout = condition_size, dropout
        self.insertions, self.expected_gap, self.neighbours = insertions, expected_gap, neighbours
        self.regions, self.clock = None if regions is None else list(regions), clock
        self.mask_id = vocab_size if mask_id is None else mask_id
        self.interpolant = FlexMDMInterpolant().to_dict() if interpolant is None else interpolant
        self.task = task
        self._check()
        super().__init__(**kwargs)

    def _check(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "condition_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of twice the {self.num_heads} heads")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if not self.expected_gap > 0:
            raise ValueError(f"expected_gap must be positive, got {self.expected_gap}; for an MDM say insertions=False")
        if self.regions is not None and not (len(self.regions) == 2 and min(self.regions) > 0):
            raise ValueError(f"regions must be a mean and a variance, both positive, got {self.regions}")
        if self.clock not in ("waves", "logarithms"):
            raise ValueError(f"clock must be waves or logarithms, got {self.clock!r}")
        if set(self.interpolant) != {"insertion", "unmasking"}:
            raise ValueError(f"interpolant must have the schedules insertion and unmasking, got {self.interpolant}")
        FlexMDMInterpolant.from_dict(self.interpolant)


@dataclass
class FlexMDMOutput(ModelOutput):
    """``logits`` ``[M, V]`` at the masks, in order; ``insertions`` ``[N + B]``, one for each gap."""

    logits: Tensor | None = None
    insertions: Tensor | None = None


class FlexMDMModel(PreTrainedModel):
    """The DiT with its configuration.

    >>> model = FlexMDMModel(FlexMDMConfig(vocab_size=7, hidden_size=32, num_layers=1, num_heads=2))
    >>> out = model.generate(num_samples=2, seed=0)  # untrained: any tokens
    >>> len(out.sequences)
    2
    """

    config_class = FlexMDMConfig
    main_input_name = "tokens"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]

    def __init__(self, config: FlexMDMConfig) -> None:
        super().__init__(config)
        self.network = self.make_network(config)
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *arguments: Any, **options: Any) -> Any:
        """Load what `save_pretrained` wrote, from a folder or by a name on the Hub."""
        source = pretrained_model_name_or_path
        try:
            return super().from_pretrained(source, *arguments, **options)
        except SafetensorError as error:
            raise ValueError(f"the weights in {source} are damaged ({error}): fetch or train them again") from error

    def make_network(self, config: FlexMDMConfig) -> Any:
        """Return the network, which takes and returns what `DiT.forward` does."""
        return DiT(
            config.vocab_size,
            hidden=config.hidden_size,
            layers=config.num_layers,
            heads=config.num_heads,
            condition=config.condition_size,
            dropout=config.dropout,
            insertions=config.insertions,
            expected_gap=config.expected_gap,
            neighbours=config.neighbours,
            regions=config.regions,
            clock=config.clock,
        )

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Initialise weights that a checkpoint lacks as in a new network."""
        self.network.initialise(module)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        given: Tensor | None = None,
        open_gaps: Tensor | None = None,
        alpha: Tensor | None = None,
    ) -> FlexMDMOutput:
        """Call the network on packed tensors with masks as ``config.mask_id``; default: nothing given, all open."""
        given = torch.zeros_like(tokens, dtype=torch.bool) if given is None else given
        if open_gaps is None:
            open_gaps = torch.ones(len(tokens) + len(lengths), dtype=torch.bool, device=tokens.device)
        alpha = torch.zeros(len(lengths), device=tokens.device) if alpha is None else alpha
        if tokens.shape != (int(lengths.sum()),):
            raise ValueError(
                f"tokens must be packed, [{int(lengths.sum())}] for these lengths, but are {list(tokens.shape)}"
            )
        sizes = {"given": (given, len(tokens)), "open_gaps": (open_gaps, len(tokens) + len(lengths))}
        for name, (value, size) in {**sizes, "alpha": (alpha, len(lengths))}.items():
            if value.shape != (size,):
                raise ValueError(f"{name} must be [{size}] for these tokens and lengths, but is {list(value.shape)}")
        tokens = tokens.masked_fill(tokens == self.config.mask_id, self.config.vocab_size)
        return FlexMDMOutput(*self.network(tokens, lengths, given, open_gaps, alpha))

    def check_checkpoint(self, folder: Path) -> None:
        """Raise if the checkpoint in a folder belongs to a model with other frozen weights; here there are none."""

    @property
    def kept_weights(self) -> set[str]:
        """Return the names of the weights that are saved."""
        return set(self.state_dict())

    @property
    def interpolant(self) -> FlexMDMInterpolant:
        return FlexMDMInterpolant.from_dict(self.config.interpolant)

    def denoiser(self) -> NetworkDenoiser:
        """Return the denoiser that `generate` and `likelihood` take; puts the network in evaluation mode."""
        return NetworkDenoiser(self.network, self.config.vocab_size, self.config.mask_id, self.interpolant)

    def generate(self, num_samples: int = 1, **options: Any) -> Generation:
        """Call `flexmdm.generate` with this model and the same arguments."""
        if not self.config.insertions and options.get("prompts") is None and options.get("canvas") is None:
            raise ValueError("an MDM inserts nothing, it fills masks: give prompts such as [Prompt.masks(20)]")
        return generate(self.denoiser(), num_samples, **options)

    def count_parameters(self) -> dict[str, int]:
        """Return the number of all parameters, and of those in the table of input embeddings."""
        table = self.network.embedding.weight.numel()
        return {"total": sum(p.numel() for p in self.parameters()), "input_embedding": table}


AutoConfig.register(FlexMDMConfig.model_type, FlexMDMConfig, exist_ok=True)
AutoModel.register(FlexMDMConfig, FlexMDMModel, exist_ok=True)
