"""FlexMDM in the body of a pretrained masked diffusion model: a time embedding, AdaLN, flags and an insertion head.

Before training the new parts change nothing: the token logits are those of the pretrained model, whatever the clock
says. An MDM is the same without the new parts.
"""

from __future__ import annotations

from dataclasses import asdict, field
from types import MethodType
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, PretrainedConfig

from flexmdm.backbones.attention import Layout, prefers_varlen
from flexmdm.backbones.dit import Clock
from flexmdm.backbones.encoder import Anatomy, Block, Parts, embed, rotations
from flexmdm.backbones.heads import Regions, insertion_head
from flexmdm.backbones.model import FlexMDMConfig
from flexmdm.schedules import Schedule

# What a configuration says of the parts that the pretrained model did not have.
OF_ADDED_PARTS = ("expected_gap", "regions", "flags", "gap_behind", "log_head", "time")


class RetrofitConfig(FlexMDMConfig):
    """The configuration of a retrofitted model: as a `FlexMDMConfig`, but the size of the network is the encoder's."""

    model_type = "flexmdm-retrofit"

    # The pretrained transformer: its configuration, as transformers writes it, and where its parts are.
    encoder: dict[str, Any] = field(default_factory=lambda: {"model_type": "llama", "vocab_size": 1})
    anatomy: dict[str, Any] = field(default_factory=lambda: asdict(Anatomy()))
    groups: int = 4  # consecutive groups of layers with an AdaLN of their own; within one it is shared
    flags: bool = True  # whether embeddings tell which entries are given and which gaps are open
    gap_behind: bool = False  # whether an entry stands for the gap behind it, instead of the one in front of it
    log_head: bool = False  # whether the insertion head gives log g, see `flexmdm.backbones.heads.LogHead`
    time: dict[str, Any] | None = None  # the insertion schedule of training, if the clock shows its time t, not alpha
    lora: dict[str, Any] | None = None  # rank, alpha and dropout of the adapters; None trains all weights
    base: str | None = None  # where the frozen weights are, of a model that is saved without them
    base_digest: str | None = None  # tells them from others
    base_dtype: str | None = None  # the precision they are loaded in: float32, bfloat16 or 4-bit

    def __post_init__(self, **kwargs: Any) -> None:
        body = self.encoder_config
        self.vocab_size, self.hidden_size, self.condition_size = body.vocab_size, body.hidden_size, body.hidden_size
        self.num_layers, self.num_heads, self.dropout = body.num_hidden_layers, body.num_attention_heads, 0.0
        super().__post_init__(**kwargs)
        if self.insertions and not 1 <= self.groups <= self.num_layers:
            raise ValueError(f"{self.num_layers} layers cannot be cut into {self.groups} groups")
        if self.log_head and self.regions is not None:
            raise ValueError("a head that counts (regions) gives no logarithms (log_head): leave one of them out")
        _ = self.schedule  # raises if there is no such schedule

    @property
    def schedule(self) -> Schedule | None:
        """Return the schedule that turns alpha into the time that the clock shows, if it shows that."""
        return None if self.time is None else Schedule.from_dict(self.time)

    @property
    def has_end(self) -> bool:
        """Return whether there is a row behind each sequence, for its last gap."""
        return self.insertions and not self.gap_behind

    @property
    def encoder_config(self) -> PretrainedConfig:
        return AutoConfig.for_model(**self.encoder)

    @property
    def most_entries(self) -> int | None:
        rows = Anatomy(**self.anatomy).most_rows(self.encoder_config)
        return None if rows is None else rows - self.has_end


