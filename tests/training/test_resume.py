"""Runs that were interrupted, killed, extended or refused."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from factorizer.data.cases import DataError
from factorizer.data.synthetic import write_synthetic
from factorizer.errors import RunError
from factorizer.preset_files import change_preset, load_preset, to_yaml
from factorizer.runs.fold import Fold
from factorizer.training import module as training_module
from factorizer.training.checkpoints import newest_readable
from factorizer.training.consistency import check_folder
from factorizer.training.schedule import rate_factor
from factorizer.training.session import train_fold
from factorizer.training.train import cross_validate
from testkit.runs import (
    CPU,
    PRESET,
    At,
    Rates,
    Validated,
    assert_same,
    crash,
    run,
)
from testkit.telling import Listener

pytestmark = pytest.mark.slow  # most of these train, or read real data


@pytest.mark.parametrize("step", [1, 3])
def test_a_run_that_crashed_goes_on_bit_for_bit(
    strokes: Path, whole: Path, tmp_path: Path, step: int
) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", callbacks=[At(step, crash)])
    said: list[str] = []
    outcome = run(strokes, tmp_path / "run", resume=True, progress=Listener(said))
    assert outcome.finished
    assert any(text.startswith("resuming from") for text in said) == (
        step > 2
    )  # the first checkpoint is of step 2
    assert_same(whole, outcome.folder)


def test_the_best_of_before_is_known(
    strokes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validated at steps 3 and 6, the first the better; the checkpoint of step 3 was written before
    that was known."""
    preset = change_preset(PRESET, ["training.checkpoint_every=3"])
    values = iter([0.9] * 2 + [0.2] * 100)
    monkeypatch.setattr(training_module, "dice", lambda *_: next(values))
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", preset, callbacks=[At(4, crash)])
    outcome = run(strokes, tmp_path / "run", preset, resume=True)
    best = torch.load(outcome.folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 3


def test_two_processes_do_not_meet_in_a_fold(strokes: Path, tmp_path: Path) -> None:
    def meet() -> None:
        with pytest.raises(RunError, match="another process trains"):
            run(strokes, tmp_path / "run", resume=True)

    assert run(strokes, tmp_path / "run", callbacks=[At(2, meet)]).finished


def test_other_data_are_noticed(strokes: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")
    (tmp_path / "run" / "fold1" / "scores.csv").unlink()
    write_synthetic("isles22", tmp_path / "other", cases=6, size=24, seed=1)
    with pytest.raises(RunError, match=r"began with different data, .*: 6 cases differ"):
        run(tmp_path / "other", tmp_path / "run", resume=True)
    with pytest.raises(RunError, match=r"fold1 began with different data, .*: 6 cases differ"):
        train_fold(PRESET, data=tmp_path / "other", fold=0, out=tmp_path / "run", machine=CPU)


def test_folds_of_one_run_have_one_configuration_and_one_split(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")
    other = change_preset(PRESET, ["training.learning_rate=0.5"])
    with pytest.raises(RunError, match="fold1 was trained with another preset"):
        train_fold(other, data=strokes, fold=0, out=tmp_path / "run", machine=CPU)
    split = tmp_path / "split.csv"
    split.write_text(
        "case,fold\n" + "".join(f"sub-strokecase000{i},{i % 2}\n" for i in range(1, 7))
    )
    with pytest.raises(RunError, match="have different folds"):
        train_fold(PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=CPU, split=split)


def test_folds_that_were_swapped_are_noticed(strokes: Path, whole: Path, tmp_path: Path) -> None:
    """A run that was resumed would train on the cases that it is scored on."""
    shutil.copytree(whole.parent, tmp_path / "run")
    file = tmp_path / "run" / "folds.json"
    content = json.loads(file.read_text())
    folds = content["folds"]
    folds["0"], folds["1"] = folds["1"], folds["0"]
    file.write_text(json.dumps(content))
    message = r"fold1 began with other folds than those in .*: different cases were held out \(sub"
    with pytest.raises(RunError, match=message):
        train_fold(
            PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=CPU
        )  # fold 1 would be scored anew
    (tmp_path / "run" / "fold1" / "scores.csv").unlink()
    with pytest.raises(RunError, match=message):
        run(strokes, tmp_path / "run", resume=True)
    starts = json.loads((whole / "run.json").read_text())
    del starts[0]["held_out"]  # as runs of before did not write it down
    (tmp_path / "run" / "fold1" / "run.json").write_text(json.dumps(starts))
    shutil.copy(whole.parent / "folds.json", file)
    assert run(strokes, tmp_path / "run", resume=True).finished


def test_a_polite_kill_saves_and_says_how_to_resume(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    stop = At(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    validated = Validated()
    outcome = run(strokes, tmp_path / "run", callbacks=[stop, validated], progress=Listener(said))
    assert not outcome.finished
    assert outcome.signal == signal.SIGTERM
    assert validated.steps == [3]  # the stop does not wait for another
    assert outcome.step == 4  # the step at hand is finished
    assert "saved at step 4" in said
    assert_same(whole, run(strokes, tmp_path / "run", resume=True).folder)


def test_a_checkpoint_cut_short_is_passed_over(strokes: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(strokes, tmp_path / "run", callbacks=[At(5, crash)])
    last = tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-5000])
    said: list[str] = []
    outcome = run(strokes, tmp_path / "run", resume=True, progress=Listener(said))
    assert any("cannot be read" in text for text in said)
    assert any("previous.ckpt" in text for text in said)
    assert_same(whole, outcome.folder)


class Malicious:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    fold = Fold(tmp_path)
    fold.checkpoints.mkdir()
    fold.last_checkpoint.write_bytes(pickle.dumps(Malicious(trace)))
    torch.save({"state_dict": Malicious(trace), "global_step": 1}, fold.previous_checkpoint)
    said: list[str] = []
    assert newest_readable(fold, Listener(said)) == (None, 0)
    assert len(said) == 2
    assert not trace.exists()


def test_a_finished_run_says_so(strokes: Path, whole: Path) -> None:
    said: list[str] = []
    outcome = run(strokes, whole.parent, resume=True, progress=Listener(said))
    assert outcome.finished
    assert said == [f"{whole} is finished"]
    assert outcome.scores_file == whole / "scores.csv"
    assert outcome.mean_dice is not None


def test_a_run_of_an_earlier_version_goes_on(strokes: Path, whole: Path, tmp_path: Path) -> None:
    """Other comments and a field that was not there yet are no other configuration."""
    shutil.copytree(whole.parent, tmp_path / "run")
    for file in (tmp_path / "run").glob("fold*/config.yaml"):
        lines = [
            line.split("  #")[0]
            for line in file.read_text().splitlines()
            if "axes: null" not in line
        ]
        assert len(lines) < len(file.read_text().splitlines())
        file.write_text("\n".join(lines) + "\n")
    assert run(strokes, tmp_path / "run", resume=True).finished
    train_fold(PRESET, data=strokes, fold=0, out=tmp_path / "run", machine=CPU)


def test_regions_in_another_order_are_another_configuration(tmp_path: Path) -> None:
    """Their order is that of the network's outputs."""
    brats = load_preset("brats")
    backwards = brats.model_copy(deep=True)
    regions = backwards.data.regions
    for name in list(regions)[:-1]:
        regions[name] = regions.pop(name)
    assert list(regions) != list(brats.data.regions)
    (tmp_path / "fold0").mkdir()
    (tmp_path / "fold0" / "config.yaml").write_text(to_yaml(brats))
    check_folder(Fold(tmp_path / "fold0"), brats, resume=True)
    with pytest.raises(RunError, match="was trained with another preset"):
        check_folder(Fold(tmp_path / "fold0"), backwards, resume=True)


def test_only_what_differs_is_shown_of_a_run_from_before_a_field_came(tmp_path: Path) -> None:
    (tmp_path / "fold0").mkdir()
    lines = to_yaml(load_preset("brats")).splitlines(keepends=True)
    older = [line for line in lines if not line.strip().startswith(("tolerance:", "# "))]
    assert len(older) < len(lines)
    (tmp_path / "fold0" / "config.yaml").write_text("".join(older))
    check_folder(Fold(tmp_path / "fold0"), load_preset("brats"), resume=True)
    with pytest.raises(RunError, match="was trained with another preset") as refusal:
        check_folder(
            Fold(tmp_path / "fold0"),
            change_preset(load_preset("brats"), ["training.batch_size=3"]),
            resume=True,
        )
    shown = str(refusal.value).splitlines()[1:]
    assert [line.split("#")[0].strip() for line in shown] == [
        "-  batch_size: 2",
        "+  batch_size: 3",
    ]


def test_cases_that_came_later_are_left_out_and_others_refused(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")
    (tmp_path / "run" / "fold1" / "scores.csv").unlink()
    data = shutil.copytree(strokes, tmp_path / "data")
    write_synthetic("isles22", tmp_path / "more", cases=7, size=24, seed=5)
    for part in ("rawdata", "derivatives"):
        shutil.copytree(
            tmp_path / "more" / part / "sub-strokecase0007", data / part / "sub-strokecase0007"
        )
    said: list[str] = []
    assert run(data, tmp_path / "run", resume=True, progress=Listener(said)).finished
    assert any("1 case of" in text and "is in no fold of this run" in text for text in said)
    before = (tmp_path / "run" / "folds.json").read_text()
    for part in ("rawdata", "derivatives"):
        shutil.rmtree(data / part / "sub-strokecase0001")
    with pytest.raises(
        RunError,
        match=r"has sub-strokecase0001, which .*data does not have any more; restore the data",
    ):
        cross_validate(PRESET, data=data, out=tmp_path / "run", fold=0, machine=CPU)
    assert (tmp_path / "run" / "folds.json").read_text() == before
    write_synthetic("brats", tmp_path / "tumours", cases=2, size=24, seed=0)
    with pytest.raises(DataError, match="none of the 2 cases is in it"):
        cross_validate(PRESET, data=tmp_path / "tumours", out=tmp_path / "run", machine=CPU)


FAILING = """
import sys
sys.path.insert(0, sys.argv[3])
from testkit import runs as t
from factorizer.data.patches import PatchDataset
from factorizer.training.machine import Machine
def fail(self, index):
    raise RuntimeError("a bad patch")
PatchDataset.__getitem__ = fail
t.run(t.Path(sys.argv[1]), t.Path(sys.argv[2]), machine=Machine(device="cpu", workers=2))
"""


def test_an_error_in_a_worker_ends_the_training(strokes: Path, tmp_path: Path) -> None:
    """Workers that do not heed signals must still end with their parent."""
    command = [
        sys.executable,
        "-c",
        FAILING,
        str(strokes),
        str(tmp_path / "run"),
        str(Path(__file__).parents[1]),
    ]
    ended = subprocess.run(command, capture_output=True, timeout=240)
    assert ended.returncode == 1
    assert b"a bad patch" in ended.stderr


def test_a_finished_run_can_be_made_longer(strokes: Path, whole: Path, tmp_path: Path) -> None:
    """By the schedule of the longer run, from the step it is at; the scores of the shorter one are
    kept."""
    shutil.copytree(whole.parent, tmp_path / "run")
    longer = change_preset(PRESET, ["training.max_steps=9"])
    with pytest.raises(RunError, match="was trained with another preset"):
        run(strokes, tmp_path / "run", longer)
    said: list[str] = []
    rates = Rates()
    (tmp_path / "run" / "fold1" / "speeds.json").write_text(
        "{}"
    )  # tuned for the weights as they are now
    for name in ("scores.csv", "postprocessing.json"):
        (tmp_path / "run" / name).write_text("of all folds as they are now")
    outcome = run(
        strokes, tmp_path / "run", longer, resume=True, callbacks=[rates], progress=Listener(said)
    )
    assert outcome.step == 9
    assert any("extending from 6 to 9 steps" in text for text in said)
    peak = PRESET.training.learning_rate
    expected = [peak * rate_factor(step, max_steps=9, warmup_steps=0) for step in (6, 7, 8)]
    assert rates.seen == pytest.approx(expected, rel=1e-12)
    assert (outcome.folder / "scores-6.csv").read_text() == (whole / "scores.csv").read_text()
    assert (outcome.folder / "speeds-6.json").exists()
    assert not (outcome.folder / "speeds.json").exists()
    kept = sorted(file.name for file in (tmp_path / "run").iterdir() if file.is_file())
    assert kept == ["folds.json", "postprocessing-6.json", "scores-6.csv"]
    with pytest.raises(RunError, match=r"only a larger training\.max_steps can be resumed"):
        run(strokes, tmp_path / "run", resume=True)


def test_a_full_disk_is_named_and_the_last_checkpoint_kept(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    """Files may not grow beyond a limit from step 2 on: the checkpoint of step 3 cannot be
    written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))

    try:
        with pytest.raises(
            OSError, match=r"the checkpoint of step 3 cannot be written .* the one before is kept"
        ):
            run(strokes, tmp_path / "run", callbacks=[At(2, fill)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder = tmp_path / "run" / "fold1" / "checkpoints"
    assert torch.load(folder / "last.ckpt", weights_only=True)["global_step"] == 2
    assert not list(folder.glob(".*"))
    assert_same(whole, run(strokes, tmp_path / "run", resume=True).folder)


def test_the_best_checkpoint_says_that_it_is_optimistic(whole: Path) -> None:
    best, last = (
        torch.load(whole / "checkpoints" / f"{name}.ckpt", weights_only=True)
        for name in ("best", "last")
    )
    assert "optimistic" in best["chosen_on"]
    assert "chosen_on" not in last


def test_another_run_is_not_replaced(strokes: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="already exists; resume it"):
        run(strokes, whole.parent)
    other = change_preset(PRESET, ["training.learning_rate=0.5"])
    with pytest.raises(RunError, match=r"-  learning_rate: 0\.0001[^\n]*\n\+  learning_rate: 0\.5"):
        run(strokes, whole.parent, other, resume=True)
    (tmp_path / "fold1").mkdir()
    (tmp_path / "fold1" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is neither empty nor a run"):
        run(strokes, tmp_path)
