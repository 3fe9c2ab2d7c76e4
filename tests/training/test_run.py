"""Training runs: whole, interrupted, resumed, refused."""

from __future__ import annotations

import csv
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.config import Preset, PresetError, change_preset, load_preset
from factorizer.data.synthetic import write_synthetic
from factorizer.evaluation.scores import METRICS, mean_scores, read_scores
from factorizer.training import module as training_module
from factorizer.training.checkpoints import newest_readable
from factorizer.training.folder import RunError, pool_scores
from factorizer.training.module import StepBatches
from factorizer.training.run import cross_validate, train_fold
from factorizer.training.schedule import rate_factor
from factorizer.training.trainer import Machine

runner = CliRunner()
CHANGES = [
    "training.max_steps=6",
    "training.checkpoint_every=2",
    "training.validate_every=3",
    "training.folds=3",
    "model.widths=[8,16]",
    "model.window=4",
    "model.dropout=0.1",
    "data.patch_size=[16,16,16]",
]
PRESET = change_preset(load_preset("isles22"), CHANGES)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "strokes"
    write_synthetic("isles22", folder, cases=6, size=24, seed=0)
    return folder


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    outcome = run(data, out)
    assert outcome.finished
    assert outcome.step == 6
    return outcome.folder


CPU = Machine(device="cpu", workers=0)


def run(data: Path, out: Path, preset: Preset = PRESET, **options: Any):
    return train_fold(preset, data=data, fold=1, out=out, **({"machine": CPU} | options))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (one / "scores.csv").read_text() == (other / "scores.csv").read_text()


class At(Callback):
    """Do something at the end of a step."""

    def __init__(self, step: int, action) -> None:
        self.step, self.action = step, action

    def on_train_batch_end(self, trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            self.action()


def crash() -> None:
    raise RuntimeError("power cut")


def test_a_run_describes_itself(whole: Path) -> None:
    files = {path.name for path in whole.iterdir()}
    assert files == {"config.yaml", "run.json", "cases.json", "log", "checkpoints", "scores.csv", "learning_curve.png"}
    assert load_preset(whole / "config.yaml") == PRESET
    (start,) = json.loads((whole / "run.json").read_text())
    assert start["seed"] == 0
    assert {"factorizer", "torch", "lightning", "monai"} <= set(start["versions"])
    assert {"last.ckpt", "previous.ckpt", "best.ckpt"} == {path.name for path in (whole / "checkpoints").iterdir()}
    folds = json.loads((whole.parent / "folds.json").read_text())["folds"]
    with (whole / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["case"] for row in rows} == set(folds["1"])
    assert {row["metric"] for row in rows} == set(METRICS)
    assert all(0 <= float(row["value"]) <= 1 for row in rows if row["metric"] == "dice")
    log = (whole / "log" / "metrics.csv").read_text()
    assert all(name in log for name in ("loss", "learning_rate", "gradient_norm", "val_dice_lesion"))


def test_the_same_command_gives_the_same_run(data: Path, whole: Path, tmp_path: Path) -> None:
    assert_same(whole, run(data, tmp_path / "again").folder)


@pytest.mark.parametrize("step", [1, 3])
def test_a_run_that_crashed_goes_on_bit_for_bit(data: Path, whole: Path, tmp_path: Path, step: int) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(data, tmp_path / "run", callbacks=[At(step, crash)])
    said: list[str] = []
    outcome = run(data, tmp_path / "run", resume=True, say=said.append)
    assert outcome.finished
    assert any(text.startswith("going on from") for text in said) == (step > 2)  # the first checkpoint is of step 2
    assert_same(whole, outcome.folder)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
import test_run as t
t.run(t.Path(sys.argv[1]), t.Path(sys.argv[2]), callbacks=[t.At(5, lambda: os.kill(os.getpid(), signal.SIGKILL))])
"""


def test_a_run_that_was_killed_goes_on_bit_for_bit(data: Path, whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(data), str(tmp_path / "run"), str(Path(__file__).parent)]
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == -signal.SIGKILL
    seen = Samples()
    outcome = run(data, tmp_path / "run", resume=True, callbacks=[seen])
    assert seen.indices == [8, 9, 10, 11]  # steps 4 and 5, from the checkpoint of step 4
    assert_same(whole, outcome.folder)


class Samples(Callback):
    """The numbers of the samples that are trained on."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def on_train_batch_start(self, trainer, module, batch, batch_index) -> None:
        self.indices += batch["index"].tolist()


@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 2), (2, 1)])
def test_a_run_goes_on_with_batches_split_in_another_way(data: Path, tmp_path: Path, before: int, after: int) -> None:
    still = change_preset(PRESET, ["model.dropout=0.0", "training.checkpoint_every=3"])
    expected = weights(run(data, tmp_path / "whole", still, machine=replace(CPU, accumulate=after)).folder)
    with pytest.raises(RuntimeError, match="power cut"):
        run(data, tmp_path / "run", still, machine=replace(CPU, accumulate=before), callbacks=[At(4, crash)])
    seen = Samples()
    outcome = run(data, tmp_path / "run", still, resume=True, machine=replace(CPU, accumulate=after), callbacks=[seen])
    assert seen.indices == [6, 7, 8, 9, 10, 11]
    found = weights(outcome.folder)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-5)
    steps = [
        int(row["step"])
        for row in csv.DictReader((outcome.folder / "log" / "metrics.csv").read_text().splitlines())
        if row["val_dice"]
    ]
    assert steps == [2, 5]


