"""What resuming skips: what the same model made with the same options from the same images, and
nothing else."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch

from factorizer.config import Preset
from factorizer.config.networks import network_of
from factorizer.data.cases import Case, Source
from factorizer.evaluation.references import list_labels
from factorizer.inference import manifest
from factorizer.inference.cleaning import Cleaning
from factorizer.inference.manifest import RECORDS, record_file
from factorizer.inference.predict import Prediction, predict_cases
from factorizer.inference.predictor import Predictor
from factorizer.nn.nmf import NMF
from factorizer.preset_files import change_preset, load_preset

CHANGES = ["model.widths=[8,16]", "model.window=4", "data.patch_size=[16,16,16]"]
PRESET = change_preset(load_preset("isles22"), CHANGES)


def make_predictor(preset: Preset = PRESET, **options: Any) -> Predictor:
    return Predictor(preset, [network_of(preset)], **options)


def write_image(file: Path, seed: int) -> Path:
    values = np.random.default_rng(seed).uniform(1, 100, (16, 16, 16)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 2.0, 2.0, 1.0])), file)
    return file


def make_case(folder: Path, name: str, seed: int = 0) -> Case:
    files = [
        write_image(folder / f"{name}-{channel}.nii.gz", seed + n)
        for n, channel in enumerate(("dwi", "adc"))
    ]
    return Case(name, {"DWI": Source(files[0]), "ADC": Source(files[1])})


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path, "x")


@pytest.fixture
def out(case: Case, tmp_path: Path) -> Path:
    """A folder with the prediction of the case."""
    (done,) = predict_cases(make_predictor(), [case], tmp_path / "out")
    assert done.file == tmp_path / "out" / "x.nii.gz"
    return tmp_path / "out"


def again(case: Case, out: Path, predictor: Predictor | None = None, **options: Any) -> Prediction:
    (done,) = predict_cases(
        predictor or make_predictor(), [case], out, skip_existing=True, **options
    )
    return done


def test_what_was_made_before_is_skipped_wherever_the_images_are_now(
    case: Case, out: Path, tmp_path: Path
) -> None:
    assert again(case, out).skipped
    (tmp_path / "elsewhere").mkdir()
    sources = {}
    for channel, source in case.channels.items():
        moved = source.file.rename(tmp_path / "elsewhere" / source.file.name)
        sources[channel] = Source(moved)
    assert again(replace(case, channels=sources), out).skipped


def test_a_record_says_what_made_a_file(case: Case, out: Path) -> None:
    record = json.loads(record_file(out, case).read_text())
    assert record["case"] == "x"
    assert list(record["files"]) == ["x.nii.gz"]
    assert record["inputs"]["ADC"]["file"].endswith("x-adc.nii.gz")
    assert record["made_with"]["inference"]["overlap"] == 0.5
    assert [file.name for file in (out / RECORDS).iterdir()] == ["x.json"]
    assert [label.name for label in list_labels(out)] == ["x"]


@pytest.mark.parametrize("content", [b"", b"not a prediction", "input"])
def test_a_file_that_it_did_not_make(case: Case, tmp_path: Path, content: bytes | str) -> None:
    """Nothing, anything, or the input itself."""
    (tmp_path / "new").mkdir()
    file = tmp_path / "new" / "x.nii.gz"
    before = case.channels["DWI"].file.read_bytes() if isinstance(content, str) else content
    file.write_bytes(before)
    (problem,) = again(case, tmp_path / "new").problems
    assert (problem.case, problem.file) == ("x", str(file))
    assert "it is not known what made it" in problem.message
    assert "remove it to predict it again" in problem.remedy
    assert file.read_bytes() == before


def test_a_file_that_was_changed(case: Case, out: Path) -> None:
    (out / "x.nii.gz").write_bytes(b"")
    (problem,) = again(case, out).problems
    assert "changed after it was predicted" in problem.message
    assert (out / "x.nii.gz").read_bytes() == b""


def test_another_image_of_the_same_name(case: Case, out: Path) -> None:
    write_image(case.channels["ADC"].file, seed=7)
    (problem,) = again(case, out).problems
    assert problem.message == "it was made from another image (ADC)"


def other_weights() -> Predictor:
    predictor = make_predictor()
    with torch.no_grad():
        next(predictor.networks[0].parameters()).view(-1)[0] += 1e-6
    return predictor


def faster() -> Predictor:
    predictor = make_predictor()
    next(
        module for module in predictor.networks[0].modules() if isinstance(module, NMF)
    ).num_iters = 1
    return predictor


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (other_weights, {}, "with different weights"),
        (lambda: Predictor(PRESET, [network_of(PRESET)] * 2), {}, "with different weights"),
        (faster, {}, "at another speed"),
        (lambda: make_predictor(mirrored=True), {}, "without mirror images"),
        (
            make_predictor,
            {"rules": {"lesion": Cleaning(largest=True)}},
            "with different rules of post-processing",
        ),
        (
            lambda: make_predictor(
                change_preset(PRESET, ["inference.overlap=0.25", "inference.threshold=0.4"])
            ),
            {},
            "with a different inference.overlap and with a different inference.threshold",
        ),
        (
            lambda: make_predictor(change_preset(PRESET, ["data.normalization=zscore"])),
            {},
            "with a different data.normalization",
        ),
    ],
)
def test_another_model_or_other_settings_are_refused_before_anything_is_predicted(
    case: Case, out: Path, tmp_path: Path, make: Any, options: Any, words: str
) -> None:
    new = make_case(tmp_path, "new", seed=5)
    with pytest.raises(ValueError, match=rf"x.nii.gz was made {words}; give another folder"):
        list(predict_cases(make(), [new, case], out, skip_existing=True, **options))
    assert not (out / "new.nii.gz").exists()


def test_settings_that_only_training_uses_do_not_matter(case: Case, out: Path) -> None:
    preset = change_preset(
        PRESET, ["data.augmentation.affine.probability=0.3", "training.max_steps=7"]
    )
    assert again(case, out, make_predictor(preset), rules={}).skipped
    assert again(case, out, make_predictor(batch_size=2)).skipped


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"made_with": 1}',
        '{"made_with": {}, "inputs": {"DWI": 1}, "files": {}}',
        "[" * 10**5,
    ],
)
def test_a_damaged_record(case: Case, out: Path, text: str) -> None:
    record_file(out, case).write_text(text)
    (problem,) = again(case, out).problems
    assert problem.file.endswith(".factorizer/x.json")
    assert problem.remedy == "remove it with its prediction, to predict it again"
    (out / "x.nii.gz").unlink()
    assert again(case, out).file == out / "x.nii.gz"  # there is nothing to doubt
    assert again(case, out).skipped


def test_the_others_go_on(case: Case, out: Path, tmp_path: Path) -> None:
    (out / "x.nii.gz").write_bytes(b"")
    new = make_case(tmp_path, "new", seed=5)
    first, second = predict_cases(make_predictor(), [case, new], out, skip_existing=True)
    assert first.problems
    assert second.file == out / "new.nii.gz"


@pytest.mark.parametrize("kill_at", ["record", "first file", "second file"])
def test_killed_at_any_write_it_continues(
    case: Case, tmp_path: Path, monkeypatch: Any, kill_at: str
) -> None:
    out = tmp_path / "killed"
    list(predict_cases(make_predictor(), [case], tmp_path / "whole", save_probabilities=True))

    class Killed(BaseException):
        pass

    moves: list[Path] = []

    def move(source: Path, place: Path) -> None:
        if len(moves) == (0 if kill_at == "first file" else 1):
            raise Killed
        moves.append(place)
        place.write_bytes(source.read_bytes())

    def no_record(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if kill_at == "record":
            patch.setattr(manifest, "write_atomically", no_record)
        else:
            patch.setattr(manifest.os, "replace", lambda a, b: move(Path(a), Path(b)))
            patch.setattr(manifest, "write_atomically", lambda file, text: file.write_text(text))
            patch.setattr(
                "factorizer.data.outputs.write_atomically",
                lambda file, data: file.write_bytes(data),
            )
        with pytest.raises(Killed):
            again(case, out, save_probabilities=True)
    done = again(case, out, save_probabilities=True)
    assert not done.problems
    assert again(case, out, save_probabilities=True).skipped
    for file in ("x.nii.gz", "x_probabilities.nii.gz"):
        assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_old_leftovers_of_killed_jobs_are_removed(case: Case, out: Path) -> None:
    for name in ("part-old", "part-young"):
        (out / RECORDS / name).mkdir()
        (out / RECORDS / name / "x.nii.gz").touch()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(out / RECORDS / "part-old", (two_days_ago, two_days_ago))
    assert again(case, out).skipped
    assert sorted(file.name for file in (out / RECORDS).iterdir()) == ["part-young", "x.json"]


def test_jobs_that_share_a_folder_keep_each_others_records(
    case: Case, out: Path, tmp_path: Path
) -> None:
    new = make_case(tmp_path, "new", seed=5)
    list(predict_cases(make_predictor(), [new], out))
    both = list(predict_cases(make_predictor(), [case, new], out, skip_existing=True))
    assert all(done.skipped for done in both)


def test_two_cases_never_share_a_file(tmp_path: Path) -> None:
    cases = [make_case(tmp_path, "x"), make_case(tmp_path, "x_probabilities", seed=3)]
    message = (
        r"x_probabilities.nii.gz would be a file of the case x and of the case "
        r"x_probabilities; rename one"
    )
    with pytest.raises(ValueError, match=message):
        list(predict_cases(make_predictor(), cases, tmp_path / "out", save_probabilities=True))
    assert not (tmp_path / "out").exists()
    done = list(predict_cases(make_predictor(), cases, tmp_path / "out"))
    assert all(one.file is not None for one in done)
    assert all(
        one.skipped
        for one in predict_cases(make_predictor(), cases, tmp_path / "out", skip_existing=True)
    )
