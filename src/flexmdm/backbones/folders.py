"""Folders with models, of whatever kind, here or on the Hub: what they say they are, and whether they are whole.

Light to import: commands look at a name before they load anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

EXTRAS = "flexmdm_extras.pt"  # beside the weights of a published FlexMDM: all that a FlexMDM has more than its backbone
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_OF_THE_HUB = ("revision", "token", "cache_dir", "local_files_only", "force_download")
_ASKED = 10  # seconds for the Hub to answer
_NEVER = ["*.py", "*.bin", "*.pth"]  # files that are not fetched: code, and weights in other formats


def on_the_hub(name: str | Path) -> bool:
    """Return whether a name can only be one on the Hub, OWNER/NAME: there is no such folder, nor that above it.

    >>> on_the_hub("someone/stories"), on_the_hub("stories"), on_the_hub("/tmp/stories")
    (True, False, False)
    """
    return bool(_HUB_NAME.fullmatch(str(name))) and not Path(name).parent.exists()


def local_folder(name: str | Path, **options: Any) -> Path:
    """Return a folder, or that with what a name on the Hub stands for, which is fetched if need be.

    Of the ``options`` of `from_pretrained` those count that say what is fetched, such as its ``revision``.
    """
    if not on_the_hub(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    stored_config(name, **options)  # says that there is no such model
    return Path(snapshot_download(str(name), ignore_patterns=_NEVER, **_of_the_hub(options)))


def hub_answers() -> bool:
    """Return whether the Hugging Face Hub can be reached; asked first, as its library goes on for a minute."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_ASKED)
    except Exception:  # of a class that differs from version to version of the library; the caller says so
        return False
    return True


def _of_the_hub(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say what is fetched; nothing is, where the Hub cannot be reached."""
    given = {key: options[key] for key in _OF_THE_HUB if options.get(key) is not None}
    return given if hub_answers() else {**given, "local_files_only": True}


def stored_config(name: str | Path, **options: Any) -> dict[str, Any]:
    """Return the config.json of a folder or of a name on the Hub, with ``options`` as `local_folder` takes them."""
    if name in ("", None):
        raise ValueError("it does not say which pretrained model it belongs to")
    from transformers import PretrainedConfig

    try:
        on_hub = on_the_hub(name)
        if not on_hub and not (Path(name) / "config.json").is_file():
            raise OSError("no config.json there")
        stored, _ = PretrainedConfig.get_config_dict(str(name), **(_of_the_hub(options) if on_hub else {}))
    except Exception as error:  # network, hub, formats
        raise ValueError(
            f"there is no pretrained model {str(name)!r} ({str(error).strip().splitlines()[0]}): give a folder with "
            "config.json and weights, or OWNER/NAME on the Hugging Face Hub"
        ) from error
    return stored


def foreign(name: str | Path, stored: Mapping[str, Any]) -> ValueError:
    """Return the error that a folder, by its config.json, holds a model that is not of the kind to be loaded."""
    kind = stored.get("model_type")
    what = f"a model of the kind {kind!r}" if kind else "a model of a kind that its config.json does not name"
    return ValueError(
        f"{name} holds {what}, which is no FlexMDM, so nothing is loaded from it; a pretrained masked diffusion model "
        f"or encoder becomes one by flexmdm retrofit {name} --data FILES --out RUN"
    )


def has_extras(name: str | Path) -> bool:
    """Return whether a folder, or a name on the Hub, is a FlexMDM in the layout it was published in."""
    if not on_the_hub(name):
        return (Path(name) / EXTRAS).is_file()
    from huggingface_hub import file_exists, try_to_load_from_cache

    return file_exists(str(name), EXTRAS) if hub_answers() else bool(try_to_load_from_cache(str(name), EXTRAS))


def check_whole(where: str | Path, problems: Mapping[str, Collection[Any]]) -> None:
    """Raise if weights are missing, unknown or of another shape: their names by what is wrong with them."""
    found = [
        f"{len(names)} {how} ({', '.join(map(str, sorted(names)[:3]))})" for how, names in problems.items() if names
    ]
    if found:
        raise ValueError(
            f"{where} is not a whole checkpoint of what its config.json says: of its weights {'; '.join(found)}. Fetch "
            "all of its files again, from one place, or train it again"
        )