def test_the_log_of_before_is_kept(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(data, tmp_path / "run", callbacks=[At(5, crash)])
    log = tmp_path / "run" / "fold1" / "log" / "metrics.csv"
    log.write_text(log.read_text() + "0,0.5")  # a line cut short
    run(data, tmp_path / "run", resume=True)
    steps = [(row["step"], bool(row["val_dice"])) for row in csv.DictReader(log.read_text().splitlines())]
    assert steps == [("2", True), ("5", False), ("5", True)]


def test_the_best_of_before_is_known(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validated at steps 3 and 6, the first the better; the checkpoint of step 3 was written before that was known."""
    preset = change_preset(PRESET, ["training.checkpoint_every=3"])
    values = iter([0.9] * 2 + [0.2] * 100)
    monkeypatch.setattr(training_module, "dice", lambda *_: next(values))
    with pytest.raises(RuntimeError, match="power cut"):
        run(data, tmp_path / "run", preset, callbacks=[At(4, crash)])
    outcome = run(data, tmp_path / "run", preset, resume=True)
    best = torch.load(outcome.folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 3


def test_two_processes_do_not_meet_in_a_fold(data: Path, tmp_path: Path) -> None:
    def meet() -> None:
        with pytest.raises(RunError, match="another process is training"):
            run(data, tmp_path / "run", resume=True)

    assert run(data, tmp_path / "run", callbacks=[At(2, meet)]).finished


def test_other_data_are_noticed(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")
    (tmp_path / "run" / "fold1" / "scores.csv").unlink()
    write_synthetic("isles22", tmp_path / "other", cases=6, size=24, seed=1)
    with pytest.raises(RunError, match=r"was begun with other data, .*: 6 cases differ"):
        run(tmp_path / "other", tmp_path / "run", resume=True)


def test_folds_of_one_run_have_one_configuration_and_one_split(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")
    other = change_preset(PRESET, ["training.learning_rate=0.5"])
    with pytest.raises(RunError, match="fold1 is a fold with another configuration"):
        train_fold(other, data=data, fold=0, out=tmp_path / "run", machine=CPU)
    split = tmp_path / "split.csv"
    split.write_text("case,fold\n" + "".join(f"sub-strokecase000{i},{i % 2}\n" for i in range(1, 7)))
    with pytest.raises(RunError, match="has other folds than"):
        train_fold(PRESET, data=data, fold=0, out=tmp_path / "run", machine=CPU, split=split)


def test_a_polite_kill_saves_and_says_how_to_go_on(data: Path, whole: Path, tmp_path: Path) -> None:
    said: list[str] = []
    stop = At(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    validated = Validated()
    outcome = run(data, tmp_path / "run", callbacks=[stop, validated], say=said.append)
    assert not outcome.finished
    assert validated.steps == [3]  # the stop does not wait for another
    assert outcome.step == 4  # the step at hand is finished
    assert any("run the same command with --resume" in text for text in said)
    assert_same(whole, run(data, tmp_path / "run", resume=True).folder)


def test_a_checkpoint_cut_short_is_passed_over(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(data, tmp_path / "run", callbacks=[At(5, crash)])
    last = tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-5000])
    said: list[str] = []
    outcome = run(data, tmp_path / "run", resume=True, say=said.append)
    assert any("cannot be read" in text for text in said)
    assert any("previous.ckpt" in text for text in said)
    assert_same(whole, outcome.folder)


class Validated(Callback):
    """The steps at which a run is validated."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_validation_start(self, trainer, module) -> None:
        self.steps.append(trainer.global_step)


class Malicious:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "last.ckpt").write_bytes(pickle.dumps(Malicious(trace)))
    torch.save({"state_dict": Malicious(trace), "global_step": 1}, tmp_path / "previous.ckpt")
    said: list[str] = []
    assert newest_readable(tmp_path, said.append) == (None, 0)
    assert len(said) == 2
    assert not trace.exists()


def test_a_finished_run_says_so(data: Path, whole: Path) -> None:
    said: list[str] = []
    outcome = run(data, whole.parent, resume=True, say=said.append)
    assert outcome.finished
    assert said == [f"{whole} is finished; its scores are in scores.csv"]


def test_a_finished_run_can_be_made_longer(data: Path, whole: Path, tmp_path: Path) -> None:
    """By the schedule of the longer run, from the step it is at; the scores of the shorter one are kept."""
    shutil.copytree(whole.parent, tmp_path / "run")
    longer = change_preset(PRESET, ["training.max_steps=9"])
    with pytest.raises(RunError, match="is a run with another configuration"):
        run(data, tmp_path / "run", longer)
    said: list[str] = []
    rates = Rates()
    outcome = run(data, tmp_path / "run", longer, resume=True, callbacks=[rates], say=said.append)
    assert outcome.step == 9
    assert any("extending from 6 to 9 steps" in text for text in said)
    peak = PRESET.training.learning_rate
    expected = [peak * rate_factor(step, max_steps=9, warmup_steps=0) for step in (6, 7, 8)]
    assert rates.seen == pytest.approx(expected, rel=1e-12)
    assert (outcome.folder / "scores-6.csv").read_text() == (whole / "scores.csv").read_text()
    with pytest.raises(RunError, match=r"only a larger training\.max_steps can be resumed"):
        run(data, tmp_path / "run", resume=True)


class Rates(Callback):
    """The learning rates that steps are made with."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


def test_a_full_disk_is_named_and_the_last_checkpoint_kept(data: Path, whole: Path, tmp_path: Path) -> None:
    """Files may not grow beyond a limit from step 2 on: the checkpoint of step 3 cannot be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))

    try:
        with pytest.raises(OSError, match=r"the checkpoint of step 3 cannot be written .* the one before is kept"):
            run(data, tmp_path / "run", callbacks=[At(2, fill)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder = tmp_path / "run" / "fold1" / "checkpoints"
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 2
    assert not list(folder.glob(".*"))
    assert_same(whole, run(data, tmp_path / "run", resume=True).folder)


def test_the_best_checkpoint_says_that_it_is_optimistic(whole: Path) -> None:
    best, last = (torch.load(whole / "checkpoints" / f"{name}.ckpt", weights_only=True) for name in ("best", "last"))
    assert "optimistic" in best["chosen_on"]
    assert "chosen_on" not in last


def test_fine_tuning_takes_what_fits(data: Path, whole: Path, tmp_path: Path) -> None:
    other = change_preset(PRESET, ["data.channels=[DWI]", "training.max_steps=1", "training.learning_rate=1e-9"])
    said: list[str] = []
    outcome = run(data, tmp_path / "run", other, init=str(whole), say=said.append)
    tuned, source = weights(outcome.folder), weights(whole)
    stem = "network.stem.weight"
    assert tuned[stem].shape != source[stem].shape
    assert all(torch.allclose(tuned[name], source[name], atol=1e-6) for name in source if name != stem)
    assert any("drawn anew: stem.weight" in text for text in said)
    assert any(text.startswith(f"loaded from {whole}: {len(source) - 1} of {len(source)}") for text in said)
    (outcome.folder / "scores.csv").unlink()
    assert run(data, tmp_path / "run", other, resume=True).finished  # the source is not needed any more
    (outcome.folder / "scores.csv").unlink()
    with pytest.raises(RunError, match="was begun with --init"):
        run(data, tmp_path / "run", other, resume=True, init=str(tmp_path))
    for source, message in ((tmp_path / "nowhere", "there is no run in"), ("zoo:none", "the zoo has no model 'none'")):
        with pytest.raises(ValueError, match=message):
            run(data, tmp_path / "other", init=str(source))
    assert not (tmp_path / "other").exists()


def test_activations_can_be_computed_again(data: Path, whole: Path, tmp_path: Path) -> None:
    again = run(data, tmp_path / "run", machine=replace(CPU, checkpoint_activations=True)).folder
    first, second = weights(whole), weights(again)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-6)


def test_tensorboard_gets_what_the_table_gets(whole: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole / "log"))
    events.Reload()
    assert {"loss", "learning_rate", "gradient_norm", "val_dice"} <= set(events.Tags()["scalars"])


