"""`factorizer predict` and `factorizer evaluate` on files."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import factorizer
from factorizer.cli import app
from factorizer.data.cases import Case, Problem, Source, sources_in_one_file
from factorizer.data.inputs import read_inputs
from factorizer.data.layouts import read_cohort
from factorizer.data.preprocess import Prepared
from factorizer.errors import ModelError
from factorizer.inference import memory
from factorizer.inference.load import load
from factorizer.inference.predict import predict as predict_inputs
from factorizer.inference.predictor import Predictor, Segmented
from factorizer.inference.remarks import describe_channels, describe_problems
from factorizer.preset_files import change_preset, load_preset
from factorizer.progress import Task
from factorizer.runs.find import trained_on
from factorizer.runs.fold import Fold
from factorizer.training.machine import Machine
from factorizer.training.session import train_fold
from testkit.telling import Listener
from testkit.writing import write_nifti

runner = CliRunner()


@pytest.fixture
def data(tumours: Path) -> Path:
    return tumours


@pytest.fixture
def run(tumour_run: Path) -> Path:
    """A run of two folds."""
    return tumour_run


def invoke(*command: object):
    return runner.invoke(app, [str(part) for part in command])


def predict(*options: object):
    return invoke("predict", "--device", "cpu", *options)


@pytest.mark.slow
def test_the_scores_of_a_run_are_those_of_predict_and_evaluate(
    data: Path, run: Path, tmp_path: Path
) -> None:
    result = predict("-i", data, "-o", tmp_path / "out", "--model", run / "fold0", "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["written"]) == 6
    for case in read_cohort(data).cases:
        image = nibabel.load(next(iter(case.channels.values())).file)
        labels = nibabel.load(tmp_path / "out" / f"{case.name}.nii.gz")
        assert labels.shape == image.shape[:3]
        assert labels.get_data_dtype() == np.uint8
        np.testing.assert_array_equal(labels.affine, image.affine)
        assert labels.header["qform_code"] == image.header["qform_code"]
        assert set(np.unique(labels.dataobj)) <= {0, 1, 2, 3}
    scores = tmp_path / "scores.csv"
    result = invoke(
        "evaluate",
        "-p",
        tmp_path / "out",
        "-r",
        data,
        "--preset",
        run / "fold0" / "config.yaml",
        "-o",
        scores,
    )
    assert result.exit_code == 0, result.output
    expected = (run / "fold0" / "scores.csv").read_text().splitlines()
    assert len(expected) > 1
    assert set(expected) <= set(scores.read_text().splitlines())


@pytest.mark.slow
def test_cases_of_the_training_are_counted(data: Path, run: Path, tmp_path: Path) -> None:
    folds = json.loads((run / "folds.json").read_text())["folds"]
    assert trained_on([Fold(run / "fold0")]) == {
        case for fold in ("1", "2") for case in folds[fold]
    }
    assert trained_on([Fold(run / "fold0"), Fold(run / "fold1")]) == {
        case.name for case in read_cohort(data).cases
    }
    result = predict("-i", data, "-o", tmp_path / "out", "--model", run / "fold0")
    assert "4 of them have names of cases that this model was trained on" in " ".join(
        result.stderr.split()
    )
    assert trained_on([Fold(Path("zoo/elsewhere"))]) == set()


def test_python(data: Path, run: Path, tmp_path: Path) -> None:
    assert predict("-i", data, "-o", tmp_path, "--model", run / "fold0").exit_code == 0
    case = read_cohort(data).cases[0]
    image = nibabel.load(next(iter(case.channels.values())).file)
    labels = factorizer.load(run / "fold0", device="cpu").predict(
        np.moveaxis(np.asarray(image.dataobj), -1, 0), affine=image.affine
    )
    np.testing.assert_array_equal(labels, nibabel.load(tmp_path / f"{case.name}.nii.gz").dataobj)


@pytest.mark.slow
def test_what_is_there_is_not_overwritten(data: Path, run: Path, tmp_path: Path) -> None:
    assert predict("-i", data, "-o", tmp_path, "--model", run / "fold0").exit_code == 0
    file = tmp_path / "BRATS_001.nii.gz"
    before = file.read_bytes()
    again = predict("-i", data, "-o", tmp_path, "--model", run / "fold1")
    assert again.exit_code == 2
    assert "already exists; resume to skip what exists" in again.stderr
    (tmp_path / "BRATS_002.nii.gz").unlink()
    other = predict("-i", data, "-o", tmp_path, "--model", run / "fold1", "--resume")
    assert other.exit_code == 2
    assert (
        "BRATS_001.nii.gz was made with different weights (as were 4 more); give another folder"
        in other.stderr
    )
    assert not (tmp_path / "BRATS_002.nii.gz").exists()
    result = predict("-i", data, "-o", tmp_path, "--model", run / "fold0", "--resume")
    assert "1 written, 5 skipped, 0 failed" in result.stdout
    assert file.read_bytes() == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_it_says_how_to_continue(
    data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    started: list[str] = []

    def stop_at_the_third(self: Predictor, case: Case, channels: object) -> object:
        started.append(case.name)
        if len(started) == 3:
            os.kill(os.getpid(), number)
        return prepare(self, case, channels)

    prepare = Predictor.prepare
    handler = signal.getsignal(signal.SIGTERM)
    options = ["-i", data, "-o", tmp_path, "--model", run / "fold0"]
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "prepare", stop_at_the_third)
        result = predict(*options)
    assert result.exit_code == code
    assert "Run the same command with --resume to predict the others" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is handler
    assert len(list(tmp_path.glob("*.nii.gz"))) == 2
    assert "4 written, 2 skipped, 0 failed" in predict(*options, "--resume").stdout


def test_a_failing_case_does_not_stop_the_others(data: Path, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / "imagesTr" / "BRATS_002.nii.gz").write_bytes(b"x")
    write_nifti(copy / "imagesTr" / "BRATS_003.nii.gz", np.ones((24, 24, 24, 3), np.float32))
    result = predict("-i", copy, "-o", tmp_path / "out", "--model", run / "fold0")
    assert result.exit_code == 1
    assert "4 written, 0 skipped, 2 failed" in result.stdout
    assert "BRATS_002.nii.gz" in result.stderr
    assert "it holds 3 channels" in result.stderr
    assert sorted(file.name[:9] for file in (tmp_path / "out").glob("*.nii.gz")) == [
        f"BRATS_00{i}" for i in (1, 4, 5, 6)
    ]


def test_a_bug_in_one_case_is_reported_and_the_others_are_predicted(
    data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = Predictor.segment

    def fail_once(self: Predictor, prepared: Prepared, **options: Any) -> Segmented:
        if prepared.name == "BRATS_002":
            raise KeyError("liver")
        return segment(self, prepared, **options)

    monkeypatch.setattr(Predictor, "segment", fail_once)
    monkeypatch.chdir(tmp_path)  # the report goes to the working folder
    result = predict("-i", data, "-o", tmp_path / "out", "--model", run / "fold0", "--json")
    assert result.exit_code == 70
    assert "bug BRATS_002: a bug in Factorizer (KeyError: 'liver')" in result.stderr
    summary = json.loads(result.stdout)
    assert summary["failed"] == ["BRATS_002"]
    assert list(summary["written"]) == [f"BRATS_00{i}" for i in (1, 3, 4, 5, 6)]
    assert not (tmp_path / "out" / "BRATS_002.nii.gz").exists()
    (report,) = tmp_path.glob("factorizer-bug-*.txt")
    assert report.name in result.stderr
    assert "fail_once" in report.read_text()


class Bars(Listener):
    """Keeps lines, and counts the steps of every bar."""

    def __init__(self) -> None:
        super().__init__([])
        self.steps: dict[str, int] = {}
        self.totals: dict[str, int | None] = {}

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Task]:
        self.steps[label] = 0
        self.totals[label] = total
        yield Bar(self, label)


class Bar(Task):
    def __init__(self, bars: Bars, label: str) -> None:
        self.bars, self.label = bars, label

    def advance(self, steps: int = 1) -> None:
        self.bars.steps[self.label] += steps


def test_the_library_predicts_says_and_returns_everything(
    data: Path, run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    (copy / "imagesTr" / "BRATS_002.nii.gz").write_bytes(b"x")
    progress, out = Bars(), tmp_path / "out"
    done = predict_inputs(run / "fold0", copy, out, device="cpu", progress=progress)
    good = [f"BRATS_00{i}" for i in (1, 3, 4, 5, 6)]
    assert done.folder == out
    assert done.written == {name: out / f"{name}.nii.gz" for name in good}
    assert list(done.seconds) == good
    assert (done.skipped, done.failed) == ([], ["BRATS_002"])
    (problem,) = done.problems
    assert (problem.case, problem.severity) == ("BRATS_002", "error")
    assert [prediction.case for prediction in done.cases] == sorted([*good, "BRATS_002"])
    assert progress.lines[0].startswith("6 cases, 1 network on cpu, at most about")
    places = "FLAIR = 1, T1 = 2, T1Gd = 3, T2 = 4"
    assert progress.lines[1] == f"channels of BRATS_001: {places} in BRATS_001.nii.gz"
    assert progress.lines[2] == "labels are written as edema = 1, necrosis = 2, enhancing = 3"
    assert progress.lines[3].startswith("4 of them have names of cases")
    assert progress.lines[4] == f"error {problem}"
    assert progress.totals["cases"] == progress.steps["cases"] == 6
    assert set(progress.steps) == {"cases", *good}
    for name in good:
        assert progress.steps[name] == progress.totals[name]
        assert progress.steps[name] > 1
    again = predict_inputs(str(run / "fold0"), [str(copy)], str(out), device="cpu", resume=True)
    assert again.skipped == good
    assert (again.written, again.seconds) == ({}, {})


def test_inputs_that_are_no_cases_are_said_first_and_fail(
    data: Path, run: Path, tmp_path: Path
) -> None:
    names = [f"case{index}" for index in range(7)]
    lines = ["case,FLAIR,T1,T1Gd,T2", *(f"{name},no.nii.gz,,," for name in names)]
    (tmp_path / "cases.csv").write_text("\n".join(lines))
    progress = Bars()
    done = predict_inputs(
        run / "fold0", tmp_path / "cases.csv", tmp_path / "out", progress=progress
    )
    assert done.failed == names
    assert len(done.input_problems) == len(done.problems) == 7
    assert progress.lines[0].startswith("error ")
    assert progress.lines[7].startswith("0 cases, 1 network")


def test_channels_are_said_only_if_the_files_have_them(tmp_path: Path) -> None:
    one, both = tmp_path / "dwi.nii.gz", tmp_path / "both.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4)), np.eye(4)), one)
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4, 2)), np.eye(4)), both)
    channels = ("DWI", "ADC")
    lacking = Case("a", sources_in_one_file(one, channels))
    joined = Case("b", sources_in_one_file(both, channels))
    separate = Case("c", {"DWI": Source(one), "ADC": Source(tmp_path / "adc.nii.gz")})
    assert list(describe_channels(lacking)) == []
    assert list(describe_channels(joined)) == ["channels of b: DWI = 1, ADC = 2 in both.nii.gz"]
    assert list(describe_channels(separate)) == [
        "channels of c: DWI = dwi.nii.gz, ADC = adc.nii.gz"
    ]


def test_problems_of_the_same_kind_are_counted() -> None:
    same = [Problem(f"case{index}", "", "it is empty", "fill it") for index in range(7)]
    other = Problem("x", "x.nii", "it is flat", "scan again", "warning")
    assert list(describe_problems([*same[:2], other, *same[2:]])) == [
        *(f"error case{index}: it is empty; fill it" for index in range(5)),
        "  and 2 more for the same reason",
        "warning x.nii: it is flat; scan again",
    ]


@pytest.mark.slow
def test_ensembles_mirrors_and_probabilities(data: Path, run: Path, tmp_path: Path) -> None:
    image = data / "imagesTr" / "BRATS_001.nii.gz"
    singles = []
    for fold in (0, 1):
        out = tmp_path / f"fold{fold}"
        assert (
            predict(
                "-i", image, "-o", out, "--model", run / f"fold{fold}", "--save-probabilities"
            ).exit_code
            == 0
        )
        singles.append(
            np.asarray(nibabel.load(out / "BRATS_001_probabilities.nii.gz").dataobj, np.float64)
        )
    assert singles[0].shape == (24, 24, 24, 3)
    result = predict(
        "-i",
        image,
        "-o",
        tmp_path / "all",
        "--model",
        run,
        "--folds",
        "all",
        "--save-probabilities",
    )
    assert result.exit_code == 0, result.output
    both = np.asarray(
        nibabel.load(tmp_path / "all" / "BRATS_001_probabilities.nii.gz").dataobj, np.float64
    )
    inside = np.all([(p > 0.01) & (p < 0.99) for p in singles], axis=0)
    assert inside.any()
    logits = [np.log(p[inside] / (1 - p[inside])) for p in singles]
    expected = 1 / (1 + np.exp(-np.mean(logits, axis=0)))
    np.testing.assert_allclose(
        both[inside], expected, atol=2e-3
    )  # the average is before patches are blended
    assert (
        predict("-i", image, "-o", tmp_path / "tta", "--model", run / "fold0", "--tta").exit_code
        == 0
    )
    several = predict("-i", image, "-o", tmp_path / "x", "--model", run)
    assert "has the folds 0, 1; give one of them as" in several.stderr
    assert (
        "not 7" in predict("-i", image, "-o", tmp_path / "x", "--model", run, "--folds", "7").stderr
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "nowhere"), "nowhere is not a run"),
        (("--model", "zoo:nothing"), "the zoo has no model 'nothing'"),
        (("--model", "thing"), "thing is not a run; give a folder that `factorizer train` wrote"),
        (
            ("--model", "RUN/fold0", "-o", "seg.nii.gz"),
            "seg.nii.gz is the name of an image; give a folder",
        ),
        (
            ("--model", "RUN/fold0", "--speed", "fast"),
            "has the speeds best, not fast; `factorizer tune` makes",
        ),
        (("--model", "RUN/fold0", "--postprocess"), "has no postprocessing.json"),
        (("--model", "RUN/fold0", "--device", "toaster"), "choose auto, cpu, cuda or mps"),
    ],
)
def test_what_cannot_be_done_is_said(
    data: Path, run: Path, tmp_path: Path, options, message: str
) -> None:
    options = [
        option.replace("RUN", str(run)) if isinstance(option, str) else option for option in options
    ]
    result = predict("-i", data, "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_mirror_images_are_taken_only_along_axes_that_were_mirrored_in_training(run: Path) -> None:
    predictor = load(run / "fold0", device="cpu")
    image = torch.randn(1, 4, 16, 16, 16)
    network = predictor.network
    for axes, flips in [
        ((), []),
        ((1,), [[], [3]]),
        (None, [[], [2], [3], [2, 3], [4], [2, 4], [3, 4], [2, 3, 4]]),
    ]:
        text = "null" if axes is None else str(list(axes))
        preset = change_preset(predictor.preset, [f"data.augmentation.flip.axes={text}"])
        if not flips:
            with pytest.raises(ValueError, match="never saw mirror images in training"):
                Predictor(preset, predictor.networks, mirrored=True)
            continue
        with torch.no_grad():
            expected = torch.stack([network(image.flip(axis)).flip(axis) for axis in flips]).mean(0)
            mirrored = Predictor(preset, predictor.networks, mirrored=True).network(image)
        torch.testing.assert_close(mirrored, expected)


def test_weights_of_another_network_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "fold0", tmp_path / "fold0")
    config = tmp_path / "fold0" / "config.yaml"
    config.write_text(
        config.read_text().replace("channels: [FLAIR, T1, T1Gd, T2]", "channels: [FLAIR, T1]")
    )
    with pytest.raises(
        ModelError, match=r"stem.weight is \(8, 4, 3, 3, 3\), not \(8, 2, 3, 3, 3\)"
    ):
        load(tmp_path / "fold0")
    (tmp_path / "fold0" / "checkpoints" / "last.ckpt").write_bytes(b"x")
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "fold0")


def test_an_unwritable_folder_is_said_before_anything_is_computed(
    data: Path, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = predict("-i", data, "-o", tmp_path / "file" / "out", "--model", run / "fold0")
    assert result.exit_code == 2
    assert "cannot be written to (Not a directory)" in result.stderr


def test_a_speed_turns_layers_down(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "fold0", tmp_path / "fold0")
    speeds = {"fast": [{"num_iters": 1}, {"bypass": True}, {"num_iters": 2}]}
    (tmp_path / "fold0" / "speeds.json").write_text(json.dumps(speeds))
    fast = load(tmp_path / "fold0", speed="fast", device="cpu")
    layers = [m for m in fast.networks[0].modules() if isinstance(m, factorizer.NMF)]
    assert [(layer.num_iters, layer.bypass) for layer in layers] == [
        (1, False),
        (5, True),
        (2, False),
    ]
    best = load(tmp_path / "fold0", device="cpu").networks[0]
    assert all(m.num_iters == 5 for m in best.modules() if isinstance(m, factorizer.NMF))


def test_a_case_that_does_not_fit_into_memory_is_refused(
    data: Path, run: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("factorizer.data.capacity.usable_bytes", lambda: 1e8)
    result = predict(
        "-i", data / "imagesTr" / "BRATS_001.nii.gz", "-o", tmp_path, "--model", run / "fold0"
    )
    assert result.exit_code == 1
    assert "GiB, and 0.1 GiB are free" in result.stderr
    assert not list(tmp_path.iterdir())


def test_files_of_every_kind_do_not_stop_the_others(data: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = (data / "imagesTr" / "BRATS_001.nii.gz").read_bytes()
    (folder / "good.nii.gz").write_bytes(good)
    (folder / "cut.nii.gz").write_bytes(good[:200] + b"0" * 500)
    write_nifti(folder / "flat.nii.gz", np.ones((8, 8), np.float32))
    nowhere = bytearray(nibabel.Nifti1Image(np.ones((8, 8, 8), np.float32), np.eye(4)).to_bytes())
    nowhere[280:284] = np.float32(np.nan).tobytes()  # the first number of the affine
    (folder / "nowhere.nii").write_bytes(nowhere)
    from PIL import Image

    Image.fromarray(np.ones((8, 8), np.uint8)).save(folder / "picture.png")
    result = predict("-i", folder, "-o", tmp_path / "out", "--model", run / "fold0")
    assert result.exit_code == 1
    assert "1 written, 0 skipped, 4 failed" in result.stdout
    assert "it is 2D, and the model is for 3D images" in result.stderr


@pytest.mark.slow
def test_probabilities_are_made_up_for(data: Path, run: Path, tmp_path: Path) -> None:
    image = data / "imagesTr" / "BRATS_001.nii.gz"
    assert predict("-i", image, "-o", tmp_path, "--model", run / "fold0").exit_code == 0
    again = predict(
        "-i", image, "-o", tmp_path, "--model", run / "fold0", "--resume", "--save-probabilities"
    )
    assert "1 written" in again.stdout
    probabilities, labels = (
        tmp_path / "BRATS_001_probabilities.nii.gz",
        tmp_path / "BRATS_001.nii.gz",
    )
    probabilities.unlink()
    before = labels.stat().st_mtime_ns
    options = ["-i", image, "-o", tmp_path, "--model", run / "fold0", "--save-probabilities"]
    assert "1 written" in predict(*options, "--resume").stdout
    assert labels.stat().st_mtime_ns == before
    assert "1 skipped" in predict(*options, "--resume").stdout
    probabilities.unlink()
    labels.write_bytes(b"corrected by hand")
    corrected = predict(*options, "--resume")
    assert corrected.exit_code == 1
    assert (
        "BRATS_001.nii.gz: it was changed after it was predicted; keep it elsewhere"
        in corrected.stderr
    )
    assert labels.read_bytes() == b"corrected by hand"
    assert not probabilities.exists()
    labels.unlink()
    assert "1 written" in predict(*options, "--resume").stdout
    labels.unlink()
    assert "BRATS_001_probabilities.nii.gz already exists" in " ".join(
        predict(*options).stderr.split()
    )


@pytest.mark.slow
def test_predicting_imports_nothing_that_only_training_and_figures_need() -> None:
    code = (
        "import sys; from factorizer.inference import load, predict; "
        "load.load('zoo:hippocampus', device='cpu');"
        "print(sorted({'monai', 'lightning', 'matplotlib', 'scipy.stats', 'scipy.spatial'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_memory_announced_is_sensible(tmp_path: Path) -> None:
    preset = load_preset("brats")
    for shape, low, high in (
        ((240, 240, 155), 2.0, 6.0),
        ((1024, 1024, 3), 2.0, 5.0),
        ((8, 8, 8), 2.0, 5.0),
    ):
        image = nibabel.Nifti1Image(np.zeros((*shape, 4), np.int16), np.eye(4))
        nibabel.save(image, tmp_path / "image.nii")
        (case,), _ = read_inputs([tmp_path / "image.nii"], preset.data.channels)
        wanted = memory.estimate_bytes(preset, case, batch_size=1, keep_probabilities=False) / 2**30
        assert low < wanted < high, shape


@pytest.mark.slow
@pytest.mark.parametrize(
    "suffix", ["_1stHO", "-vessels"]
)  # one that is tried, and one that the preset carries
def test_a_2d_image_becomes_a_picture(tmp_path: Path, suffix: str) -> None:
    from PIL import Image

    folder = tmp_path / "eyes"
    folder.mkdir()
    for index in range(4):
        picture = np.random.default_rng(index).integers(1, 255, (40, 36, 3)).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"eye_{index}.jpg")
        Image.fromarray(((picture[..., 1] > 128) * 255).astype(np.uint8)).save(
            folder / f"eye_{index}{suffix}.png"
        )
    preset = tmp_path / "eyes.yaml"
    options = [] if suffix == "_1stHO" else ["--mask-suffix", suffix]
    assert invoke("data", "plan", folder, "-o", preset, *options).exit_code == 0
    changes = [
        "training.max_steps=2",
        "training.folds=2",
        "model.widths=[8,16]",
        "model.window=4",
        "data.patch_size=[32,32]",
    ]
    settings = change_preset(load_preset(preset), changes)
    train_fold(
        settings,
        data=folder,
        fold=0,
        out=tmp_path / "run",
        machine=Machine(device="cpu", workers=0),
    )
    result = predict("-i", folder, "-o", tmp_path / "out", "--model", tmp_path / "run")
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "out" / "eye_0.png") as picture:
        assert picture.size == (36, 40)
        assert set(np.unique(np.asarray(picture))) <= {0, 255}
    scores = tmp_path / "scores.csv"
    assert (
        invoke(
            "evaluate", "-p", tmp_path / "out", "-r", folder, "--preset", preset, "-o", scores
        ).exit_code
        == 0
    )
    with scores.open() as lines:
        assert len({row["case"] for row in csv.DictReader(lines)}) == 4
    if (
        suffix == "-vessels"
    ):  # without the suffix, a picture has the name that a label of it would have
        wrong = invoke(
            "evaluate",
            "-p",
            tmp_path / "out",
            "-r",
            folder,
            "--preset",
            "chasedb1",
            "-o",
            tmp_path / "x.csv",
        )
        assert wrong.exit_code == 2
        assert "it holds images beside masks, eye_0 and eye_0-vessels" in " ".join(
            wrong.stderr.split()
        )
    check = invoke("data", "check", folder, "--preset", preset)
    assert check.exit_code == 0, check.output
    figure = [
        "--data",
        folder,
        "--preset",
        preset,
        "-p",
        tmp_path / "out",
        "-o",
        tmp_path / "eyes.png",
    ]
    assert invoke("figure", "qualitative", *figure).exit_code == 0
