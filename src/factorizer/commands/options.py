"""The options of the command line. Each has one name and one meaning in all commands.

Some names have several types: a command may need a value that another can do without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from factorizer import __version__
from factorizer.commands.program import DEBUG

# texts that several options share
ONE_DATA_SET = "A data set: its folder as downloaded, or a CSV or JSON list of cases."
ONE_MODEL = "A trained model: RUN, RUN/foldK or zoo:NAME."
ONE_PRESET = "A preset: its name, a YAML file, or zoo:NAME."
DEVICES = "auto, cpu, cuda or mps."
MOST_CASES = 100_000
MOST_FOLDS = 10_000
MOST_SEED = 2**32 - 1


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"factorizer {__version__}")
        raise typer.Exit


# the program itself
Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=print_version, is_eager=True, help="Print the version and exit."
    ),
]
Debug = Annotated[
    bool,
    typer.Option(DEBUG, help="Show the traceback of every error. It can be given anywhere."),
]

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
    typer.Option("--mask-suffix", help="The ending of mask names for 2D images, such as _1stHO."),
]
Split = Annotated[
    Path | None,
    typer.Option(
        "--split",
        metavar="FILE",
        help="Which case is in which fold: a CSV (case, fold), a folds.json or nnU-Net's splits.",
    ),
]
PredictionValues = Annotated[
    str,
    typer.Option(
        "--prediction-values",
        help="Which label values the predictions use: preset (as `predict` writes them) or "
        "dataset.",
    ),
]
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]RUN_OR_SCORES...", help="Finished runs, folds, or scores.csv files."
    ),
]
SystemScores = Annotated[
    list[str] | None,
    typer.Option(
        "--scores",
        metavar="NAME=PATH",
        help="The scores.csv or the run of a system, for its Dice. Repeatable.",
    ),
]

# presets, systems and models
Preset = Annotated[str, typer.Option("--preset", metavar="PRESET", help=ONE_PRESET)]
PresetArgument = Annotated[str, typer.Argument(metavar="PRESET", help=ONE_PRESET)]
CheckedPreset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="PRESET",
        help=f"{ONE_PRESET} The data are compared with its channels and labels.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the preset. Repeatable."),
]
System = Annotated[
    str | None,
    typer.Option("--system", metavar="NAME", help="Use this system instead of the preset's."),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Profile only this system. Repeatable."),
]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help=ONE_MODEL)]
Models = Annotated[
    list[str],
    typer.Option("--model", metavar="[NAME=]MODEL", help=f"{ONE_MODEL} Repeatable."),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="MODEL", help=f"{ONE_MODEL} Its Dice is drawn as a dashed line."
    ),
]
ZooName = Annotated[str, typer.Argument(metavar="NAME", help="A model of the zoo.")]
ReferenceSystem = Annotated[
    str | None,
    typer.Option(
        "--reference-system",
        metavar="NAME",
        help="The system that is tested against the others.",
        show_default="the first",
    ),
]
Run = Annotated[
    Path, typer.Option("--run", metavar="RUN", help="The folder of a finished cross-validation.")
]
HeldOutFold = Annotated[
    int, typer.Option("--fold", min=0, max=MOST_FOLDS - 1, help="The fold to hold out.")
]
HeldOutFoldOrAll = Annotated[
    str,
    typer.Option("--fold", help="The fold to hold out. all trains on every case, without scores."),
]
HeldOutFoldOrEach = Annotated[
    int | None,
    typer.Option(
        "--fold",
        min=0,
        max=MOST_FOLDS - 1,
        help="The fold to hold out, if one job of an array trains one fold.",
        show_default="each in turn",
    ),
]
NumFolds = Annotated[
    int, typer.Option("--num-folds", min=2, max=MOST_FOLDS, help="The number of folds.")
]
Stratify = Annotated[
    bool,
    typer.Option("--stratify", help="Make folds similar in lesion volume. Reads all labels."),
]
Folds = Annotated[
    str | None,
    typer.Option("--folds", help="Average the models of these folds: all, or numbers such as 0,2."),
]
Init = Annotated[
    str | None,
    typer.Option("--init", metavar="MODEL", help="Start from the weights of a trained model."),
]
Speed = Annotated[
    str,
    typer.Option("--speed", help="best is the model as trained. `tune` adds balanced and fast."),
]
Mirrored = Annotated[
    bool,
    typer.Option(
        "--tta", help="Also predict mirror images, along axes mirrored in training, and average."
    ),
]
Postprocess = Annotated[
    bool,
    typer.Option("--postprocess", help="Remove lesions by the rules that `postprocess` chose."),
]

# what is studied
AblationTable = Annotated[
    str,
    typer.Option(
        "--table",
        help="subblocks (Table 3), position (Table 4), both, or solvers (beyond the paper).",
    ),
]
Iterations = Annotated[
    int, typer.Option("--iterations", min=1, max=1000, help="The largest number of iterations T.")
]
MaxLoss = Annotated[
    str,
    typer.Option(
        "--max-loss",
        help="The largest acceptable loss of mean Dice, such as 0.5%. The whole 95 % interval of "
        "the loss must stay within it.",
    ),
]
Layers = Annotated[
    str,
    typer.Option(
        "--layer", help="first, last, both, all, or numbers along the data path such as 1,5."
    ),
]
EmptyDistance = Annotated[
    str,
    typer.Option(
        "--hd95-empty",
        help="HD95 if one mask is empty: nan, diagonal (of the image), or millimetres.",
    ),
]
Measure = Annotated[
    bool,
    typer.Option("--measure", help="Measure time and memory on this CPU, which takes minutes."),
]
Rounds = Annotated[
    int | None,
    typer.Option("--rounds", min=1, max=1000, help="Timed rounds of --measure.", show_default="3"),
]

# what is made
Kind = Annotated[str, typer.Argument(metavar="KIND", help="brats, isles22 or hippocampus.")]
CaseCount = Annotated[
    int, typer.Option("--cases", min=1, max=MOST_CASES, help="The number of cases.")
]
Size = Annotated[int, typer.Option("--size", min=1, max=512, help="Voxels along the longest axis.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=MOST_SEED, help="The same seed gives the same result.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="Plan a training that takes this long on this machine: 90m, 2h or 1.5h.",
    ),
]

# what is drawn
ShownCases = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="CASES",
        help="The cases to show, separated by commas.",
        show_default="some from worst to best",
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        max=100,
        help="How many cases to show if they are not named.",
        show_default="4",
    ),
]
Channel = Annotated[
    str | None,
    typer.Option("--channel", help="The channel to draw on.", show_default="the preset's first"),
]

# what is written
OutputFolder = Annotated[
    Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the results.")
]
NewFolder = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="A new or empty folder for the results."),
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
Volumes = Annotated[
    bool,
    typer.Option("--volumes/--no-volumes", help="Write components as NIfTI files (.npz in 2D)."),
]
SaveProbabilities = Annotated[
    bool,
    typer.Option(
        "--save-probabilities",
        help="Also write <case>_probabilities.nii.gz, with regions as the last axis.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep what is finished, and continue with the rest.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

# how many, and where it is computed
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=MOST_CASES, help="Use only the first N cases."),
]
Device = Annotated[str, typer.Option("--device", help=DEVICES)]
BudgetDevice = Annotated[
    str | None,
    typer.Option("--device", help=f"{DEVICES} Needs --budget.", show_default="auto"),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=1024,
        help="Number of devices per machine.",
        show_default="set by torchrun or SLURM",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        min=1,
        max=10_000,
        help="Number of machines.",
        show_default="set by torchrun or SLURM",
    ),
]
Precision = Annotated[str, typer.Option("--precision", help="32, bf16 or 16.")]
Accumulate = Annotated[
    int,
    typer.Option(
        "--accumulate", min=1, max=4096, help="Split each batch into N parts to save memory."
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", min=0, max=256, help="Number of processes that prepare patches.")
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--checkpoint-activations",
        help="Save memory: compute activations again in the backward pass.",
    ),
]
BatchSize = Annotated[
    int,
    typer.Option("--batch-size", min=1, max=4096, help="Patches predicted at a time."),
]
