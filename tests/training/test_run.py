"""Training runs: what a run writes, from what it starts, how it computes."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch

from factorizer.errors import FactorizerError, RunError
from factorizer.evaluation.scores import METRICS
from factorizer.inference.load import load
from factorizer.inference.sliding import Sliding
from factorizer.preset_files import change_preset, load_preset
from factorizer.runs.find import find_folds, trained_on
from factorizer.runs.fold import Fold
from factorizer.studies.bench import make_bench
from factorizer.training import module as training_module
from factorizer.training.session import train_fold
from factorizer.training.stream import StepBatches
from testkit.runs import CPU, PRESET, At, assert_same, crash, run, weights
from testkit.telling import Listener

pytestmark = pytest.mark.slow  # most of these train, or read real data


def test_a_run_describes_itself(whole: Path) -> None:
    files = {path.name for path in whole.iterdir()}
    assert files == {
        "config.yaml",
        "run.json",
        "cases.json",
        "log",
        "checkpoints",
        "scores.csv",
        "learning_curve.png",
    }
    assert load_preset(whole / "config.yaml") == PRESET
    (start,) = json.loads((whole / "run.json").read_text())
    assert start["seed"] == 0
    assert {"factorizer", "torch", "lightning", "monai"} <= set(start["versions"])
    assert {"last.ckpt", "previous.ckpt", "best.ckpt"} == {
        path.name for path in (whole / "checkpoints").iterdir()
    }
    folds = json.loads((whole.parent / "folds.json").read_text())["folds"]
    with (whole / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["case"] for row in rows} == set(folds["1"])
    assert {row["metric"] for row in rows} == set(METRICS)
    assert all(0 <= float(row["value"]) <= 1 for row in rows if row["metric"] == "dice")
    log = (whole / "log" / "metrics.csv").read_text()
    assert all(
        name in log for name in ("loss", "learning_rate", "gradient_norm", "val_dice_lesion")
    )


def test_the_same_command_gives_the_same_run(strokes: Path, whole: Path, tmp_path: Path) -> None:
    assert_same(whole, run(strokes, tmp_path / "again").folder)


def test_fine_tuning_takes_what_fits(strokes: Path, whole: Path, tmp_path: Path) -> None:
    other = change_preset(
        PRESET, ["data.channels=[DWI]", "training.max_steps=1", "training.learning_rate=1e-9"]
    )
    said: list[str] = []
    outcome = run(strokes, tmp_path / "run", other, init=str(whole), progress=Listener(said))
    tuned, source = weights(outcome.folder), weights(whole)
    stem = "network.stem.weight"
    assert tuned[stem].shape != source[stem].shape
    assert all(
        torch.allclose(tuned[name], source[name], atol=1e-6) for name in source if name != stem
    )
    assert any("drawn at random: stem.weight" in text for text in said)
    assert any(
        text.startswith(f"loaded from {whole}: {len(source) - 1} of {len(source)}") for text in said
    )
    assert not any("was trained on" in text for text in said)  # the same fold was held out
    train_fold(
        other,
        data=strokes,
        fold=0,
        out=tmp_path / "leak",
        init=str(whole),
        machine=CPU,
        progress=Listener(said),
    )
    assert any(
        f"2 of the 2 held-out cases have names of cases that {whole} was trained on" in text
        for text in said
    )
    assert trained_on([Fold(outcome.folder)]) == trained_on([Fold(whole)])
    assert trained_on([Fold(tmp_path / "leak" / "fold0")]) > trained_on([Fold(whole)])
    (outcome.folder / "scores.csv").unlink()
    starts = json.loads((outcome.folder / "run.json").read_text())
    starts[0]["init"] = str(tmp_path / "gone")
    (outcome.folder / "run.json").write_text(json.dumps(starts))
    assert run(
        strokes, tmp_path / "run", other, resume=True
    ).finished  # the source is not needed any more
    (outcome.folder / "scores.csv").unlink()
    with pytest.raises(RunError, match="began with the weights of"):
        run(strokes, tmp_path / "run", other, resume=True, init=str(tmp_path))
    with pytest.raises(RunError, match=r"no weight of .* fits this network"):
        run(
            strokes,
            tmp_path / "other",
            change_preset(other, ["model.widths=[4,8]"]),
            init=str(whole),
        )
    for source, message in (
        (tmp_path / "nowhere", "is not a run"),
        ("zoo:none", "the zoo has no model 'none'"),
    ):
        with pytest.raises(ValueError, match=message):
            run(strokes, tmp_path / "other", init=str(source))
    assert not (tmp_path / "other").exists()


def test_a_run_on_all_cases(strokes: Path, whole: Path, tmp_path: Path) -> None:
    """No case is held out: no validation, no best weights, no scores; it predicts as any other."""
    said: list[str] = []
    options = {
        "data": strokes,
        "fold": "all",
        "out": tmp_path / "run",
        "machine": CPU,
        "progress": Listener(said),
    }
    with pytest.raises(RuntimeError, match="power cut"):
        train_fold(PRESET, **options, callbacks=[At(3, crash)])
    assert not Fold(tmp_path / "run" / "foldall").is_finished
    outcome = train_fold(PRESET, **options, resume=True)
    assert (outcome.finished, outcome.step, outcome.mean_dice) == (True, 6, None)
    assert "training on 6 cases, none held out" in said
    folder = outcome.folder
    assert folder == tmp_path / "run" / "foldall"
    written = {path.name for path in folder.iterdir()}
    assert written == {
        "config.yaml",
        "run.json",
        "cases.json",
        "log",
        "checkpoints",
        "learning_curve.png",
    }
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {
        "last.ckpt",
        "previous.ckpt",
    }
    assert json.loads((folder / "run.json").read_text())[0]["held_out"] == []
    assert Fold(folder).is_finished
    assert find_folds(tmp_path / "run") == [Fold(folder)]
    assert trained_on([Fold(folder)]) == {f"sub-strokecase000{i}" for i in range(1, 7)}
    assert (
        load(tmp_path / "run", device="cpu")
        .predict(np.zeros((2, 24, 24, 24)), spacing_mm=(2, 2, 2))
        .shape
        == (24,) * 3
    )
    said.clear()
    assert train_fold(PRESET, **options, resume=True).finished
    assert said == [f"{folder} is finished"]
    longer = change_preset(PRESET, ["training.max_steps=8"])
    assert train_fold(longer, **options, resume=True).step == 8
    train_fold(longer, **(options | {"fold": 1}))  # beside it, the folds of a cross-validation
    assert find_folds(tmp_path / "run") == [Fold(tmp_path / "run" / "fold1")]
    assert find_folds(tmp_path / "run", "all") == [Fold(tmp_path / "run" / "fold1")]
    with pytest.raises(
        ValueError, match="foldall held out no cases; give a fold of a run that did"
    ):
        make_bench(folder, strokes, device="cpu")


def test_the_last_validation_scores_too(
    strokes: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two held-out cases are predicted twice by two validations, and not again for the scores,
    which stay the same."""
    predicted: list[int] = []
    slabs = Sliding.slabs

    def count(self: Sliding, network, image, advance=lambda: None):
        predicted.append(1)
        return slabs(self, network, image, advance)

    monkeypatch.setattr(Sliding, "slabs", count)
    run(strokes, tmp_path / "twice")
    assert len(predicted) == 4
    predicted.clear()
    once = run(
        strokes, tmp_path / "once", change_preset(PRESET, ["training.validate_every=4"])
    ).folder
    assert len(predicted) == 4
    assert (once / "scores.csv").read_text() == (whole / "scores.csv").read_text()


