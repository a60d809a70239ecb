"""FlexMDM checkpoints in the layout that the group of the paper publishes: Dream, and a file with all that it lacks.

The backbone (``model*.safetensors``, ``config.json``) is Dream's, that is Qwen2 with bidirectional attention whose row
i predicts entry i + 1. ``flexmdm_extras.pt`` holds the tensors of the rest: an MLP of the clock, for each layer a
linear one that modulates both of its norms, and the insertion head. A `RetrofitConfig` can say all of that: so a
checkpoint becomes a `RetrofitModel`, which is saved as one. The published one is ``yuyuanchen0/flexmdm`` on the Hub.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from flexmdm.backbones import bases
from flexmdm.backbones.encoder import Anatomy
from flexmdm.backbones.folders import EXTRAS, foreign, local_folder, stored_config
from flexmdm.backbones.relatives import DREAM
from flexmdm.backbones.retrofit import RetrofitModel, stored_weights
from flexmdm.backbones.retrofit_network import RetrofitConfig
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.schedules import PowerSchedule

# The shape of the published one, to know its size without its files.
SHAPES: dict[str, dict[str, Any]] = {
    "yuyuanchen0/flexmdm": {
        "model_type": DREAM, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 131072,
        "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 151665, "mask_token_id": 151666, "pad_token_id": 151643,
    },
}  # fmt: skip

# What no file of a checkpoint says.
_TRAINED_WITH = FlexMDMInterpolant(PowerSchedule(1.7), PowerSchedule(2.89))
_MAX_LENGTH = 768
_AGAIN = "fetch it again, from where it was published"

# Names of parts in a `Retrofit` and in the extras; those of the backbone are in its `Anatomy`.
_ADDED = {
    "clock.mlp": "time_mlp",
    "modulations": "temb_mods",
    "insertion_head.norm": "insertion_head.norm",
    "insertion_head.mlp.0": "insertion_head.proj1",
    "insertion_head.mlp.2": "insertion_head.proj2",
}


def load(
    source: str | Path,
    *_: Any,
    dtype: torch.dtype | None = None,
    device_map: dict[str, Any] | None = None,
    **options: Any,
) -> RetrofitModel:
    """Load a published checkpoint, by its folder or its name on the Hub; no code that comes with it is run.

    Args:
        source: the folder or the name.
        dtype: of all weights; by default as they are stored.
        device_map: ``{"": device}`` loads the weights straight to a device.
        options: ``revision`` and others that say what is fetched from the Hub.
    """
    folder = local_folder(source, **options)
    stored = stored_config(folder)
    if not (folder / EXTRAS).is_file():
        raise ValueError(
            f"{foreign(source, stored)}: it has no {EXTRAS}, with which a published FlexMDM comes beside such weights"
        )
    bases.check_memory(folder, stored, dtype, False, device_map)
    config = config_of(stored)
    config.name_or_path = str(folder)
    device = "cpu" if device_map is None else device_map[""]
    backbone, extras = stored_weights(folder, device), read_extras(folder / EXTRAS, device)
    if twice := sorted(backbone.keys() & extras.keys()):
        raise ValueError(f"{folder / EXTRAS} has weights that the backbone has too ({', '.join(twice[:3])}): {_AGAIN}")
    model, anatomy = RetrofitModel.without_weights(config), Anatomy(**config.anatomy)
    model.filled({**backbone, **extras}, folder, lambda name: _stored_name(name, anatomy), dtype)
    for p in model.network.modulations.parameters():  # theirs scale, then shift
        p.data = torch.cat(p.data.chunk(2)[::-1])
    return model


def config_of(stored: dict[str, Any]) -> RetrofitConfig:
    """Return the configuration of a published checkpoint with this config.json.

    >>> config = config_of(SHAPES["yuyuanchen0/flexmdm"])
    >>> config.groups, config.interpolant["insertion"]
    (28, {'name': 'power', 'exponent': 1.7})
    """
    encoder = bases.encoder_config_of(stored)
    mask, start, separator = (_token(stored, name, encoder.vocab_size) for name in ("mask", "bos", "pad"))
    return RetrofitConfig(
        encoder=bases.as_stored(encoder),
        anatomy=asdict(bases.anatomy_of(stored)),
        groups=encoder.num_hidden_layers,
        flags=False,
        gap_behind=True,
        log_head=True,
        time=_TRAINED_WITH.insertion.to_dict(),
        interpolant=_TRAINED_WITH.to_dict(),
        mask_id=mask,
        task={"name": "sft", "format": "{prompt}", "before": [start], "behind": [separator], "max_length": _MAX_LENGTH},
    )


def _token(stored: dict[str, Any], name: str, size: int) -> int:
    """Return the number of a special token in a config.json."""
    token = stored.get(f"{name}_token_id")
    if not isinstance(token, int) or not 0 <= token < size:
        raise ValueError(f"{name}_token_id in the config.json of a published FlexMDM must be a token, and is {token!r}")
    return token


def read_extras(file: Path, device: Any = "cpu") -> dict[str, Tensor]:
    """Return the tensors in the file of the extras, by name; raise if it holds anything else, which is never run."""
    try:
        extras = torch.load(file, map_location=device, weights_only=True)
    except UnpicklingError as error:
        raise ValueError(f"{file} holds more than tensors, and code from a checkpoint is not run: {_AGAIN}") from error
    except Exception as error:  # of files and formats
        raise ValueError(f"{file} is damaged ({str(error).strip().partition(chr(10))[0]}): {_AGAIN}") from error
    if not isinstance(extras, dict) or not all(isinstance(value, Tensor) for value in extras.values()):
        raise ValueError(f"{file} is no table of tensors by name: {_AGAIN}")
    return {str(name): value for name, value in extras.items()}


def _stored_name(name: str, anatomy: Anatomy) -> str:
    """Return the name in a checkpoint of a weight of the model.

    >>> _stored_name("network.blocks.3.attention.q_proj.bias", Anatomy())
    'model.layers.3.self_attn.q_proj.bias'
    >>> _stored_name("network.clock.mlp.0.weight", Anatomy())
    'time_mlp.0.weight'
    """
    path = name.removeprefix("network.")
    if path.startswith("blocks."):
        _, number, part, inside = path.split(".", 3)
        return f"{anatomy.layers}.{number}.{getattr(anatomy, part)}.{inside}"
    stored = {**_ADDED, **{part: getattr(anatomy, part) for part in ("embedding", "norm", "head")}}
    part = next(part for part in stored if path.startswith(f"{part}."))
    return stored[part] + path.removeprefix(part)
