"""Hostile text files: presets, descriptions of data sets, lists of cases, folds and scores."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from attacks import HOSTILE_VALUES, Attack, Base, Outcome, damage_bytes, mutate
from hostile_images import copy_strokes

DEEP = 100_000
# any text file may be one of these
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "a null byte": b"\x00",
    "no UTF-8": b"\xff\xfe\x00\x01",
    "nested lists": b"[" * DEEP,
    "nested objects": b'{"a":' * DEEP,
    "null": b"null",
    "a number": b"1e999",
    "a long number": b"1" * 5000,
    "a long line": b"x" * 300_000,
    "only a name": b"case",
    "lone surrogate": b'["\\ud800"]',
    "NaN": b"[NaN, Infinity]",
}
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
YAMLS: dict[str, str] = {
    "billion laughs": LAUGHS,
    "recursion": "title: x\ndata: &x\n  channels: *x\n",
    "Python object": "title: !!python/object/apply:os.system ['touch owned']\ndata: {}\n",
    "a date that is none": "title: 2001-99-99\n",
    "deep": "title: " + "[" * 2000,
    "keys that are no text": "1: 2\n? [a]\n: b\n",
    "two documents": "title: a\n---\ntitle: b\n",
    "tabs": "title:\tx\n\tdata: 1\n",
}


def known_preset(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        file = folder / "preset.yaml"
        file.write_bytes(YAMLS[name].encode() if name in YAMLS else CONTENTS[name])
        arguments = ["presets", "show", str(file)]
        return Attack(
            f"preset, {name}",
            arguments,
            "refused",
            names=["preset.yaml"],
            absent=[folder / "owned"],
        )

    return make


def mutated_preset(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A good preset with one value replaced; what it says is then counted, which builds all
    systems."""
    values = yaml.safe_load((base.run / "config.yaml").read_text())
    file = folder / "preset.yaml"
    file.write_text(yaml.safe_dump(mutate(values, random_)))
    if random_.random() < 0.8:
        return Attack("mutated preset", ["presets", "show", str(file)])
    return Attack(
        "mutated preset, profile", ["profile", "--preset", str(file), "--system", "swin-factorizer"]
    )


def damaged_preset(random_: random.Random, base: Base, folder: Path) -> Attack:
    file = folder / "preset.yaml"
    file.write_bytes(damage_bytes((base.run / "config.yaml").read_bytes(), random_))
    return Attack("damaged preset", ["presets", "show", str(file)])


