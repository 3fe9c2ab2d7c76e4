"""Factorizer: segment 3D medical images with matrix factorization.

Research software, not a medical device. Everything public is imported from here, on first use, so
that the command line answers before PyTorch is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factorizer.evaluation.compare import Entry, compare_entries
    from factorizer.evaluation.evaluate import evaluate_folders
    from factorizer.inference.load import load
    from factorizer.models.registry import build_model
    from factorizer.nn.blocks import FactorizerBlock, ResidualMLP, ResidualNMF, WrappedNMF
    from factorizer.nn.matricize import GlobalMatricize, LocalMatricize, ShiftedWindowMatricize
    from factorizer.nn.nmf import NMF
    from factorizer.nn.unet import UNet
    from factorizer.preset_files import change_preset, load_preset
    from factorizer.training.session import train_fold
    from factorizer.training.train import cross_validate, train

__version__ = "0.1.0"

_HOMES = {
    "change_preset": "factorizer.preset_files",
    "load_preset": "factorizer.preset_files",
    "Entry": "factorizer.evaluation.compare",
    "compare_entries": "factorizer.evaluation.compare",
    "evaluate_folders": "factorizer.evaluation.evaluate",
    "load": "factorizer.inference.load",
    "cross_validate": "factorizer.training.train",
    "train": "factorizer.training.train",
    "train_fold": "factorizer.training.session",
    "build_model": "factorizer.models.registry",
    "FactorizerBlock": "factorizer.nn.blocks",
    "ResidualMLP": "factorizer.nn.blocks",
    "ResidualNMF": "factorizer.nn.blocks",
    "WrappedNMF": "factorizer.nn.blocks",
    "GlobalMatricize": "factorizer.nn.matricize",
    "LocalMatricize": "factorizer.nn.matricize",
    "ShiftedWindowMatricize": "factorizer.nn.matricize",
    "NMF": "factorizer.nn.nmf",
    "UNet": "factorizer.nn.unet",
}

__all__ = [
    "NMF",
    "Entry",
    "FactorizerBlock",
    "GlobalMatricize",
    "LocalMatricize",
    "ResidualMLP",
    "ResidualNMF",
    "ShiftedWindowMatricize",
    "UNet",
    "WrappedNMF",
    "__version__",
    "build_model",
    "change_preset",
    "compare_entries",
    "cross_validate",
    "evaluate_folders",
    "load",
    "load_preset",
    "train",
    "train_fold",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'factorizer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
