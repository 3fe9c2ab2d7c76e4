"""Hostile models: weights, checkpoints, and the files of a run's folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attacks import HOSTILE_VALUES, Attack, Base, Outcome, damage_bytes, mutate
from hostile_images import copy_strokes
from hostile_texts import CONTENTS
from safetensors.torch import save

RUN_FILES = (
    "run.json",
    "cases.json",
    "../folds.json",
    "speeds.json",
    "../postprocessing.json",
    "config.yaml",
)
SPEEDS = {"fast": [{"num_iters": 1}] * 3}


class Owner:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


def copy_run(base: Base, folder: Path) -> Path:
    """The trained run, copied; its fold's folder."""
    run = folder / "run"
    shutil.copytree(
        base.run.parent,
        run,
        ignore=shutil.ignore_patterns("cache", "previous.ckpt", "best.ckpt", "log"),
    )
    return run / base.run.name


def predict_with(fold: Path, base: Base, folder: Path, *more: str) -> list[str]:
    data, _, _, _ = copy_strokes(base, folder, 1)
    return [
        "predict",
        "-i",
        str(data),
        "-o",
        str(folder / "out"),
        "--model",
        str(fold),
        "--device",
        "cpu",
        *more,
    ]


def weights_of(base: Base) -> dict[str, torch.Tensor]:
    state = torch.load(base.run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return {name.removeprefix("network."): value.contiguous() for name, value in state.items()}


def only_safetensors(
    base: Base, folder: Path, content: bytes, checksum_of: bytes | None = None
) -> Path:
    """A folder as of the zoo: a configuration, weights and their checksum."""
    fold = folder / "model"
    fold.mkdir()
    shutil.copyfile(base.run / "config.yaml", fold / "config.yaml")
    (fold / "weights.safetensors").write_bytes(content)
    digest = hashlib.sha256(content if checksum_of is None else checksum_of).hexdigest()
    (fold / "weights.sha256").write_text(f"{digest}  weights.safetensors\n")
    return fold


def hostile_safetensors(kind: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        weights = weights_of(base)
        first = next(name for name, value in weights.items() if value.is_floating_point())
        right: Outcome = "refused"
        if kind == "as it is":
            right = "accepted"
        elif kind == "NaN":
            weights[first] = torch.full_like(weights[first], float("nan"))
        elif kind == "infinite":
            weights[first].flatten()[0] = float("inf")
        elif kind == "missing":
            del weights[first]
        elif kind == "another shape":
            weights[first] = torch.zeros(3, 3)
        elif kind == "integers":
            weights[first] = torch.zeros(weights[first].shape, dtype=torch.int64)
            right = "unknown"
        content = save(weights)
        if kind == "cut":
            content = content[: len(content) // 2]
        elif kind == "long header":
            content = struct.pack("<Q", 2**40) + content[8:]
        elif kind == "no header":
            content = b""
        elif kind == "header of another kind":
            (size,) = struct.unpack("<Q", content[:8])
            header = json.dumps(mutate(json.loads(content[8 : 8 + size]), random_)).encode()
            content, right = (
                struct.pack("<Q", len(header)) + header + content[8 + size :],
                "unknown",
            )
        elif kind == "deep header":
            header = b'{"a":' * 5000
            content = struct.pack("<Q", len(header)) + header
        elif kind == "damaged":
            content, right = (
                content[:8] + damage_bytes(content[8:2000], random_) + content[2000:],
                "unknown",
            )
        before = content
        if kind == "a changed byte":
            content = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
        fold = only_safetensors(base, folder, content, before)
        names = ["model"] if right == "refused" else []
        return Attack(f"safetensors, {kind}", predict_with(fold, base, folder), right, names=names)

    return make


SAFETENSORS = (
    "as it is",
    "NaN",
    "infinite",
    "missing",
    "another shape",
    "integers",
    "cut",
    "long header",
    "no header",
    "header of another kind",
    "deep header",
    "a changed byte",
    "damaged",
)


def save_checkpoint(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def hostile_checkpoint(kind: str) -> Callable[[random.Random, Base, Path], Attack]:
    def make(random_: random.Random, base: Base, folder: Path) -> Attack:
        fold = copy_run(base, folder)
        file = fold / "checkpoints" / "last.ckpt"
        good = file.read_bytes()
        checkpoint = torch.load(file, weights_only=True)
        right: Outcome = "refused"
        if kind == "damaged":
            content = damage_bytes(good, random_)
            right = "unknown"
        elif kind == "a changed weight":
            place = len(good) // 2
            content = good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :]
            right = "unknown"  # it may be between two records
        elif kind == "cut":
            content = good[: len(good) // 3]
        elif kind == "pickle":
            content = pickle.dumps({"state_dict": Owner()})
        elif kind == "pickle in torch's form":
            content = save_checkpoint({"state_dict": Owner(), "global_step": 2})
        elif kind == "NaN":
            name = next(
                name
                for name, value in checkpoint["state_dict"].items()
                if value.is_floating_point()
            )
            checkpoint["state_dict"][name] = torch.full_like(
                checkpoint["state_dict"][name], float("nan")
            )
            content = save_checkpoint(checkpoint)
        elif kind == "huge weights":
            weights = {name: 1e30 * value for name, value in checkpoint["state_dict"].items()}
            content = save_checkpoint(checkpoint | {"state_dict": weights})
        elif kind == "weights that are none":
            content = save_checkpoint(checkpoint | {"state_dict": random_.choice(HOSTILE_VALUES)})
        elif kind == "a weight that is none":
            name = random_.choice(sorted(checkpoint["state_dict"]))
            weights = dict(checkpoint["state_dict"]) | {name: random_.choice(HOSTILE_VALUES)}
            content = save_checkpoint(checkpoint | {"state_dict": weights})
        else:
            content = save_checkpoint(random_.choice(HOSTILE_VALUES))
        file.unlink()
        file.write_bytes(content)
        names = ["last.ckpt"] if right == "refused" and kind not in ("NaN", "huge weights") else []
        command = random_.choice(["predict", "resume"])
        if command == "resume" and right == "refused":
            right, names = "unknown", []  # it may begin anew
        arguments = use_run(command, fold, base, folder, "")
        absent = [folder / "owned"]
        return Attack(
            f"checkpoint, {kind}, {command}", arguments, right, names=names, absent=absent
        )

    return make


CHECKPOINTS = (
    "damaged",
    "a changed weight",
    "cut",
    "pickle",
    "pickle in torch's form",
    "NaN",
    "huge weights",
    "weights that are none",
    "a weight that is none",
    "another value",
)


def hostile_run_file(random_: random.Random, base: Base, folder: Path) -> Attack:
    """A file of a run replaced or mutated, then the run is used."""
    fold = copy_run(base, folder)
    (fold / "speeds.json").write_text(json.dumps(SPEEDS))
    (fold / "../postprocessing.json").write_text(
        json.dumps({"lesion": {"min_volume_ml": 0.01, "largest": False}})
    )
    name = random_.choice(RUN_FILES)
    file = fold / name
    content = file.read_bytes()
    file.unlink()
    way = random_.choice(["known", "mutated", "mutated", "damaged", "missing"])
    if way == "known":
        file.write_bytes(random_.choice(sorted(CONTENTS.values())))
    elif way == "mutated" and name.endswith(".json"):
        file.write_text(json.dumps(mutate(mutate(json.loads(content), random_), random_)))
    elif way != "missing":
        file.write_bytes(damage_bytes(content, random_))
    command = random_.choice(["predict", "predict", "resume", "compare", "explain", "postprocess"])
    arguments = use_run(command, fold, base, folder, name)
    return Attack(f"run folder, {way} {name.removeprefix('../')}, {command}", arguments)


def use_run(command: str, fold: Path, base: Base, folder: Path, name: str) -> list[str]:
    if command == "resume":
        (fold / "scores.csv").unlink(missing_ok=True)
        common = [
            "--data",
            str(base.strokes),
            "--output",
            str(fold.parent),
            "--device",
            "cpu",
            "--workers",
            "0",
        ]
        return [
            "train",
            "--preset",
            str(base.run / "config.yaml"),
            "--fold",
            "1",
            "--resume",
            *common,
        ]
    if command == "compare":
        return ["compare", f"a={fold}", f"b={base.run}", "-o", str(folder / "comparison")]
    if command == "postprocess":
        return [
            "postprocess",
            "--run",
            str(fold.parent),
            "--data",
            str(base.strokes),
            "--device",
            "cpu",
        ]
    if command == "explain":
        data, _, _, _ = copy_strokes(base, folder, 1)
        return [
            "explain",
            "--model",
            str(fold),
            "-i",
            str(data),
            "-o",
            str(folder / "seen"),
            "--device",
            "cpu",
        ]
    speed = ["--speed", "fast"] if name == "speeds.json" else []
    return predict_with(
        fold, base, folder, *speed, *(["--postprocess"] if "postprocessing" in name else [])
    )
