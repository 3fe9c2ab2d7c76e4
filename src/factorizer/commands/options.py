"""The options of the command line. Each has one name and one meaning in all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ONE_DATA_SET = "A data set: its folder as downloaded, or a CSV or JSON list of cases."
ONE_MODEL = "A trained model: RUN, RUN/foldK or zoo:NAME."
ONE_PRESET = "A preset: its name, a YAML file, or zoo:NAME."
MOST_CASES = 100_000

# what is read
DataArgument = Annotated[Path, typer.Argument(metavar="DATA", help=ONE_DATA_SET)]
Data = Annotated[Path, typer.Option("--data", metavar="DATA", help=ONE_DATA_SET)]
PatientData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help=f"{ONE_DATA_SET} The cases of a patient are averaged before any test.",
    ),
]
Inputs = Annotated[
    list[Path],
    typer.Option(
        "-i",
        "--input",
        metavar="PATH",
        help="Images: a folder, a CSV or JSON list, one image, or one image per channel (repeat).",
    ),
]
Predictions = Annotated[
    Path, typer.Option("-p", "--predictions", metavar="DIR", help="A folder of predicted labels.")
]
References = Annotated[
    Path,
    typer.Option(
        "-r", "--references", metavar="DIR", help="True labels: a folder of files, or a data set."
    ),
]
PredictionsOfSystems = Annotated[
    list[str],
    typer.Option(
        "-p",
        "--predictions",
        metavar="[NAME=]DIR",
        help="A folder of predicted labels, one per system. Repeatable.",
    ),
]
OtherReferences = Annotated[
    Path | None,
    typer.Option(
        "-r",
        "--references",
        metavar="DIR",
        help="True labels: a folder of files, or a data set.",
        show_default="those of the images' own data set",
    ),
]
MaskSuffix = Annotated[
    str | None,
    typer.Option("--mask-suffix", help="How the masks of 2D images are named, such as _1stHO."),
]
Split = Annotated[
    Path | None,
    typer.Option(
        "--split",
        metavar="FILE",
        help="Which case is in which fold: a CSV (case, fold), a folds.json or nnU-Net's splits.",
    ),
]

# presets, systems and models
Preset = Annotated[str, typer.Option("--preset", metavar="PRESET", help=ONE_PRESET)]
PresetArgument = Annotated[str, typer.Argument(metavar="PRESET", help=ONE_PRESET)]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the preset. Repeatable."),
]
System = Annotated[
    str | None,
    typer.Option("--system", metavar="NAME", help="A network other than the preset's."),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Only this network. Repeatable."),
]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help=ONE_MODEL)]
Models = Annotated[
    list[str],
    typer.Option("--model", metavar="[NAME=]MODEL", help=f"{ONE_MODEL} Repeatable."),
]
Run = Annotated[
    Path, typer.Option("--run", metavar="RUN", help="The folder of a finished cross-validation.")
]
Folds = Annotated[
    str | None,
    typer.Option("--folds", help="Folds whose models are averaged: all, or numbers such as 0,2."),
]
Init = Annotated[
    str | None,
    typer.Option("--init", metavar="MODEL", help="Begin with the weights of a trained model."),
]
Speed = Annotated[
    str,
    typer.Option("--speed", help="best is as trained; balanced and fast exist after `tune`."),
]

# what is written
OutputFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the results.")
]
OutputFile = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")
]
RowsFile = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Also write the rows, as JSON."),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="DIR",
        help="The folder of the run.",
        show_default="runs/PRESET-SYSTEM",
    ),
]
Figure = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE", help="Also draw a figure.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep what is finished, and continue with the rest.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

# how many, and where it is computed
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=MOST_CASES, help="Use only the first so many cases."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=1024,
        help="Devices per machine.",
        show_default="as torchrun or SLURM started",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        min=1,
        max=10_000,
        help="Machines.",
        show_default="as torchrun or SLURM started",
    ),
]
Precision = Annotated[str, typer.Option("--precision", help="32, bf16 or 16.")]
Accumulate = Annotated[
    int,
    typer.Option("--accumulate", min=1, max=4096, help="Parts of a step's batch, to save memory."),
]
Workers = Annotated[
    int, typer.Option("--workers", min=0, max=256, help="Processes that prepare patches.")
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--checkpoint-activations",
        help="Save memory: compute activations again in the backward pass.",
    ),
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, max=4096, help="Patches predicted at a time.")
]
