"""A trained network as a `Denoiser`, and as a Hugging Face model that is saved with all that sampling needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from flexmdm.backbones.dit import ACTIVATIONS, DiT
from flexmdm.backbones.folders import check_whole, foreign, stored_config
from flexmdm.backbones.heads import read_statistics
from flexmdm.canvas import Canvas
from flexmdm.denoiser import Prediction
from flexmdm.generation import Generation, Sample, generate, stream
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.precision import float64_device

# What reads the folders of other kinds, by the model type in their config.json.
_READERS = {"flexmdm-retrofit": "retrofit:RetrofitModel.from_pretrained", "Dream": "published:load"}
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map*", "added_tokens*", "chat_template*", "vocab.*", "merges.txt")


class NetworkDenoiser:
    """A trained network as a `Denoiser`.

    Args:
        network: maps (tokens with masks as ``vocab_size``, lengths, given, open_gaps, alpha) to logits ``[M, V]`` at
            the masks and insertions ``[N + B]``; it is put in evaluation mode.
        mask_id: how a canvas writes a mask; it is never predicted, also where it lies inside V.
    """

    def __init__(
        self, network: nn.Module, vocab_size: int, mask_id: int, interpolant: FlexMDMInterpolant | None = None
    ) -> None:
        self.network, self.vocab_size, self.mask_id, self.interpolant = network.eval(), vocab_size, mask_id, interpolant

    @property
    def device(self) -> torch.device:
        """Return the device for its canvases: the network's, or the CPU if that has no float64."""
        return float64_device(next(self.network.parameters()).device)

    @torch.no_grad()
    def __call__(self, canvas: Canvas, alpha: Tensor) -> Prediction:
        """Return the network's prediction, on the device of the canvas."""
        tokens = canvas.tokens.values.masked_fill(canvas.is_mask, self.vocab_size)
        inputs = (tokens, canvas.lengths, canvas.given.values, canvas.open_gaps.values)
        device = next(self.network.parameters()).device
        alpha = alpha if float64_device(device) == device else alpha.float()  # a clock of time needs all its digits
        logits, insertions = self.network(*(x.to(device) for x in (*inputs, alpha)))
        if 0 <= self.mask_id < self.vocab_size:
            logits = logits.index_fill(1, torch.tensor([self.mask_id], device=logits.device), -torch.inf)
        log_probs, insertions = (x.to(canvas.device) for x in (logits.float().log_softmax(1), insertions.float()))
        return Prediction(log_probs, canvas.open_gaps.with_values(insertions))


