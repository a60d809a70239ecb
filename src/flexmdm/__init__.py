"""flexmdm: variable-length masked diffusion.

The names below are imported when they are first used, so that ``import flexmdm`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as below
    from flexmdm.alignment import Alignment, align
    from flexmdm.backbones.model import FlexMDMConfig, FlexMDMModel
    from flexmdm.canvas import Canvas, Prompt, Role, Template
    from flexmdm.denoiser import Denoiser, ImpossibleCanvas, Prediction
    from flexmdm.generation import Generation, Sample, Sampler, generate, stream
    from flexmdm.interpolants import FlexMDMInterpolant, InterpolantSample, sample_times
    from flexmdm.objective import Likelihood, Loss, flexmdm_loss, likelihood
    from flexmdm.oracle import FiniteDistribution, HiddenMarkovSource
    from flexmdm.schedules import (
        CosineSchedule,
        EarlySchedule,
        GeometricSchedule,
        LinearSchedule,
        PolynomialSchedule,
        PowerSchedule,
        Schedule,
        SineSchedule,
    )
    from flexmdm.sequences import Ragged
    from flexmdm.tasks.code.pipeline import CodePipeline
    from flexmdm.tasks.sft.pipeline import SFTPipeline
    from flexmdm.tasks.text.pipeline import TextPipeline

_HOME = {  # the public names, by their module
    "alignment": "Alignment align",
    "backbones.model": "FlexMDMConfig FlexMDMModel",
    "canvas": "Canvas Prompt Role Template",
    "denoiser": "Denoiser ImpossibleCanvas Prediction",
    "generation": "Generation Sample Sampler generate stream",
    "interpolants": "FlexMDMInterpolant InterpolantSample sample_times",
    "objective": "Likelihood Loss flexmdm_loss likelihood",
    "oracle": "FiniteDistribution HiddenMarkovSource",
    "schedules": "Schedule CosineSchedule EarlySchedule GeometricSchedule LinearSchedule "
    "PolynomialSchedule PowerSchedule SineSchedule",
    "sequences": "Ragged",
    "tasks.code.pipeline": "CodePipeline",
    "tasks.sft.pipeline": "SFTPipeline",
    "tasks.text.pipeline": "TextPipeline",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"flexmdm.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'flexmdm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
