"""`factorizer train` and `factorizer cross-validate`."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.evaluation.scores import METRICS, mean_scores, read_scores
from factorizer.preset_files import PresetError, change_preset, load_preset, refuse_idle_options
from factorizer.training import module as training_module
from factorizer.training import session
from factorizer.training.loss import supervised_loss
from factorizer.training.train import cross_validate
from testkit.runs import CHANGES, CPU, PRESET
from testkit.telling import Listener

runner = CliRunner()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda"), "this machine has no cuda device"),
        (("--device", "toaster"), "choose auto, cpu, cuda or mps"),
        (("--nodes", "2"), "nodes is 2, but nothing started processes there"),
        (("--precision", "16"), "precision 16 needs a GPU"),
        (
            ("--accumulate", "4096"),
            "lower devices or accumulate, or raise training.batch_size",
        ),
        (
            ("--set", "training.batch_size=4096"),
            "lower training.batch_size, now 4096, or raise accumulate, now 1",
        ),
        (
            ("--set", "data.patch_size=[512,512,512]", "--system", "performer"),
            "lower data.patch_size, now [512, 512,",
        ),
        (
            ("--set", "model.widths=[4096,4096,4096,4096]", "--system", "nnunet"),
            "or model.widths, now [4096, 4096,",
        ),
        (("--set", "training.deep_supervision_weights=[]"), "at least 1 item"),
        (("--set", "training.learning_rate=.inf"), "finite number (got inf)"),
        (("--set", "model={name: nnunet, widths: 3}"), "model.widths"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_what_cannot_be_done_is_said(
    strokes: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    command = [
        "train",
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--output",
        str(tmp_path / "run"),
        *options,
    ]
    result = runner.invoke(app, command)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_line(strokes: Path, tmp_path: Path) -> None:
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = [
        "train",
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--output",
        str(tmp_path / "run"),
        "--fold",
        "2",
    ]
    command += [
        "--workers",
        "0",
        "--device",
        "cpu",
        "--accumulate",
        "2",
        "--system",
        "local-factorizer",
        *changes,
    ]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [cell.strip() for cell in result.stdout.splitlines()[4].split("│")[1:3]] == [
        "lesion",
        "2",
    ]
    assert "model.name" not in (tmp_path / "run" / "fold2" / "config.yaml").read_text()
    assert load_preset(tmp_path / "run" / "fold2" / "config.yaml").model.name == "local-factorizer"
    again = runner.invoke(app, command)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert runner.invoke(app, [*command, "--resume"]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", ["preparing", "fitting", "scoring"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_code_and_a_line_how_to_resume(
    strokes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    number: int,
    code: int,
) -> None:
    """So that `train && predict` does not predict with half a model. While fitting it comes in the
    first step."""
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def be_signalled(*_: object, **__: object) -> None:
        signal.raise_signal(number)

    if place == "preparing":
        monkeypatch.setattr(session, "prepare_cases", be_signalled)
    elif place == "fitting":
        monkeypatch.setattr(training_module, "supervised_loss", signalled_once(number))
    else:
        monkeypatch.setattr(session.Scoring, "scores", be_signalled)
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = [
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--workers",
        "0",
        "--device",
        "cpu",
        *changes,
    ]
    train = ["train", *command, "--output", str(tmp_path / "run")]
    result = runner.invoke(app, train)
    assert result.exit_code == code, result.output
    assert "--resume" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "run" / "fold0" / "scores.csv").exists()
    monkeypatch.undo()
    assert runner.invoke(app, [*train, "--resume"]).exit_code == 0
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def signalled_once(number: int):
    """A loss during whose first computation a signal comes."""
    pending = [number]

    def loss(*arguments, **options):
        if pending:
            signal.raise_signal(pending.pop())
        return supervised_loss(*arguments, **options)

    return loss


@pytest.mark.slow
def test_a_stop_ends_a_cross_validation_and_an_ablation(
    strokes: Path, tmp_path: Path, monkeypatch
) -> None:
    changes = [part for change in CHANGES for part in ("--set", change)]
    command = [
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--workers",
        "0",
        "--device",
        "cpu",
        *changes,
    ]
    for words in (["cross-validate"], ["ablate", "training"]):
        monkeypatch.setattr(training_module, "supervised_loss", signalled_once(signal.SIGTERM))
        result = runner.invoke(app, [*words, *command, "-o", str(tmp_path / words[0])])
        assert result.exit_code == 143, result.output
        assert result.stderr.splitlines()[-1] == "stopped; run the same command to resume"


def test_an_option_that_a_system_does_not_have_is_refused(strokes: Path, tmp_path: Path) -> None:
    command = [
        "train",
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--output",
        str(tmp_path / "run"),
    ]
    result = runner.invoke(app, [*command, "--system", "nnunet", "--set", "model.window=4"])
    assert result.exit_code == 2
    assert "cannot set 'model.window=4': nnunet has no such option, only widths" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_cross_validation_runs_or_continues_all_folds_and_pools_them(
    strokes: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole.parent, tmp_path / "run")  # fold 1 is done
    before = (tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt").stat().st_mtime_ns
    said: list[str] = []
    result = cross_validate(
        PRESET, data=strokes, out=tmp_path / "run", machine=CPU, progress=Listener(said)
    )
    assert (tmp_path / "run" / "fold1" / "checkpoints" / "last.ckpt").stat().st_mtime_ns == before
    assert [text for text in said if text.startswith("fold ")] == [
        f"fold {k} ({k + 1} of 3)" for k in range(3)
    ]
    place = f"the run is in {tmp_path / 'run' / 'fold0'}; training needs about 1.0 GiB of memory"
    assert place in said
    assert result.scores_file is not None
    rows = read_scores(result.scores_file)
    assert sorted({row.case for row in rows}) == [f"sub-strokecase000{i}" for i in range(1, 7)]
    assert len(rows) == 6 * len(METRICS)
    means = mean_scores(rows)["lesion"]
    assert means.cases == 6
    assert means.dice == pytest.approx(sum(row.value for row in rows if row.metric == "dice") / 6)


@pytest.mark.slow
def test_one_fold_of_a_cross_validation(strokes: Path, whole: Path, tmp_path: Path) -> None:
    """As one job of an array; the last to finish pools."""
    shutil.copytree(whole.parent, tmp_path / "run")
    said: list[str] = []
    options = {"data": strokes, "out": tmp_path / "run", "machine": CPU, "progress": Listener(said)}
    first = cross_validate(PRESET, fold=0, **options)
    assert first.scores_file is None
    assert first.missing == [2]
    second = cross_validate(PRESET, fold=2, **options)
    assert second.scores_file == tmp_path / "run" / "scores.csv"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.max_step=3", "did you mean 'max_steps'"),
        ("trainin.max_steps=3", "there is no section 'trainin'; did you mean 'training'"),
        (
            "data.augmentaton.flip.probability=1",
            r"'augmentaton'; did you mean 'augmentation'\? The sections are labels, regions,",
        ),
        ("data.spacing_mm.x=1", "there is no section 'spacing_mm'"),
        ("training.max_steps", "give path.to.field=value"),
        ("training.max_steps=[", "the value is not YAML"),
        ("training.max_steps=0", "greater than 0"),
    ],
)
def test_a_wrong_setting_is_named(change: str, message: str) -> None:
    with pytest.raises(PresetError, match=message):
        change_preset(PRESET, [change])


def test_a_setting_that_would_do_nothing_is_refused() -> None:
    for change, message in (
        (
            "data.augmentation.elastic.axes=[0]",
            r"data\.augmentation\.elastic\.probability is 0; change that too",
        ),
        ("model.feature_size=8", "has no such option"),
    ):
        with pytest.raises(PresetError, match=message):
            refuse_idle_options(PRESET, [change])
    both = ["data.augmentation.elastic.axes=[0]", "data.augmentation.elastic.probability=0.5"]
    refuse_idle_options(change_preset(PRESET, both), both)
    off = ["data.augmentation.flip.probability=0"]
    refuse_idle_options(change_preset(PRESET, off), off)