def write_description(base: Base, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Scans in the layout of nnU-Net, and their dataset.json."""
    data = folder / "data"
    (data / "imagesTr").mkdir(parents=True)
    (data / "labelsTr").mkdir()
    for number, file in enumerate(sorted(base.strokes.rglob("*_dwi.nii.gz"))[:2]):
        os.link(file, data / "imagesTr" / f"case{number}_0000.nii.gz")
        os.link(
            file.with_name(file.name.replace("_dwi", "_adc")),
            data / "imagesTr" / f"case{number}_0001.nii.gz",
        )
    for number, file in enumerate(sorted(base.strokes.rglob("*_msk.nii.gz"))[:2]):
        os.link(file, data / "labelsTr" / f"case{number}.nii.gz")
    description = {
        "channel_names": {"0": "DWI", "1": "ADC"},
        "labels": {"background": 0, "lesion": 1},
        "file_ending": ".nii.gz",
        "numTraining": 2,
    }
    return data, description


def mutated_description(random_: random.Random, base: Base, folder: Path) -> Attack:
    data, description = write_description(base, folder)
    if random_.random() < 0.4:  # as the Decathlon's
        entries = [
            {"image": f"imagesTr/case{n}_0000.nii.gz", "label": f"labelsTr/case{n}.nii.gz"}
            for n in (0, 1)
        ]
        labels = {"0": "background", "1": "lesion"}
        description = {"modality": {"0": "DWI"}, "labels": labels, "training": entries}
    changed = mutate(mutate(description, random_), random_)
    (data / "dataset.json").write_text(json.dumps(changed))
    return Attack("mutated dataset.json", ["data", "check", str(data)])


def marked_description(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Names of labels and channels that a table would take for markup, or a terminal for
    commands."""
    data, description = write_description(base, folder)
    description["labels"] = {"background": 0, "[/x]": 1}
    description["channel_names"] = {"0": "[bold]", "1": "\x1b[31mADC"}
    (data / "dataset.json").write_text(json.dumps(description))
    return Attack("dataset.json with markup", ["data", "check", str(data)], "accepted")


def known_description(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        data, _ = write_description(base, folder)
        (data / "dataset.json").write_bytes(CONTENTS[name])
        return Attack(
            f"dataset.json, {name}", ["data", "check", str(data)], "refused", names=["dataset.json"]
        )

    return make


def list_rows(base: Base, count: int = 2) -> list[dict[str, str]]:
    images = sorted(base.strokes.rglob("*_dwi.nii.gz"))[:count]
    return [
        {
            "case": f"p{n}",
            "DWI": str(file),
            "ADC": str(file.with_name(file.name.replace("_dwi", "_adc"))),
        }
        for n, file in enumerate(images)
    ]


def predict_list(base: Base, folder: Path, file: Path) -> list[str]:
    return [
        "predict",
        "-i",
        str(file),
        "-o",
        str(folder / "out"),
        "--model",
        str(base.run),
        "--device",
        "cpu",
    ]


def known_list(name: str, ending: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        file = folder / f"list{ending}"
        file.write_bytes(CONTENTS[name])
        return Attack(
            f"list{ending}, {name}", predict_list(base, folder, file), "refused", names=[file.name]
        )

    return make


def mutated_list(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A JSON list with a value replaced, or a CSV list with a cell replaced."""
    rows: Any = list_rows(base)
    if random_.random() < 0.6:
        file = folder / "list.json"
        file.write_text(json.dumps(mutate(rows, random_)))
    else:
        file = folder / "list.csv"
        hostile = str(random_.choice(HOSTILE_VALUES))
        rows[0][random_.choice(["case", "DWI", "ADC"])] = hostile
        separator = random_.choice([",", ";", "\t"])
        lines = [
            separator.join(["Case", "dwi", "Adc"]),
            *(separator.join(row.values()) for row in rows),
        ]
        file.write_text("\ufeff" + "\n".join(lines), errors="replace")
    return Attack("mutated list", predict_list(base, folder, file))


def good_list(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Any separator, capitals and a byte order mark are right."""
    file = folder / "list.csv"
    separator = random_.choice([",", ";", "\t"])
    names = random_.choice(
        [["case", "DWI", "ADC"], ["CASE", "dwi", "adc"], ["Case", "Dwi", " ADC "]]
    )
    lines = [separator.join(names), *(separator.join(row.values()) for row in list_rows(base, 1))]
    file.write_text("\ufeff" + "\n".join(lines) + "\n")
    arguments = predict_list(base, folder, file)
    return Attack(
        "list that is right", arguments, "accepted", written=[folder / "out" / "p0.nii.gz"]
    )


SCORES: dict[str, tuple[str, Outcome]] = {
    "as it should be": ("a,lesion,dice,0.5\nb,lesion,dice,0.75\n", "accepted"),
    "Dice of 50": ("a,lesion,dice,50\n", "refused"),
    "Dice below 0": ("a,lesion,dice,-5\n", "refused"),
    "Dice of 1e300": ("a,lesion,dice,1e300\n", "refused"),
    "a distance below 0": ("a,lesion,dice,0.5\na,lesion,hd95_mm,-1\n", "refused"),
    "a word": ("a,lesion,dice,high\n", "refused"),
    "twice": ("a,lesion,dice,0.5\na,lesion,dice,0.6\n", "refused"),
    "no rows": ("", "refused"),
    "a long field": ("a" * 200_000 + ",lesion,dice,0.5\n", "refused"),
    "markup": ("[/x],[bold],dice,0.5\nb,[bold],dice,0.75\n", "accepted"),
    "escape sequences": ("\x1b[31ma,\x1b]0;t\x07,dice,0.5\n", "unknown"),
    "formulas": ("=1+1,@x,dice,0.5\n", "accepted"),
    "HTML": ("<script>,<b>|x,dice,0.5\n", "accepted"),
    "too many cells": ("a,lesion,dice,0.5,0.6\n", "refused"),
}


def hostile_scores(name: str) -> Callable[[random.Random, Base, Path], Attack]:
    text, right = SCORES[name]

    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        for place in ("one", "two"):
            (folder / place).mkdir()
            (folder / place / "scores.csv").write_text("case,region,metric,value\n" + text)
        arguments = [
            "compare",
            "one=one/scores.csv",
            "two=two/scores.csv",
            "-o",
            str(folder / "comparison"),
        ]
        names = ["scores.csv"] if right == "refused" and name != "no rows" else []
        return Attack(f"scores, {name}", arguments, right, names=names)

    return make


def damaged_scores(random_: random.Random, base: Base, folder: Path) -> Attack:
    (folder / "scores.csv").write_bytes(
        damage_bytes((base.run / "scores.csv").read_bytes(), random_)
    )
    arguments = [
        "compare",
        "a=scores.csv",
        f"b={base.run}/scores.csv",
        "-o",
        str(folder / "comparison"),
    ]
    return Attack("damaged scores", arguments)


def hostile_split(random_: random.Random, base: Base, folder: Path) -> Attack:
    """Folds of any kind."""
    data, _, bad, good = copy_strokes(base, folder, 2)
    kind = random_.choice(["csv", "json", "nnunet", *CONTENTS])
    if kind == "csv":
        file = folder / "split.csv"
        cell = str(random_.choice(HOSTILE_VALUES)).replace("\x00", "")
        file.write_text(f"case,fold\n{bad},{cell}\n{good[0]},1\n", errors="replace")
    elif kind in ("json", "nnunet"):
        file = folder / "split.json"
        ours = {"origin": "x", "folds": {"0": [bad], "1": good}}
        theirs = [{"train": good, "val": [bad]}, {"train": [bad], "val": good}]
        file.write_text(json.dumps(mutate(ours if kind == "json" else theirs, random_)))
    else:
        file = folder / random_.choice(["split.csv", "split.json"])
        file.write_bytes(CONTENTS[kind])
    arguments = ["data", "folds", str(data), "-o", str(folder / "folds.json"), "--split", str(file)]
    right: Outcome = "refused" if kind in CONTENTS else "unknown"
    return Attack(f"split, {kind}", arguments, right)
