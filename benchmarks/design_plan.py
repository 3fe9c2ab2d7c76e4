"""What the design of the Conv-Factorizer was tried on, and what was tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from design_blocks import Choices, build_from_choices
from systems_plan import COMMON, HALVES
from torch import nn

from factorizer.config import Preset
from factorizer.config.networks import network_of
from factorizer.data.cases import Cohort
from factorizer.data.folds import Folds, draw_folds, read_folds
from factorizer.preset_files import change_preset, load_preset

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "results" / "design"
WORK = ROOT / "runs" / "design"  # preprocessed cases, and trainings that have not ended


@dataclass(frozen=True)
class Task:
    """A data set, and what all trainings on it have in common.

    They learn from all folds except the tuning fold, which scores them.
    """

    preset: str
    changes: tuple[str, ...]
    tuning_fold: int
    num_folds: int = 5
    folds_file: str | None = None


TASKS = {
    "hippocampus": Task("hippocampus", tuple(COMMON), tuning_fold=0),
    "isles22": Task(
        "isles22-small",
        (
            "data.patch_size=[64,64,32]",  # a size that all systems can take
            "training.batch_size=2",
            "inference.overlap=0.25",
            "model.mlp_ratio=4",
        ),
        tuning_fold=1,
        folds_file="folds_published.csv",
    ),
    "vessels": Task("chasedb1", (), tuning_fold=0, num_folds=2),
}


@dataclass(frozen=True)
class Variant:
    """One way to do it: a system or other blocks, changes of the preset, and the optimizer."""

    system: str = "conv-factorizer"
    changes: tuple[str, ...] = ()
    choices: Choices | None = None
    optimizer: str = "muon"
    rate: float = 1.5e-3
    note: str = field(default="", compare=False)


def of_blocks(note: str, **choices: object) -> Variant:
    return Variant(choices=Choices(**choices), note=note)  # type: ignore[arg-type]


LIGHT = {"convs": (1, 2, 2, 2, 2), "conv_groups": (1, 1, 1, 1, 8)}
VARIANTS = {
    # the block of the package, and what it was chosen from
    "conv-factorizer": Variant(note="NMF between two convolutions; one at the finest level"),
    "without-nmf": Variant(changes=("model.mixer=none",), note="the same without NMF"),
    "small-heads": Variant(changes=("model.head_dim=4",), note="heads of 4 channels"),
    "nmf-first": of_blocks("NMF before the convolutions", **LIGHT),
    "nmf-last": of_blocks("NMF after the convolutions", **LIGHT, nmf_place=None),
    "no-fine-nmf": of_blocks(
        "no NMF at the finest level", **LIGHT, nmf_place=1, nmf_levels=(1, 2, 3, 4)
    ),
    "mixed-cuts": of_blocks(
        "NMF of whole maps where they are coarse", **LIGHT, nmf_place=1, cut="mixed"
    ),
    "nmf-first-two-everywhere": of_blocks(
        "nmf-first, but two convolutions at the finest level too",
        convs=(2, 2, 2, 2, 2),
        conv_groups=(1, 1, 1, 1, 8),
    ),
    # blocks of one convolution
    "single": of_blocks("NMF, then one convolution"),
    "single-without-nmf": of_blocks("one convolution", nmf_levels=()),
    "single-group-norm": of_blocks("single with GroupNorm before NMF", norm="group"),
    "single-nmf-last": of_blocks("one convolution, then NMF", nmf_place=None),
    "single-inner": of_blocks("single with the activation inside the branch", conv="inner"),
    "single-early-norm": of_blocks("single with norm before the convolution", conv="before"),
    "single-mlp": of_blocks("single, then an MLP", with_mlp=True),
    "single-whole-maps": of_blocks("single with NMF of whole maps", cut="whole"),
    "single-fine-two": of_blocks(
        "single, but two convolutions at the two finest levels", convs=(2, 2, 1, 1, 1)
    ),
    "single-conv-adapter": of_blocks(
        "single; a convolution of 3 joins skip and decoder", adapter="conv"
    ),
    # other blocks
    "two-convolutions": of_blocks("NMF, then the block of Res-U-Net", conv="double"),
    "depthwise": of_blocks(
        "NMF and MLP with GroupNorm, a depthwise convolution in the MLP",
        conv="depthwise",
        norm="group",
    ),
    "paper-block": of_blocks("the paper's block without position embedding", conv="mlp"),
    # systems
    "res-unet": Variant("res-unet"),
    "nnunet": Variant("nnunet"),
    "swin-factorizer": Variant("swin-factorizer"),
    "local-factorizer": Variant("local-factorizer"),
    "global-factorizer": Variant("global-factorizer"),
    "performer": Variant("performer"),
    "transbts": Variant("transbts"),
    "unetr": Variant("unetr"),
    "swin-unetr": Variant("swin-unetr"),
    "nnformer": Variant("nnformer"),
}


def patients_file(task: str) -> Path:
    """Which patient each scored case is of. The cases of a patient are averaged before any test."""
    return OUTPUT / task / "patients.json"


def preset_for(task: Task, variant: Variant, *, seed: int) -> Preset:
    """The preset of a training."""
    changes = [*task.changes, f"training.seed={seed}", f"model.name={variant.system}"]
    if variant.system in HALVES:
        changes.append(f"model.extra={HALVES[variant.system]}")
    return change_preset(load_preset(task.preset), [*changes, *variant.changes])


def network_for(preset: Preset, variant: Variant) -> nn.Module:
    """The network of a training, with its first weights."""
    if variant.choices is None:
        return network_of(preset)
    torch.manual_seed(preset.training.seed)
    return build_from_choices(preset, variant.choices)


def folds_for(task: Task, cohort: Cohort, data: Path) -> Folds:
    if task.folds_file is not None:
        return read_folds(data / task.folds_file, cohort.cases)
    return draw_folds(cohort.cases, num_folds=task.num_folds, seed=0)
