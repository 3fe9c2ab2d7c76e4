"""Factorizer: segment 3D medical images with matrix factorization.

Research software, not a medical device. Everything public is imported from here. A name is loaded
when it is first used, so the command line answers before PyTorch is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factorizer.bars import ConsoleProgress as ConsoleProgress
    from factorizer.data.deal import make_folds as make_folds
    from factorizer.data.synthetic import make_synthetic as make_synthetic
    from factorizer.errors import FactorizerError as FactorizerError
    from factorizer.evaluation.compare import Entry as Entry
    from factorizer.evaluation.compare import compare_entries as compare_entries
    from factorizer.evaluation.evaluate import evaluate as evaluate
    from factorizer.evaluation.evaluate import evaluate_folders as evaluate_folders
    from factorizer.inference.load import load as load
    from factorizer.inference.predict import predict as predict
    from factorizer.models.registry import build_model as build_model
    from factorizer.nn.blocks import FactorizerBlock as FactorizerBlock
    from factorizer.nn.blocks import ResidualMLP as ResidualMLP
    from factorizer.nn.blocks import ResidualNMF as ResidualNMF
    from factorizer.nn.blocks import WrappedNMF as WrappedNMF
    from factorizer.nn.matricize import GlobalMatricize as GlobalMatricize
    from factorizer.nn.matricize import LocalMatricize as LocalMatricize
    from factorizer.nn.matricize import ShiftedWindowMatricize as ShiftedWindowMatricize
    from factorizer.nn.nmf import NMF as NMF
    from factorizer.nn.unet import UNet as UNet
    from factorizer.preset_files import change_preset as change_preset
    from factorizer.preset_files import load_preset as load_preset
    from factorizer.progress import Progress as Progress
    from factorizer.reports.data_check import check_data as check_data
    from factorizer.studies.ablating import ablate as ablate
    from factorizer.studies.comparing import compare as compare
    from factorizer.studies.explaining import explain as explain
    from factorizer.studies.gallery import draw_gallery as draw_gallery
    from factorizer.studies.postprocessing import choose_postprocessing as choose_postprocessing
    from factorizer.studies.profiling import profile as profile
    from factorizer.studies.training_variants import ablate_training as ablate_training
    from factorizer.studies.tuning import tune as tune
    from factorizer.training.machine import Machine as Machine
    from factorizer.training.planning import plan_data as plan_data
    from factorizer.training.session import train_fold as train_fold
    from factorizer.training.train import cross_validate as cross_validate
    from factorizer.training.train import train as train

__version__ = "0.1.0"

# the module of each public name
HOMES = {
    "FactorizerError": "errors",
    "Progress": "progress",
    "ConsoleProgress": "bars",
    "load_preset": "preset_files",
    "change_preset": "preset_files",
    "build_model": "models.registry",
    "check_data": "reports.data_check",
    "plan_data": "training.planning",
    "make_folds": "data.deal",
    "make_synthetic": "data.synthetic",
    "train": "training.train",
    "train_fold": "training.session",
    "cross_validate": "training.train",
    "Machine": "training.machine",
    "load": "inference.load",
    "predict": "inference.predict",
    "evaluate": "evaluation.evaluate",
    "evaluate_folders": "evaluation.evaluate",
    "compare": "studies.comparing",
    "Entry": "evaluation.compare",
    "compare_entries": "evaluation.compare",
    "explain": "studies.explaining",
    "ablate": "studies.ablating",
    "ablate_training": "studies.training_variants",
    "tune": "studies.tuning",
    "choose_postprocessing": "studies.postprocessing",
    "profile": "studies.profiling",
    "draw_gallery": "studies.gallery",
    "NMF": "nn.nmf",
    "UNet": "nn.unet",
    "FactorizerBlock": "nn.blocks",
    "ResidualMLP": "nn.blocks",
    "ResidualNMF": "nn.blocks",
    "WrappedNMF": "nn.blocks",
    "GlobalMatricize": "nn.matricize",
    "LocalMatricize": "nn.matricize",
    "ShiftedWindowMatricize": "nn.matricize",
}

__all__ = [
    "NMF",
    "ConsoleProgress",
    "Entry",
    "FactorizerBlock",
    "FactorizerError",
    "GlobalMatricize",
    "LocalMatricize",
    "Machine",
    "Progress",
    "ResidualMLP",
    "ResidualNMF",
    "ShiftedWindowMatricize",
    "UNet",
    "WrappedNMF",
    "__version__",
    "ablate",
    "ablate_training",
    "build_model",
    "change_preset",
    "check_data",
    "choose_postprocessing",
    "compare",
    "compare_entries",
    "cross_validate",
    "draw_gallery",
    "evaluate",
    "evaluate_folders",
    "explain",
    "load",
    "load_preset",
    "make_folds",
    "make_synthetic",
    "plan_data",
    "predict",
    "profile",
    "train",
    "train_fold",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'factorizer' has no attribute {name!r}")
    return getattr(import_module(f"factorizer.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
