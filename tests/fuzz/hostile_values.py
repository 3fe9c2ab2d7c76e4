"""Hostile values: forbidden numbers in options and fields, names that lead elsewhere, and the
environment."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from attacks import Attack, Base, Outcome
from hostile_images import copy_strokes

# fields of a preset that no machine could bear
FIELDS = (
    "training.batch_size=100000000",
    "training.max_steps=1e30",
    "training.folds=1000000000",
    "training.seed=-1",
    "training.learning_rate=.nan",
    "model.num_iters=1000000000",
    "model.rank=1000000",
    "model.widths=[100000000,8]",
    "model.widths=[8,16,32,64,128,256,512,1024,2048,4096,8192,16384]",
    "model.depths=[1000000,1]",
    "model.window=0",
    "model.mlp_ratio=1e12",
    "model.strides=1000000",
    "data.patch_size=[100000,100000,100000]",
    "data.patch_size=[0,16,16]",
    "data.spacing_mm=[0.001,0.001,0.001]",
    "data.spacing_mm=[1e9,1e9,1e9]",
    "data.foreground_fraction=2",
    "inference.overlap=0.9999999",
    "inference.threshold=7",
    "max_steps=5",
    "model.widths=8,16",
    "nothing",
    "=5",
    "a.b.c.d=1",
    "data.labels={lesion: 99999}",
    "data.regions={lesion: []}",
)
OPTIONS = (
    ["train", "--workers", "100000"],
    ["train", "--accumulate", "1000000000"],
    ["train", "--devices", "100000"],
    ["train", "--fold", "-7"],
    ["train", "--fold", "1000000"],
    ["predict", "--batch-size", "1000000000"],
    ["predict", "--folds", "0,0"],
    ["predict", "--speed", "ludicrous"],
    ["predict", "--device", "abacus"],
    ["synth", "--cases", "1000000000"],
    ["synth", "--size", "100000"],
    ["synth", "--size", "-1"],
)
# variables, and whether a training of one step must be refused with them
ENVIRONMENTS: tuple[tuple[dict[str, str], Outcome], ...] = (
    ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "0", "WORLD_SIZE": "1"}, "refused"),
    ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "abc"}, "refused"),
    ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "-3"}, "refused"),
    ({"RANK": "3"}, "unknown"),
    ({"RANK": "abc"}, "unknown"),
    ({"LOCAL_RANK": "2", "WORLD_SIZE": "8"}, "unknown"),
    ({"SLURM_NTASKS": "abc", "SLURM_JOB_NAME": "x"}, "refused"),
    ({"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "0", "SLURM_JOB_NAME": "x"}, "refused"),
    ({"COLUMNS": "0", "TERM": "dumb", "LC_ALL": "C"}, "accepted"),
)


def hostile_field(change: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        common = [
            "--data",
            str(base.strokes),
            "--output",
            str(folder / "run"),
            "--device",
            "cpu",
            "--workers",
            "0",
        ]
        arguments = ["train", "--preset", str(base.run / "config.yaml"), *common, "--set", change]
        return Attack(f"--set {change}", arguments, "refused")

    return make


def hostile_option(arguments: list[str]) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        command, *rest = arguments
        if command == "train":
            common = [
                "--preset",
                str(base.run / "config.yaml"),
                "--data",
                str(base.strokes),
                "--device",
                "cpu",
            ]
            full = ["train", *common, "--output", str(folder / "run"), *rest]
        elif command == "predict":
            data, _, _, _ = copy_strokes(base, folder, 1)
            full = [
                "predict",
                "-i",
                str(data),
                "-o",
                str(folder / "out"),
                "--model",
                str(base.run),
                *rest,
            ]
        else:
            full = ["data", "synth", "isles22", "-o", str(folder / "scans"), *rest]
        return Attack(" ".join(arguments), full, "refused")

    return make


def hostile_environment(index: int) -> Callable[[random.Random, Base, Path], Attack]:
    variables, right = ENVIRONMENTS[index]

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        common = [
            "--data",
            str(base.strokes),
            "--output",
            str(folder / "run"),
            "--device",
            "cpu",
            "--workers",
            "0",
        ]
        arguments = [
            "train",
            "--preset",
            str(base.run / "config.yaml"),
            *common,
            "--set",
            "training.max_steps=1",
        ]
        return Attack(f"environment {variables}", arguments, right, environment=variables)

    return make


NAMES = (
    "zoo:../..",
    "zoo:../../zoo/hippocampus",
    "zoo:",
    "zoo:/etc/passwd",
    "zoo:\x1b[31m",
    "../../etc/passwd",
    "[/x]",
)


def hostile_name(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        return Attack(f"preset named {name!r}", ["presets", "show", name], "refused")

    return make


def hostile_case_name(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Names that steer a terminal, a table or a page."""
    data, image, bad, _ = copy_strokes(base, folder, 2)
    name = random_.choice(
        [
            "sub-\x1b[31mred",
            "sub-[red]",
            "sub-<b>",
            "sub-\x07",
            "sub-a\nb",
            "sub-=1+1",
            "sub-\udce9",
        ]
    )
    for parent in ("rawdata", "derivatives"):
        (data / parent / bad).rename(data / parent / name)
    if random_.random() < 0.5:
        image = next((data / "rawdata" / name).rglob("*_dwi.nii.gz"))
        image.unlink()
        image.write_bytes(b"damaged")
    return Attack(f"case named {name!r}", ["data", "check", str(data)])