class Retrofit(nn.Module):
    """A pretrained transformer with what FlexMDM needs beyond it.

    Row i of a sequence stands for entry i and for the gap left of it; one row more, the end, stands for the last gap.
    The end sees all entries and no entry sees it, so it does not disturb the pretrained model.
    With ``config.gap_behind`` row i stands for the gap right of entry i: then there is no end, and nothing is inserted
    in front of the first entry.

    Without ``config.insertions`` it is the MDM it was. Its vocabulary V includes mask and padding.
    """

    def __init__(self, parts: Parts, config: RetrofitConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.embedding, self.projection, self.norm = parts.embedding, parts.projection, parts.norm
        self.blocks, self.order, self.head, self.rotary = parts.blocks, parts.order, parts.head, parts.rotary
        self.vocab_size, self.mask_id = config.vocab_size, config.mask_id
        self.anatomy, self.most_entries = Anatomy(**config.anatomy), config.most_entries
        self.shifted = self.anatomy.shifted
        self.gradient_checkpointing, self.gap_behind = False, config.insertions and config.gap_behind
        self.insertion_head = self.given = self.open = self.end = None
        if config.insertions:
            if config.flags:
                self.given, self.open = nn.Embedding(2, hidden), nn.Embedding(2, hidden)
            if config.has_end:
                self.end = nn.Embedding(1, hidden)
            self.clock = Clock(hidden // 2, 4 * hidden, hidden, config.schedule)
            self.modulations = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(config.groups))
            seen: Any = self.head.in_features  # what the head looks at
            self.insertion_head = insertion_head(seen, hidden, config.expected_gap, config.regions, config.log_head)
            for part in self.added.values():
                part.apply(self.initialise)
                part.to(next(self.embedding.parameters()).device)

    @property
    def added(self) -> dict[str, nn.Module]:
        """Return the parts that the pretrained model did not have."""
        names = ("given", "open", "end", "clock", "modulations", "insertion_head")
        return {name: part for name, part in self.named_children() if name in names}

    def initialise(self, layer: nn.Module) -> None:
        """Give one of the added layers the weights it has before training; what was pretrained stays."""
        if self.insertion_head is None or not isinstance(layer, nn.Linear | nn.Embedding):
            return
        zeros = [self.given, self.open, *self.modulations, *self.insertion_head.last_layers]
        if layer is self.end:
            nn.init.normal_(layer.weight, std=0.02)
        elif layer in zeros:
            nn.init.zeros_(layer.weight)
        elif isinstance(layer, nn.Linear) and layer in [*self.clock.mlp, *self.insertion_head.modules()]:
            nn.init.xavier_uniform_(layer.weight)
        else:
            return
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)

    def adapt(self, rank: int, alpha: int, dropout: float, queries: list[str]) -> None:
        """Freeze what was pretrained, with LoRA on queries, keys, values and the head."""
        self.is_loaded_in_4bit = is_quantised(self)  # which PEFT asks for
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
        compiled = torch.compile(Block.feed_forward, dynamic=True)
        for block in self.blocks:  # as a method, so that a copy of the block computes with its own weights
            setattr(block, "feed_forward", MethodType(compiled, block))  # noqa: B010

    def forward(
        self, tokens: Tensor, lengths: Tensor, given: Tensor, open_gaps: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map tokens with masks as ``vocab_size`` to logits ``[M, V]`` and insertions ``[N + B]``, as `DiT.forward`."""
        layout = self._layout(lengths, tokens.device)
        entries = torch.ones_like(layout.is_last) if self.end is None else ~layout.is_last
        masked = tokens == self.vocab_size
        x = embed(self.embedding, self.anatomy, tokens.masked_fill(masked, self.mask_id), masked, layout, entries)
        x = self.projection(x)
        gap = self._gap_behind(layout, open_gaps) if self.gap_behind else None
        if self.end is not None:  # one behind each sequence
            x = x + torch.where(entries[:, None], 0.0, self.end.weight).to(x.dtype)
        if self.given is not None and self.open is not None:
            known = self.given(given.long())
            x = x + known.new_zeros(x.shape).masked_scatter(entries[:, None], known).to(x.dtype)
            x = x + self.open((open_gaps if gap is None else open_gaps[gap]).long()).to(x.dtype)
        groups: list[Tensor | None] = [None]
        if self.insertion_head is not None:
            condition = self.clock(alpha)
            groups = [m(condition).to(x.dtype)[layout.sequence].unflatten(1, (2, -1)) for m in self.modulations]
        masked = torch.zeros_like(entries).masked_scatter(entries, masked)
        turned = rotations(self.rotary, self.blocks, x, layout.position)
        for depth, number in enumerate(self.order):
            block, rotation = self.blocks[number], turned[number]
            modulation = groups[depth * len(groups) // len(self.order)]
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, modulation, layout, rotation, use_reentrant=False)
            else:
                x = block(x, modulation, layout, rotation)
        x = self.norm(x)
        rows = masked.nonzero().flatten()
        if self.shifted:  # the row before predicts a mask; the first has none
            rows = torch.where(layout.position[rows] > 0, rows - 1, rows)
        logits = self.head(x[rows])
        if self.insertion_head is None:
            return logits, logits.new_zeros(len(tokens) + len(lengths))
        if gap is not None:  # no row stands for the first gap of a sequence: [N, D] -> [N + B, D]
            x = x.new_zeros(len(open_gaps), x.shape[1]).index_copy(0, gap, x)
        regions = Regions.of(lengths, given, tokens != self.vocab_size)
        return logits, self.insertion_head(x, alpha, regions) * open_gaps

    @staticmethod
    def _gap_behind(layout: Layout, open_gaps: Tensor) -> Tensor:
        """Return the gap behind each row, ``[R]``; raise if one is open that is behind none."""
        gap = torch.arange(len(layout.sequence), device=open_gaps.device) + layout.sequence + 1
        if bool(open_gaps.index_fill(0, gap, False).any()):
            raise ValueError(
                "this model inserts behind tokens, and in front of the first token of a sequence there is an open gap: "
                "begin every sequence with a given token and close the gap in front of it"
            )
        return gap

    def _layout(self, lengths: Tensor, device: torch.device) -> Layout:
        """Return where the rows of sequences with ``lengths`` ``[B]`` are; raise if they have more than positions."""
        has_end = self.end is not None
        dtype = next(self.embedding.parameters()).dtype
        layout = Layout.of(lengths + has_end, prefers_varlen(device, dtype), unseen_last=has_end)
        longest = layout.longest - has_end
        if self.most_entries is not None and longest > self.most_entries:
            raise ValueError(
                f"a sequence has {longest} entries, and the positions of this model end at {self.most_entries}: "
                f"keep sequences shorter (max_length={self.most_entries})"
            )
        return layout


def is_quantised(module: nn.Module) -> bool:
    """Return whether some weights are in 4 bits."""
    return any(type(p).__name__ == "Params4bit" for p in module.parameters())