def test_activations_can_be_computed_again(strokes: Path, whole: Path, tmp_path: Path) -> None:
    again = run(strokes, tmp_path / "run", machine=replace(CPU, checkpoint_activations=True)).folder
    first, second = weights(whole), weights(again)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-6)


def test_tensorboard_gets_what_the_table_gets(whole: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole / "log"))
    events.Reload()
    assert {"loss", "learning_rate", "gradient_norm", "val_dice"} <= set(events.Tags()["scalars"])


@pytest.mark.parametrize(
    ("change", "fold", "message"),
    [
        ("data.patch_size=[15,16,16]", 1, "axis H has 15 voxels"),
        ("training.seed=1", 7, "fold 7 has no cases"),
    ],
)
def test_a_run_that_is_refused_leaves_no_run(
    strokes: Path, tmp_path: Path, change: str, fold: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train_fold(
            change_preset(PRESET, [change]),
            data=strokes,
            fold=fold,
            out=tmp_path / "run",
            machine=CPU,
        )
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_with_step_and_cases(
    strokes: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(
        training_module,
        "supervised_loss",
        lambda outputs, *_, **__: outputs[0].sum() * float("nan"),
    )
    with pytest.raises(
        FactorizerError, match=r"the loss is nan at step 0, on the cases sub-strokecase"
    ):
        run(strokes, tmp_path / "run")


def test_a_bad_case_is_left_out(strokes: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(strokes, copy)
    next(copy.rglob("*0001_ses-0001_dwi.nii.gz")).write_bytes(b"x")
    said: list[str] = []
    outcome = run(copy, tmp_path / "run", progress=Listener(said))
    assert outcome.finished
    assert any("left out" in text and "strokecase0001" in text for text in said)
    next(copy.rglob("*0002_ses-0001_adc.nii.gz")).unlink()  # which the layout itself misses
    run(copy, tmp_path / "another", progress=Listener(said))
    assert any("strokecase0002" in text and "ADC" in text for text in said)


@pytest.mark.parametrize("millimetres", [30.0, 1000.0])
def test_a_case_with_voxels_that_cannot_be_is_left_out(
    strokes: Path, tmp_path: Path, millimetres: float
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(strokes, copy)
    for file in copy.rglob("sub-strokecase0001*.nii.gz"):
        voxels = np.asanyarray(nibabel.load(file).dataobj)
        nibabel.save(nibabel.Nifti1Image(voxels, np.diag([millimetres] * 3 + [1.0])), file)
    said: list[str] = []
    assert run(copy, tmp_path / "run", progress=Listener(said)).finished
    assert [text for text in said if text.startswith("left out")]
    assert all("strokecase0001" in text for text in said if text.startswith("left out"))
    assert (
        sorted(json.loads((tmp_path / "run" / "fold1" / "cases.json").read_text()))[0]
        == "sub-strokecase0002"
    )


def test_memory_that_does_not_suffice_is_said_with_the_step(
    strokes: Path, tmp_path: Path, monkeypatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        torch.empty(2**60, dtype=torch.uint8)

    monkeypatch.setattr(training_module, "supervised_loss", fail)
    with pytest.raises(
        RunError, match=r"there is not enough memory at step 0; lower data\.patch_size"
    ):
        run(strokes, tmp_path / "run")


def test_accumulated_parts_make_the_same_step(strokes: Path, tmp_path: Path) -> None:
    still = change_preset(PRESET, ["model.dropout=0.0", "training.max_steps=3"])
    runs = [
        run(strokes, tmp_path / str(parts), still, machine=replace(CPU, accumulate=parts))
        for parts in (1, 2)
    ]
    one, two = (weights(run.folder) for run in runs)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="accumulated batches cannot share"):
        run(strokes, tmp_path / "3", still, machine=replace(CPU, accumulate=3))
    assert not (tmp_path / "3").exists()


def test_bfloat16_trains(strokes: Path, tmp_path: Path) -> None:
    outcome = run(strokes, tmp_path / "run", machine=replace(CPU, precision="bf16"))
    assert outcome.finished
    assert all(value.isfinite().all() for value in weights(outcome.folder).values())
    with pytest.raises(RunError, match="precision is '8'; choose 32, bf16, 16"):
        run(strokes, tmp_path / "other", machine=replace(CPU, precision="8"))


def batches(**options: int) -> Iterator[list[int]]:
    return iter(
        StepBatches(
            **{"start": 0, "stop": 3, "batch_size": 4, "accumulate": 1, "rank": 0, "world_size": 1}
            | options
        )
    )


def test_step_k_trains_on_the_same_samples_however_it_is_shared() -> None:
    whole = list(batches())
    assert whole == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert list(batches(start=2)) == whole[2:]
    shared = zip(batches(rank=0, world_size=2), batches(rank=1, world_size=2), strict=True)
    assert [a + b for a, b in shared] == whole
    micro = list(batches(accumulate=2))
    assert [a + b for a, b in zip(micro[::2], micro[1::2], strict=True)] == whole
    with pytest.raises(
        ValueError, match="3 devices with 1 accumulated batches cannot share; use a multiple of 3"
    ):
        batches(world_size=3)
