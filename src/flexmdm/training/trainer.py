"""The Hugging Face `Trainer` for FlexMDM and MDM: the loss, EMA, whole checkpoints, a stop at the first NaN."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerState, TrainingArguments

from flexmdm.backbones.model import FlexMDMModel
from flexmdm.training.checkpoints import keep_latest, latest, seal
from flexmdm.training.collation import Batch, Collator, Examples
from flexmdm.training.ema import EMA
from flexmdm.training.learning_rate import LearningRate
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.recipe import Recipe
from flexmdm.training.sharding import gathered, here, load_optimizer, shard, whole, whole_optimizer

_OPTIMIZER, _SCHEDULER = "optimizer.pt", "scheduler.pt"  # as the Trainer calls them
_SEEDS_OF_A_TRAINING = 16  # bits: later trainings of the same weights draw with seeds beyond


class Diverged(ValueError):
    """The loss or its gradient is not finite."""


class FlexMDMTrainer(Trainer):
    """Trains a FlexMDM, or an MDM (without an insertion head), on the `Examples` of a task by a `Recipe`.

    Args:
        folder: where checkpoints go.
        device: ``cpu``, ``cuda``, ``mps``; default: what there is.
        report_to: loggers by name: tensorboard, trackio, wandb.
        preview: called with the averaged model and the step at every evaluation; returns further figures for the log.
        rate: the learning rate; the recipe's by default.
    """

    model: FlexMDMModel

    def __init__(
        self,
        model: FlexMDMModel,
        recipe: Recipe,
        train: Examples,
        validation: Examples,
        folder: Path,
        callbacks: Sequence[TrainerCallback] = (),
        device: str | None = None,
        report_to: Sequence[str] = (),
        preview: Callable[[FlexMDMModel, int], dict[str, float]] | None = None,
        rate: LearningRate | None = None,
    ) -> None:
        self.recipe, self.folder, self._preview = recipe, folder, preview
        self.rate = rate or LearningRate(recipe)
        arguments = _arguments(recipe, folder, device, report_to)
        self._interpolant, self._mask_id = model.interpolant, model.config.mask_id
        marginalise = recipe.targets == "marginalised"
        # Weights that were trained before do not see the same states again.
        seed = recipe.seed + (getattr(model.config, "trainings", 0) << _SEEDS_OF_A_TRAINING)
        collate = Collator(train, self._interpolant, self._mask_id, marginalise, seed)
        self._validation = Collator(validation, self._interpolant, self._mask_id, seed=recipe.seed + 1)
        self._per_step = recipe.batch_size * recipe.accumulation * arguments.world_size
        super().__init__(
            model,
            arguments,
            data_collator=cast(Any, collate),  # which makes a Batch, where the Trainer expects a dictionary
            train_dataset=cast(Any, range(recipe.steps * self._per_step)),  # sample numbers
            eval_dataset=cast(Any, range(recipe.eval_size)),
            callbacks=[_Upkeep(self), *callbacks],
        )
        self.remove_callback(PrinterCallback)
        self._sharded = recipe.shard and self.args.world_size > 1
        self.ema = EMA(model, recipe.ema)
        self.tokens_seen = 0
        self._sums: dict[str, Tensor] = {}
        self.start_clock()
        if recipe.compile:
            model.network.compile_blocks()

    # What is learned --------------------------------------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            self.optimizer = make_optimizer(self.model, self.recipe)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        if self.lr_scheduler is None:
            # A function: of a callable object a checkpoint would hold the steps, which may be raised on resume.
            self.lr_scheduler = LambdaLR(cast(Any, optimizer or self.optimizer), lambda step: self.rate(step))
            self._created_lr_scheduler = True
        return cast(LambdaLR, self.lr_scheduler)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**inputs.inputs(self._mask_id))
        loss = inputs.loss(output.logits, output.insertions, self._interpolant)
        learned = loss
        if model.training and self.recipe.largest_weight is not None:
            learned = inputs.softened(loss, self._interpolant, self.recipe.largest_weight)
        mean = learned.total.mean()
        if not bool(mean.isfinite()):
            self._stop(f"the loss is {float(mean.detach())}", inputs)
        if model.training:
            self.tokens_seen += inputs.num_tokens * self.args.world_size
            counted = {"unmasking": loss.unmasking, "insertion": loss.insertion, "batches": torch.ones(1)}
            for name, value in counted.items():
                self._sums[name] = self._sums.get(name, 0.0) + value.detach().mean().cpu()
        self._last = inputs
        return (mean, output) if return_outputs else mean

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        norm: Any = whole(super()._clip_grad_norm(model))
        if norm is not None and not bool(torch.as_tensor(norm).isfinite()):
            self._stop(f"the norm of the gradient is {float(norm)}", self._last)
        return norm

    def _stop(self, reason: str, batch: Batch) -> NoReturn:
        """Save the batch and raise `Diverged`."""
        step = self.state.global_step + 1  # the one that is being taken
        process = f"-{self.args.process_index}" if self.args.world_size > 1 else ""
        file = self.folder / f"bad-batch-{step}{process}.safetensors"
        sample = batch.sample
        tensors = {**batch.inputs(self._mask_id), "t": sample.t}
        tensors |= {"clean": sample.x1.values, "clean_lengths": sample.x1.lengths}
        try:
            save_file({name: value.contiguous().cpu() for name, value in tensors.items()}, file)
            where = f"is in {file}"
        except (OSError, SafetensorError) as error:
            where = f"could not be saved ({error})"
        raise Diverged(
            f"{reason} at step {step}, so training stopped. The batch {where}; the last good checkpoint is "
            f"{latest(self.folder) or 'none yet'}. Try a lower learning rate or a longer warm-up"
        )

    @torch.no_grad()
    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure the loss of held-out sequences under the averaged weights, always at the same states."""
        losses, training = [], self.model.training
        self.model.eval()
        with self.ema.applied():
            for numbers in torch.arange(self.recipe.eval_size).split(self.recipe.batch_size):
                batch = self._validation(numbers.tolist()).to(self.args.device)
                output = self.model(**batch.inputs(self._mask_id))
                losses.append(batch.loss(output.logits, output.insertions, self._interpolant))
            more = {} if self._preview is None else self._preview(self.model, self.state.global_step)
        self.model.train(training)
        terms = {name: torch.cat([getattr(loss, name) for loss in losses]) for name in ("unmasking", "insertion")}
        means = {f"eval_{name}": float(values.mean()) for name, values in terms.items()}
        metrics = {"eval_loss": sum(means.values()), **means, **more}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # What is counted --------------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Measure the speed from here on."""
        self._since, self._tokens_then = time.perf_counter(), self.tokens_seen

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add both terms of the loss, the speed and what was seen to every line about training."""
        if "loss" in logs and self._sums:
            batches = self._sums.pop("batches")
            means = torch.stack(list(self._sums.values())).to(self.args.device) / float(batches)
            means = self.accelerator.reduce(means, "mean")  # over processes
            logs.update({name: round(value, 4) for name, value in zip(self._sums, means.tolist(), strict=True)})
            if self.recipe.largest_weight is not None:  # the Trainer logs what is learned from
                logs["loss"] = logs["unmasking"] + logs["insertion"]
            now = time.perf_counter()
            logs["tokens_per_second"] = round((self.tokens_seen - self._tokens_then) / (now - self._since), 1)
            self._since, self._tokens_then, self._sums = now, self.tokens_seen, {}
        logs["sequences"] = self.state.global_step * self._per_step
        super().log(logs, start_time)

    # Batches, which are no dictionaries -------------------------------------------------------------------------------

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> None:
        """Return nothing: the loss is a mean over sequences, whatever their lengths."""

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs.to(self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        weights = self.whole_weights()
        if self.args.should_save:
            self.model.save_pretrained(output_dir or self.folder, state_dict=weights)

    def whole_weights(self) -> dict[str, Tensor] | None:
        """Gather the weights for the process that saves (every process must call this); ``None`` if not sharded."""
        if not self._sharded:
            return None
        kept = self.model.kept_weights
        named = {name: value for name, value in self.model.state_dict().items() if name in kept}
        return gathered(named, keep=self.args.should_save)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save a checkpoint and seal it, and only then delete older ones."""
        if not all(bool(here(weight).isfinite().all()) for weight in self.ema.live.values()):
            self._stop("a weight is not finite", self._last)
        folder = self.folder / f"checkpoint-{self.state.global_step}"
        try:
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)  # one that an earlier attempt did not finish
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # each process has written the state of its random numbers
            average = gathered(self.ema.average, keep=self.args.should_save)
            if self.args.should_save:
                self.ema.save(folder, average)
                seal(folder)
        except Exception as error:  # a full disk is an OSError, a SafetensorError or a RuntimeError, by who meets it
            shutil.rmtree(folder, ignore_errors=True)
            whole = latest(self.folder)
            kept = f"{whole} is whole: free some space and go on with --resume" if whole else "there is no earlier one"
            raise OSError(
                f"the checkpoint of step {self.state.global_step} could not be saved ({error}); {kept}"
            ) from error
        if self.args.should_save:
            keep_latest(self.folder, self.recipe.keep)

    def _prepare_for_training(self, *arguments: Any, **named: Any) -> Any:
        """Shard the model, if it is to be, once a checkpoint has been loaded into it."""
        if self._sharded:
            shard(self.model.network)
            self.ema.shard_like(self.model)
            if not hasattr(self, "is_distributed_loading_by_transformers"):
                raise RuntimeError("this version of transformers cannot be told that a model is sharded: take 5.22")
            self.is_distributed_loading_by_transformers = True  # keeps accelerate from wrapping it in DDP as well
        return super()._prepare_for_training(*arguments, **named)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._sharded:
            return super()._save_optimizer_and_scheduler(output_dir)
        state = whole_optimizer(self.model, self._bare_optimizer)
        if self.args.should_save:
            torch.save(state, Path(output_dir) / _OPTIMIZER)
            torch.save(cast(Any, self.lr_scheduler).state_dict(), Path(output_dir) / _SCHEDULER)
        return None

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self._sharded or checkpoint is None:
            return super()._load_optimizer_and_scheduler(checkpoint)
        load_optimizer(self.model, self._bare_optimizer, torch.load(Path(checkpoint) / _OPTIMIZER, weights_only=True))
        schedule = torch.load(Path(checkpoint) / _SCHEDULER, weights_only=True)
        cast(Any, self.lr_scheduler).load_state_dict(schedule)
        return None

    @property
    def _bare_optimizer(self) -> Any:
        return getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.model.check_checkpoint(Path(resume_from_checkpoint))
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self.ema.load(Path(resume_from_checkpoint))

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Raise if a checkpoint lacks weights other than the frozen ones, which are the base's."""
        missing = sorted(set(load_result.missing_keys) & self.model.kept_weights)
        if missing:
            raise ValueError(f"the checkpoint was written for another network: it has no {', '.join(missing[:3])}")


