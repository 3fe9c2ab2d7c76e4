"""Hostile cohorts: names that collide, loose files, outputs of another model, and cases that cannot
be used."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks import Attack, Base, Outcome, damage_bytes, mutate
from hostile_images import KNOWN, copy_strokes, plain_image, set_field, with_units
from hostile_texts import CONTENTS, list_rows, predict_list

UNUSABLE = (
    "giant voxels",
    "cut",
    "a dimension of 0",
    "NaN voxels",
    "all zero",
    "giant",
    "offset 0",
)


def train_with_unusable(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    """One case of six cannot be used: it is left out by name, and the training runs."""

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        data, image, bad, _ = copy_strokes(base, folder, 6)
        image.unlink()
        image.write_bytes(gzip.compress(KNOWN[name][0](plain_image(base)), 1))
        common = [
            "--data",
            str(data),
            "--output",
            str(folder / "run"),
            "--device",
            "cpu",
            "--workers",
            "0",
        ]
        arguments = ["train", "--preset", str(base.run / "config.yaml"), *common, "--fold", "1"]
        written = [folder / "run" / "fold1" / "scores.csv"]
        return Attack(f"training with {name}", arguments, "accepted", names=[bad], written=written)

    return make


def train_with_voxels(size: float) -> Callable[[random.Random, Base, Path], Attack]:
    """One case of six has voxels of so many millimetres."""

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        data, image, bad, _ = copy_strokes(base, folder, 6)
        label = next((data / "derivatives" / bad).rglob("*_msk.nii.gz"))
        for file in (image, image.with_name(image.name.replace("_dwi", "_adc")), label):
            content = bytearray(gzip.decompress(file.read_bytes()))
            file.unlink()
            file.write_bytes(gzip.compress(with_units(2, size)(content), 1))
        common = [
            "--data",
            str(data),
            "--output",
            str(folder / "run"),
            "--device",
            "cpu",
            "--workers",
            "0",
        ]
        arguments = ["train", "--preset", str(base.run / "config.yaml"), *common, "--fold", "1"]
        return Attack(f"training with voxels of {size:g} mm", arguments, "accepted", names=[bad])

    return make


def plain_files(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    """Two uncompressed files, one per channel. The first is hostile."""
    change, right = KNOWN[name]

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        good = bytes(plain_image(base))
        (folder / "p_dwi.nii").write_bytes(change(plain_image(base)))
        adc = sorted(base.strokes.rglob("*_adc.nii.gz"))[0]
        (folder / "p_adc.nii").write_bytes(gzip.decompress(adc.read_bytes()))
        assert len(good) > 352
        files = ["-i", "p_dwi.nii", "-i", "p_adc.nii"]
        if name in ("metres", "micrometres"):  # only one of the two channels says so
            return Attack(
                f"plain file, {name}", ["predict", *files, "-o", "out", "--model", str(base.run)]
            )
        arguments = [
            "predict",
            *files,
            "-o",
            str(folder / "out"),
            "--model",
            str(base.run),
            "--device",
            "cpu",
        ]
        names = ["p_dwi.nii"] if right == "refused" else []
        return Attack(f"plain file, {name}", arguments, right, names=names)

    return make


def channel_folder(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Files named after their channels in one folder are one case."""
    images = folder / "images"
    images.mkdir()
    row = list_rows(base, 1)[0]
    case = random_.choice(["p1", "patient-7", "a.b_c"])
    separator = random_.choice(["_", "-"])
    for channel in ("DWI", "ADC"):
        spelled = random_.choice([channel, channel.lower()])
        os.link(row[channel], images / f"{case}{separator}{spelled}.nii.gz")
    arguments = [
        "predict",
        "-i",
        str(images),
        "-o",
        str(folder / "out"),
        "--model",
        str(base.run),
        "--device",
        "cpu",
    ]
    written = [folder / "out" / f"{case}.nii.gz"]
    return Attack("files named after channels", arguments, "accepted", written=written)


def colliding_names(random_: random.Random, base: Base, folder: Path) -> Attack:
    """The labels of one case would be the probabilities of another."""
    rows = list_rows(base, 2)
    rows[0]["case"], rows[1]["case"] = "x", "x_probabilities"
    file = folder / "list.csv"
    file.write_text("\n".join(["case,DWI,ADC", *(",".join(row.values()) for row in rows)]))
    arguments = [*predict_list(base, folder, file), "--save-probabilities"]
    return Attack("colliding names", arguments, "refused", names=["x_probabilities"])


CONTINUED = ("nothing", "an empty file", "the input", "another map")


def continued(kind: str) -> Callable[[random.Random, Base, Path], Attack]:
    """What `predict --resume` finds in its folder was not made by it."""

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        data, image, case, _ = copy_strokes(base, folder, 1)
        out = folder / "out"
        out.mkdir()
        right: Outcome = "refused"
        if kind == "nothing":
            right = "accepted"
        elif kind == "an empty file":
            (out / f"{case}.nii.gz").touch()
        elif kind == "the input":
            shutil.copyfile(image, out / f"{case}.nii.gz")
        else:
            shutil.copyfile(next(data.rglob("*_msk.nii.gz")), out / f"{case}.nii.gz")
        arguments = [
            "predict",
            "-i",
            str(data),
            "-o",
            str(out),
            "--model",
            str(base.run),
            "--device",
            "cpu",
        ]
        return Attack(
            f"--resume with {kind}",
            [*arguments, "--resume"],
            right,
            names=[case] if kind != "nothing" else [],
        )

    return make


