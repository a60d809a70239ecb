"""Networks that predict (f, g), and the contract they keep."""

from flexmdm.backbones.denoiser import Denoiser, ImpossibleCanvas, Prediction, predict

__all__ = ["Denoiser", "ImpossibleCanvas", "Prediction", "predict"]