class _Upkeep(TrainerCallback):
    """Keeps the intervals, the clock and the average of a trainer."""

    def __init__(self, trainer: FlexMDMTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **_: Any) -> None:
        """Let a resumed run log, evaluate and save as often as the recipe says now, not as it said then."""
        state.compute_steps(args, state.max_steps)
        self.trainer.start_clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.trainer.ema.update()


def runs_on_cpu(device: str | None) -> bool:
    """Return whether a device by its name, or the default one, is the CPU; raise if there is no such device."""
    if device not in (None, "cpu", "cuda", "mps"):
        raise ValueError(f"the device is cpu, cuda or mps, got {device!r}")
    if device in ("cuda", "mps") and not getattr(torch, device).is_available():
        raise ValueError(f"this machine has no {device} device; leave --device out or say cpu")
    return device == "cpu" or (device is None and not torch.cuda.is_available())


def _arguments(recipe: Recipe, folder: Path, device: str | None, report_to: Sequence[str]) -> TrainingArguments:
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch_size,
        gradient_accumulation_steps=recipe.accumulation,
        learning_rate=recipe.learning_rate,
        max_grad_norm=recipe.clip,
        seed=recipe.seed,
        bf16=recipe.dtype == "bfloat16",
        gradient_checkpointing=recipe.gradient_checkpointing,
        eval_strategy="steps",
        eval_steps=recipe.eval_every,
        save_steps=recipe.save_every,
        logging_steps=recipe.log_every,
        logging_nan_inf_filter=False,
        report_to=list(report_to) or "none",
        remove_unused_columns=False,
        train_sampling_strategy="sequential",  # the Collator shuffles
        disable_tqdm=True,
        use_cpu=runs_on_cpu(device),
        ddp_find_unused_parameters=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # nn.DataParallel would cut a packed batch in pieces: use torchrun
    return arguments