def test_one_fold_of_a_cross_validation(data: Path, whole: Path, tmp_path: Path) -> None:
    """As one job of an array; the last to finish pools."""
    shutil.copytree(whole.parent, tmp_path / "run")
    said: list[str] = []
    options = {"data": data, "out": tmp_path / "run", "machine": CPU, "say": said.append}
    assert cross_validate(PRESET, fold=0, **options) is None
    assert said[-1].startswith("the folds 2 are not finished")
    assert cross_validate(PRESET, fold=2, **options) == tmp_path / "run" / "scores.csv"


def test_another_run_is_not_replaced(data: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is a run already; go on with --resume"):
        run(data, whole.parent)
    other = change_preset(PRESET, ["training.learning_rate=0.5"])
    with pytest.raises(RunError, match=r"-  learning_rate: 0\.0001[^\n]*\n\+  learning_rate: 0\.5"):
        run(data, whole.parent, other, resume=True)
    (tmp_path / "fold1").mkdir()
    (tmp_path / "fold1" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not empty and no run"):
        run(data, tmp_path)


@pytest.mark.parametrize(
    ("change", "fold", "message"),
    [("data.patch_size=[15,16,16]", 1, "axis H has 15 voxels"), ("training.seed=1", 7, "fold 7 has no cases")],
)
def test_a_run_that_is_refused_leaves_no_run(data: Path, tmp_path: Path, change: str, fold: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_fold(change_preset(PRESET, [change]), data=data, fold=fold, out=tmp_path / "run", machine=CPU)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_with_step_and_cases(data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(training_module, "supervised_loss", lambda outputs, *_, **__: outputs[0].sum() * float("nan"))
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 0, on the cases sub-strokecase"):
        run(data, tmp_path / "run")


def test_a_bad_case_is_left_out(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    next(copy.rglob("*0001_ses-0001_dwi.nii.gz")).write_bytes(b"x")
    said: list[str] = []
    outcome = run(copy, tmp_path / "run", say=said.append)
    assert outcome.finished
    assert any("left out" in text and "strokecase0001" in text for text in said)


def test_accumulated_parts_make_the_same_step(data: Path, tmp_path: Path) -> None:
    still = change_preset(PRESET, ["model.dropout=0.0", "training.max_steps=3"])
    runs = [run(data, tmp_path / str(parts), still, machine=replace(CPU, accumulate=parts)) for parts in (1, 2)]
    one, two = (weights(run.folder) for run in runs)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="accumulated batches cannot share"):
        run(data, tmp_path / "3", still, machine=replace(CPU, accumulate=3))
    assert not (tmp_path / "3").exists()


def test_bfloat16_trains(data: Path, tmp_path: Path) -> None:
    outcome = run(data, tmp_path / "run", machine=replace(CPU, precision="bf16"))
    assert outcome.finished
    assert all(value.isfinite().all() for value in weights(outcome.folder).values())
    with pytest.raises(RunError, match="precision is '8'; choose 32, bf16, 16"):
        run(data, tmp_path / "other", machine=replace(CPU, precision="8"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda"), "there is no cuda device here"),
        (("--device", "toaster"), "choose auto, cpu, cuda or mps"),
        (("--nodes", "2"), "--nodes is 2, but nothing started processes there"),
        (("--precision", "16"), "precision 16 needs a GPU"),
        (("--set", "training.deep_supervision_weights=[]"), "at least 1 item"),
        (("--set", "training.learning_rate=.inf"), "finite number"),
        (("--set", "model={name: nnunet, widths: 3}"), "model.widths"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_what_cannot_be_done_is_said(data: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    command = ["train", "--preset", "isles22", "--data", str(data), "--out", str(tmp_path / "run"), *options]
    result = runner.invoke(app, command)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_command_line(data: Path, tmp_path: Path) -> None:
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = ["train", "--preset", "isles22", "--data", str(data), "--out", str(tmp_path / "run"), "--fold", "2"]
    command += ["--workers", "0", "--device", "cpu", "--accumulate", "2", "--model", "local-factorizer", *changes]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [cell.strip() for cell in result.stdout.splitlines()[4].split("│")[1:3]] == ["lesion", "2"]
    assert "model.name" not in (tmp_path / "run" / "fold2" / "config.yaml").read_text()
    assert load_preset(tmp_path / "run" / "fold2" / "config.yaml").model.name == "local-factorizer"
    again = runner.invoke(app, command)
    assert again.exit_code == 2
    assert "is a run already" in again.stderr
    assert runner.invoke(app, [*command, "--resume"]).exit_code == 0


def test_an_option_that_a_system_does_not_have_is_refused(data: Path, tmp_path: Path) -> None:
    command = ["train", "--preset", "isles22", "--data", str(data), "--out", str(tmp_path / "run")]
    result = runner.invoke(app, [*command, "--model", "nnunet", "--set", "model.window=4"])
    assert result.exit_code == 2
    assert "--set got 'model.window=4'; nnunet has no such option, only widths" in result.stderr
    assert not (tmp_path / "run").exists()


def test_cross_validation_runs_or_continues_all_folds_and_pools_them(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")  # fold 1 is done
    before = (tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    said: list[str] = []
    scores = cross_validate(PRESET, data=data, out=tmp_path / "run", machine=CPU, say=said.append)
    assert (tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt").stat().st_mtime_ns == before
    rows = read_scores(scores)
    assert sorted({row.case for row in rows}) == [f"sub-strokecase000{i}" for i in range(1, 7)]
    assert len(rows) == 6 * len(METRICS)
    means = mean_scores(rows)["lesion"]
    assert means.cases == 6
    assert means.dice == pytest.approx(sum(row.value for row in rows if row.metric == "dice") / 6)
    (tmp_path / "run" / "fold2" / "scores.csv").unlink()
    with pytest.raises(RunError, match=r"the folds 2 of .* are not finished"):
        pool_scores(tmp_path / "run", [0, 1, 2], PRESET)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.max_step=3", "did you mean 'max_steps'"),
        ("trainin.max_steps=3", "there is no section 'trainin'"),
        ("training.max_steps", "give path.to.field=value"),
        ("training.max_steps=[", "the value is not YAML"),
        ("training.max_steps=0", "greater than 0"),
    ],
)
def test_a_wrong_setting_is_named(change: str, message: str) -> None:
    with pytest.raises(PresetError, match=message):
        change_preset(PRESET, [change])


def batches(**options: int) -> Iterator[list[int]]:
    return iter(
        StepBatches(**{"start": 0, "stop": 3, "batch_size": 4, "accumulate": 1, "rank": 0, "world_size": 1} | options)
    )


def test_step_k_trains_on_the_same_samples_however_it_is_shared() -> None:
    whole = list(batches())
    assert whole == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert list(batches(start=2)) == whole[2:]
    shared = zip(batches(rank=0, world_size=2), batches(rank=1, world_size=2), strict=True)
    assert [a + b for a, b in shared] == whole
    micro = list(batches(accumulate=2))
    assert [a + b for a, b in zip(micro[::2], micro[1::2], strict=True)] == whole
    with pytest.raises(ValueError, match="3 devices with 1 accumulated batches cannot share; use a multiple of 3"):
        batches(world_size=3)