def hostile_prediction(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Predictions for `evaluate`: damaged, of another grid, or of other values."""
    predictions = folder / "predictions"
    predictions.mkdir()
    for file in sorted(base.strokes.rglob("*_msk.nii.gz"))[:2]:
        os.link(file, predictions / f"{file.name.split('_')[0]}.nii.gz")
    victim = sorted(predictions.iterdir())[0]
    content = bytearray(gzip.decompress(victim.read_bytes()))
    victim.unlink()
    kind = random_.choice(["cut", "values", "grid", "shape", "text"])
    if kind == "cut":
        del content[len(content) // 2 :]
    elif kind == "values":
        content[352:] = bytes(255 - byte for byte in content[352:])
    elif kind == "grid":
        set_field(content, "srow_z3", 1e4)
        set_field(content, "sform_code", 1)
    elif kind == "shape":
        set_field(content, "dim3", 3)
    else:
        content = bytearray(b"text")
    victim.write_bytes(gzip.compress(bytes(content), 1))
    arguments = [
        "evaluate",
        "-p",
        str(predictions),
        "-r",
        str(base.strokes),
        "--preset",
        "isles22-small",
    ]
    arguments += ["-o", str(folder / "scores.csv")]
    return Attack(
        f"prediction, {kind}", arguments, "refused", names=[victim.name.removesuffix(".nii.gz")]
    )


def swapped_folds(random_: random.Random, base: Base, folder: Path) -> Attack:
    """The folds of a run were changed: it must not train on what it held out."""
    run = folder / "run"
    shutil.copytree(base.run.parent, run, ignore=shutil.ignore_patterns("cache"))
    content = json.loads((run / "folds.json").read_text())
    folds = content["folds"]
    folds["0"], folds["1"] = folds["1"], folds["0"]
    (run / "folds.json").write_text(json.dumps(content))
    (run / "fold1" / "scores.csv").unlink()
    common = [
        "--data",
        str(base.strokes),
        "--output",
        str(run),
        "--device",
        "cpu",
        "--workers",
        "0",
    ]
    arguments = [
        "train",
        "--preset",
        str(base.run / "config.yaml"),
        "--fold",
        "1",
        "--resume",
        *common,
    ]
    return Attack("swapped folds", arguments, "refused", names=["fold"])


def labelled_rows(base: Base, count: int) -> list[dict[str, str]]:
    rows = list_rows(base, count)
    labels = sorted(base.strokes.rglob("*_msk.nii.gz"))
    for row, label in zip(rows, labels, strict=False):
        row["label"] = str(label)
    return rows


def labelled_list(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A list of cases with labels, as `data check` takes it: right, or with a value replaced."""
    rows = labelled_rows(base, 3)
    file = folder / random_.choice(["list.csv", "list.json"])
    is_right = random_.random() < 0.3
    content: Any = rows if is_right else mutate(rows, random_)
    if file.suffix == ".json":
        file.write_text(json.dumps(content))
    else:
        lines = ["Case;dwi;Adc;LABEL"]
        for row in content if isinstance(content, list) else []:
            cells = row.values() if isinstance(row, dict) else [row]
            lines.append(";".join(map(str, cells)))
        file.write_text("\ufeff" + "\n".join(lines), errors="replace")
    return Attack(
        "labelled list", ["data", "check", str(file)], "accepted" if is_right else "unknown"
    )


def loose_folders(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A folder of images and a folder of labels, matched by name; now and then one of them is
    wrong."""
    data = folder / "data"
    images, labels = data / "images", data / random_.choice(["labels", "masks"])
    images.mkdir(parents=True)
    labels.mkdir()
    for row in labelled_rows(base, 3):
        case = row["case"]
        os.link(row["DWI"], images / f"{case}_dwi.nii.gz")
        os.link(row["ADC"], images / f"{case}_adc.nii.gz")
        os.link(row["label"], labels / f"{case}{random_.choice(['', '_seg'])}.nii.gz")
    kind = random_.choice(
        ["right", "no label", "text", "pipe", "a file in a folder's place", "channel missing"]
    )
    victim = sorted(images.iterdir())[0]
    right: Outcome = "unknown"
    if kind == "right":
        right = "accepted"
    elif kind == "no label":
        sorted(labels.iterdir())[0].unlink()
    elif kind == "a file in a folder's place":
        shutil.rmtree(labels)
        labels.write_text("x")
    else:
        victim.unlink()
        if kind == "text":
            victim.write_text("x")
            right = "refused"
        elif kind == "pipe":
            os.mkfifo(victim)
            right = "refused"
    return Attack(f"loose folders, {kind}", ["data", "check", str(data)], right)


def damaged_record(random_: random.Random, base: Base, folder: Path) -> Attack:
    """The record of a prediction is damaged before `predict --resume` reads it."""
    data, _, case, _ = copy_strokes(base, folder, 1)
    out = folder / "out"
    shutil.copytree(base.predictions, out)
    record = next(file for file in (out / ".factorizer").iterdir() if case in file.name)
    way = random_.choice(["as it is", "mutated", "bytes", "known", "prediction"])
    right: Outcome = "unknown"
    if way == "as it is":
        right = "accepted"
    elif way == "mutated":
        record.write_text(
            json.dumps(mutate(mutate(json.loads(record.read_text()), random_), random_))
        )
    elif way == "bytes":
        record.write_bytes(damage_bytes(record.read_bytes(), random_))
    elif way == "known":
        record.write_bytes(random_.choice(sorted(CONTENTS.values())))
        right = "refused"
    else:
        prediction = out / f"{case}.nii.gz"
        prediction.write_bytes(damage_bytes(prediction.read_bytes(), random_))
        right = "refused"
    arguments = [
        "predict",
        "-i",
        str(data),
        "-o",
        str(out),
        "--model",
        str(base.run),
        "--device",
        "cpu",
        "--resume",
    ]
    return Attack(f"record of a prediction, {way}", arguments, right)