class FlexMDMConfig(PretrainedConfig):
    """Say what a FlexMDM (or an MDM) is made of.

    Args:
        vocab_size, hidden_size, num_layers, num_heads, condition_size, dropout, insertions, expected_gap, regions,
        clock, activation, pairs, neighbours: as `DiT` has them. Earlier checkpoints have no ``regions``, and ``waves``
            as their clock.

    >>> FlexMDMConfig(vocab_size=10).mask_id
    10
    """

    model_type = "flexmdm"

    vocab_size: int = 1
    hidden_size: int = 256
    num_layers: int = 8
    num_heads: int = 8
    condition_size: int = 128
    dropout: float = 0.1
    insertions: bool = True
    expected_gap: float = 1.0
    neighbours: bool = False
    regions: Any = None  # statistics of the sizes of regions, see `flexmdm.backbones.heads.Statistics`
    clock: str = "waves"
    activation: str = "gelu"
    pairs: int = 0
    mask_id: Any = None  # how a canvas writes a mask; default: V, outside the vocabulary
    interpolant: Any = None  # the schedules, as FlexMDMInterpolant.to_dict writes them; default: linear
    task: dict[str, Any] | None = None  # what it was trained on, with everything that is needed to use it again

    def __post_init__(self, **kwargs: Any) -> None:
        self.regions = read_statistics(self.regions)
        self.mask_id = self.vocab_size if self.mask_id is None else self.mask_id
        self.interpolant = FlexMDMInterpolant().to_dict() if self.interpolant is None else self.interpolant
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "condition_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of twice the {self.num_heads} heads")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if not self.expected_gap > 0:
            raise ValueError(f"expected_gap must be positive, got {self.expected_gap}; for an MDM say insertions=False")
        if self.clock not in ("waves", "logarithms"):
            raise ValueError(f"clock must be waves or logarithms, got {self.clock!r}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be {' or '.join(ACTIVATIONS)}, got {self.activation!r}")
        if set(self.interpolant) != {"insertion", "unmasking"}:
            raise ValueError(f"interpolant must have the schedules insertion and unmasking, got {self.interpolant}")
        FlexMDMInterpolant.from_dict(self.interpolant)
        super().__post_init__(**kwargs)

    @property
    def most_entries(self) -> int | None:
        """Return the most entries that a sequence may have, if the network has a table of positions."""
        return None


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
        """Load a FlexMDM of whatever kind, from a folder or by a name on the Hub.

        It is what `save_pretrained` wrote, or a checkpoint that others published (`flexmdm.backbones.published`). All
        else is refused: models of other kinds, and folders with weights too few, too many or of another shape.
        """
        source, with_info = pretrained_model_name_or_path, options.pop("output_loading_info", False)
        stored = options.pop("stored", None) or stored_config(source, **options)  # whoever has read it passes it on
        kind = str(stored.get("model_type"))
        if kind in _READERS:
            return resolve_name(f"flexmdm.backbones.{_READERS[kind]}")(source, *arguments, **options)
        if kind != FlexMDMConfig.model_type:
            raise foreign(source, stored)
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
        try:
            loaded: Any = super().from_pretrained(source, *arguments, **options)
        except SafetensorError as error:
            raise ValueError(f"the weights in {source} are damaged ({error}): fetch or train them again") from error
        model, info = loaded
        check_whole(source, _problems(info, stored, model.config))
        return (model, info) if with_info else model

    def save_pretrained(self, save_directory: Any, *arguments: Any, **options: Any) -> None:
        """Write the model, with the tokenizer files of the folder that it was loaded from, if there are any."""
        source, target = self.name_or_path, Path(save_directory)
        if source and Path(source).is_dir() and target.resolve() != Path(source).resolve():
            target.mkdir(parents=True, exist_ok=True)
            for pattern in _TOKENIZER_FILES:
                for file in filter(Path.is_file, Path(source).glob(pattern)):
                    shutil.copy(file, target)
        super().save_pretrained(save_directory, *arguments, **options)

    def make_network(self, config: FlexMDMConfig) -> Any:
        """Return the network, which takes and returns what `DiT.forward` does."""
        renamed = {"hidden_size": "hidden", "num_layers": "layers", "num_heads": "heads", "condition_size": "condition"}
        names = [name for name in FlexMDMConfig.__annotations__ if name not in ("mask_id", "interpolant", "task")]
        return DiT(**{renamed.get(name, name): getattr(config, name) for name in names})

    def _init_weights(self, module: nn.Module) -> None:
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
        gaps = len(tokens) + len(lengths)
        given = torch.zeros_like(tokens, dtype=torch.bool) if given is None else given
        open_gaps = torch.ones(gaps, dtype=torch.bool, device=tokens.device) if open_gaps is None else open_gaps
        alpha = torch.zeros(len(lengths), device=tokens.device) if alpha is None else alpha
        if tokens.shape != (int(lengths.sum()),):
            raise ValueError(
                f"tokens must be packed, [{int(lengths.sum())}] for these lengths, but are {list(tokens.shape)}"
            )
        sizes = (("given", given, len(tokens)), ("open_gaps", open_gaps, gaps), ("alpha", alpha, len(lengths)))
        for name, value, size in sizes:
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
        return generate(self.denoiser(), num_samples, **self._options(options))

    def stream(self, num_samples: int = 1, **options: Any) -> Iterator[Sample]:
        """Call `flexmdm.generation.stream` with this model and the same arguments."""
        return stream(self.denoiser(), num_samples, **self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of `generate` with a sequence no longer than the network takes; raise where it cannot."""
        if not self.config.insertions and options.get("prompts") is None and options.get("canvas") is None:
            raise ValueError("an MDM inserts nothing, it fills masks: give prompts such as [Prompt.masks(20)]")
        return options if options.get("max_length") is not None else {**options, "max_length": self.config.most_entries}

    def count_parameters(self) -> dict[str, int]:
        """Return the number of all parameters, and of those in the table of input embeddings."""
        table = sum(p.numel() for p in self.network.embedding.parameters())
        return {"total": sum(p.numel() for p in self.parameters()), "input_embedding": table}


def _problems(info: Mapping[str, Any], stored: Mapping[str, Any], config: FlexMDMConfig) -> dict[str, Any]:
    """Return the names of weights by what is wrong with them; ``info`` is what transformers says of loading them.

    A head that the caller wants or does not want is no problem, nor are biases that earlier checkpoints do not have.
    """
    tolerated = [".insertion_head."] if config.insertions != stored.get("insertions", True) else []
    tolerated += [] if "neighbours" in stored else ["qkv.bias"]
    missing, unknown = (
        [name for name in info[f"{how}_keys"] if not any(part in name for part in tolerated)]
        for how in ("missing", "unexpected")
    )
    other = [name for name, *_ in info["mismatched_keys"]]
    return {"are missing": missing, "are unknown": unknown, "are of another shape": other}


AutoConfig.register(FlexMDMConfig.model_type, FlexMDMConfig, exist_ok=True)
AutoModel.register(FlexMDMConfig, FlexMDMModel, exist_ok=True)
