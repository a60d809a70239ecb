"""The configuration of a run: task, network, recipe and schedules, written to ``run.json`` and compared on resume."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.training.recipe import RUN_FILE, Network, Recipe

# What may change when a run goes on: none of it enters a single step of what was done so far, and threads round only.
_FREE = {f"recipe.{n}" for n in ("steps", "threads", "eval_every", "eval_size", "save_every", "keep", "log_every")}
_SHARES = {f"recipe.{name}" for name in ("batch_size", "accumulation", "processes")}  # as long as their product stays
# The network of a run that was written before its configuration named these.
_EARLIER = {"insertion_head": "gap", "clock": "waves"}
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run: a task (as its ``to_dict`` writes it), a network, a recipe and the schedules.

    >>> config = RunConfig(task={"name": "maze", "size": 9})
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    >>> from dataclasses import replace
    >>> other = replace(config, recipe=replace(config.recipe, learning_rate=1.0))
    >>> config.differences(other)
    ['recipe.learning_rate: 0.001 in the run, 1.0 now']
    """

    task: dict[str, Any]
    network: Network = Network()
    recipe: Recipe = Recipe()
    interpolant: dict[str, Any] = field(default_factory=lambda: FlexMDMInterpolant().to_dict())

    def __post_init__(self) -> None:
        if self.network.base_dtype == "4-bit" and self.recipe.shard:
            raise ValueError(
                "weights in 4 bits cannot be cut over processes: leave out --shard (recipe.shard), or take bfloat16"
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> RunConfig:
        _only(stored, {f.name for f in fields(cls)}, "a run")
        parts = {"network": Network, "recipe": Recipe}
        return cls(**{key: _build(parts[key], value, key) if key in parts else value for key, value in stored.items()})

    def differences(self, other: RunConfig) -> list[str]:
        """Return what ``other`` has changed that cannot change in the middle of a run."""
        mine, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        free = _FREE | _SHARES if self.recipe.sequences == other.recipe.sequences else _FREE
        names = [n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n) and n not in free]
        return [f"{name}: {mine.get(name)} in the run, {theirs.get(name)} now" for name in names]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{RUN_FILE}.new"
        draft.write_text(json.dumps(self.to_dict(), indent=2) + "\n")
        draft.replace(folder / RUN_FILE)

    @classmethod
    def read(cls, folder: Path) -> RunConfig:
        """Return the configuration of a run, by its folder."""
        file = folder / RUN_FILE
        if not file.is_file():
            raise ValueError(
                f"{folder} is not a run: it has no {RUN_FILE}. Give the folder that `flexmdm train --out` wrote"
            )
        try:
            stored = json.loads(file.read_text())
            return cls.from_dict({**stored, "network": {**_EARLIER, **stored.get("network", {})}})
        except (json.JSONDecodeError, UnicodeDecodeError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is damaged: {error}") from error


def read_config_file(path: Path) -> dict[str, Any]:
    """Read the tables ``task``, ``network``, ``recipe`` and ``interpolant`` of a TOML file."""
    try:
        stored = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no valid TOML: {error}") from error
    _only(stored, {"task", "network", "recipe", "interpolant"}, str(path))
    return stored


def _build(settings: type[Any], values: dict[str, Any], name: str) -> Any:
    """Return settings from a table; raise if it has other keys, or a value of another type than the default has."""
    usual = {one.name: one.default for one in fields(settings)}
    _only(values, set(usual), name)
    for key, value in values.items():
        kind = type(usual[key])
        if kind in _TYPES and type(value) not in ((int, float) if kind is float else (kind,)):
            raise ValueError(f"{name}.{key} must be {_TYPES[kind]}, got {value!r}")
    return settings(**values)


def _only(values: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where} has no {', '.join(unknown)}; it knows {', '.join(sorted(known))}")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in values.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat
