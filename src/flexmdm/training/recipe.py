"""The settings of a training: the network and the recipe."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from flexmdm.settings import setting

RUN_FILE = "run.json"  # the configuration of a run, in its folder


def _check_choices(settings: Any, section: str) -> None:
    """Raise if a field whose type is a `Literal` has another value."""
    for name, hint in get_type_hints(type(settings)).items():
        allowed, value = get_args(hint), getattr(settings, name)
        if get_origin(hint) is Literal and value not in allowed:
            raise ValueError(f"{section}.{name} must be one of {', '.join(allowed)}, got {value!r}")


@dataclass(frozen=True)
class Network:
    """The network: a new one of some size, or a pretrained one.

    The paper's maze model is 256 wide with 8 layers, its text model 768 wide with 12. Beside what the help texts say:

    Attributes:
        neighbours: whether two heads of a new DiT look at the tokens left and right from the start; it learns text
            sooner that way. The paper does not say; false starts them like all others.
        base: a model to start from, by its folder or its name on the Hub: LLaDA or a relative, or a run. An MDM is
            retrofitted into a FlexMDM. The numbers above then have no meaning.
        lora_rank, lora_alpha: without a rank it goes on as the base is. What adapters add is multiplied by
            alpha / rank, by default 1 as in the paper.
    """

    hidden: int = setting(256, help="Width of a new network.", min=8)
    layers: int = setting(8, help="Number of transformer blocks.", min=1)
    heads: int = setting(8, help="Number of attention heads.", min=1)
    condition: int = 128  # width of the condition of a new DiT; a llada has none
    dropout: float = setting(0.1, help="Dropout of a new network.", min=0.0, max=0.9)
    insertion_head: Literal["count", "gap"] = setting(
        "gap", help="Insertion head: count (what is missing in a region, then where), or gap (each gap on its own)."
    )
    clock: Literal["logarithms", "waves"] = setting("waves", help="Features of the clock: logarithms or waves.")
    activation: Literal["gelu", "squared_relu"] = "gelu"  # of a new DiT
    pairs: int = 0  # rows of a table for pairs of neighbours, in a new DiT
    neighbours: bool = True
    architecture: Literal["dit", "llada"] = setting(
        "dit", help="Architecture of a new network: dit, or llada for the shape of LLaDA. [default: dit]"
    )
    base: str | None = None
    base_dtype: Literal["float32", "bfloat16", "4-bit"] = "float32"  # of the frozen weights of a base with adapters
    mask_id: int | None = setting(None, help="Mask token of a base that does not say it.", min=0)
    groups: int = setting(
        4, help="Number of groups of layers with an AdaLN of their own, in a base or a llada. [default: 4]", min=1
    )
    lora_rank: int | None = setting(None, help="Rank of the adapters on a base; 0 trains all weights.", min=0)
    lora_alpha: int | None = setting(
        None, help="Scale of the adapters, which is divided by their rank. [default: the rank]", min=1
    )
    lora_dropout: float = 0.1

    def __post_init__(self) -> None:
        _check_choices(self, "network")
        if self.base_dtype == "4-bit" and not self.lora_rank:
            raise ValueError("weights in 4 bits cannot be trained, only adapters on them: give a rank (--lora-rank)")
        if (self.lora_rank or 0) < 0:
            raise ValueError(f"network.lora_rank (--lora-rank) must not be negative, got {self.lora_rank}")
        if self.groups < 1:
            raise ValueError(f"network.groups (--groups) must be at least 1, got {self.groups}")
        if not 0 <= self.lora_dropout < 1:
            raise ValueError(f"network.lora_dropout must lie in [0, 1), got {self.lora_dropout}")
        if self.base is None and (self.heads < 1 or self.hidden % (2 * self.heads)):  # pairs of numbers are rotated
            raise ValueError(
                f"network.hidden (--hidden) must be a multiple of twice network.heads (--heads), got {self.hidden} and "
                f"{self.heads}"
            )

    @property
    def lora(self) -> dict[str, Any] | None:
        """Return the adapters, as a `RetrofitConfig` has them."""
        alpha = self.lora_rank if self.lora_alpha is None else self.lora_alpha
        adapters = {"rank": self.lora_rank, "alpha": alpha, "dropout": self.lora_dropout}
        return adapters if self.lora_rank else None


@dataclass(frozen=True)
class Recipe:
    """Say how a network is trained, beside what the help texts say:

    Attributes:
        processes: how many devices take part; torchrun says it. A run can go on with another number if a step still
            takes as many sequences.
        threads: how many CPU threads a process uses, where OMP_NUM_THREADS does not say it; ``None``: one or all,
            whichever is faster. A run keeps the number, as results depend on it in their last bits.
        optimizer: ``adamw``, or ``muon`` for the matrices of the blocks with AdamW for the rest.
        warmup, schedule: steps of warm-up; then ``cosine`` to zero, ``restarts``: cosine to zero several times,
            ``constant``, or ``trapezoid``: constant, and over the last fifth of the steps to zero, so that a run can be
            made longer as long as that has not begun.
        largest_weight: bound that the weights of states in the loss approach, see `Batch.softened`; without one they
            are those of the likelihood.
    """

    steps: int = setting(10_000, help="Number of optimizer steps.", min=1)
    batch_size: int = setting(64, help="Number of sequences per pass (and device).", min=1)
    accumulation: int = setting(1, help="Number of passes per optimizer step.", min=1)
    processes: int = 1
    threads: int | None = None
    optimizer: Literal["adamw", "muon"] = setting("adamw", help="Optimizer: adamw, or muon.")
    learning_rate: float = setting(1e-3, help="Learning rate at its highest.", flag="--lr")
    weight_decay: float = 0.01
    beta2: float = 0.99
    clip: float = 1.0  # bound of the norm of the gradient
    largest_weight: float | None = None
    warmup: int = 200
    schedule: Literal["cosine", "restarts", "constant", "trapezoid"] = setting(
        "cosine", help="Schedule of the learning rate: cosine, restarts, constant or trapezoid."
    )
    cycles: int = 4  # how many times a schedule of restarts falls to zero
    ema: float = 0.999  # decay of the average of the weights, which is what is evaluated and kept
    targets: Literal["marginalised", "sampled"] = setting(
        "marginalised", help="Targets of the loss: marginalised over the alignments, or sampled."
    )
    seed: int = setting(0, help="Seed of all randomness.")
    eval_every: int = setting(500, help="Number of steps between evaluations.", min=1)
    eval_size: int = 512  # held-out sequences of an evaluation
    save_every: int = setting(500, help="Number of steps between checkpoints.", min=1)
    keep: int = 2  # checkpoints
    log_every: int = 20  # steps
    dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        help="Precision of computation: float32, or bfloat16 (mixed). `flexmdm retrofit`: of frozen weights too.",
    )
    compile: bool = setting(False, help="Compile the blocks of the network.")
    gradient_checkpointing: bool = False
    shard: bool = setting(False, help="Cut the weights over the processes of torchrun (FSDP).")

    def __post_init__(self) -> None:
        _check_choices(self, "recipe")
        for one in fields(self):
            value = getattr(self, one.name)
            is_count = one.type == "int" and one.name not in ("warmup", "seed")
            if is_count and (not isinstance(value, int) or value < 1):
                raise ValueError(f"recipe.{one.name} must be a whole number of at least 1, got {value}")
        for name, holds, needed in (
            ("ema", 0 <= self.ema < 1, "is a decay in [0, 1)"),
            ("beta2", 0 < self.beta2 < 1, "is a decay between 0 and 1"),
            ("learning_rate", self.learning_rate > 0, "(--learning-rate) must be positive"),
            ("clip", self.clip > 0, "must be positive"),
            ("largest_weight", self.largest_weight is None or self.largest_weight > 0, "must be positive"),
            ("threads", self.threads is None or self.threads >= 1, "must be at least 1"),
            ("warmup", self.warmup >= 0, "must not be negative"),
            ("seed", 0 <= self.seed < 2**32, "must be in [0, 2^32)"),
        ):
            if not holds:
                raise ValueError(f"recipe.{name} {needed}, got {getattr(self, name)}")
        if self.shard and self.optimizer != "adamw":
            raise ValueError("recipe.shard needs the optimizer adamw: muon looks at whole matrices")

    @property
    def sequences(self) -> int:
        """Return the number of sequences of a step, on all devices together."""
        return self.batch_size * self.accumulation * self.processes
