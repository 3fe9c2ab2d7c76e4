"""Run folders that are damaged: one line that names the file, or nothing lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from factorizer.cli import app
from factorizer.preset_files import change_preset
from factorizer.runs.fold import Fold
from testkit.runs import CHANGES, PRESET, assert_same, run, weights
from testkit.telling import Listener

runner = CliRunner()


@pytest.fixture
def begun(whole: Path, tmp_path: Path) -> Path:
    """A fold whose last step was made, but that has no scores yet."""
    shutil.copytree(whole.parent, tmp_path / "run")
    (tmp_path / "run" / "fold1" / "scores.csv").unlink()
    return tmp_path / "run" / "fold1"


def resume(data: Path, folder: Path) -> tuple[int, str]:
    """The exit code and what is said."""
    command = [
        "train",
        "--preset",
        "isles22",
        "--data",
        str(data),
        "--output",
        str(folder.parent),
        "--fold",
        "1",
    ]
    command += ["--resume", "--workers", "0", "--device", "cpu"]
    result = runner.invoke(
        app, command + [part for change in CHANGES for part in ("--set", change)]
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.stderr


DEEP = "[" * 100_000
TEXTS = (
    "",
    "null",
    "3",
    "[]",
    "{}",
    '"x"',
    "[3]",
    "[[]]",
    '{"a": 1}',
    "\x00\xff",
    DEEP,
    "not json",
)
FEW_STARTS = ('[{"init": 3}]', '[{"init": null, "step": "x"}]', '[{"held_out": 3}]')


@pytest.mark.slow
@pytest.mark.parametrize("text", [*TEXTS, *FEW_STARTS], ids=lambda text: text[:12])
def test_a_damaged_run_json_is_named_or_does_no_harm(strokes: Path, begun: Path, text: str) -> None:
    (begun / "run.json").write_text(text)
    code, said = resume(strokes, begun)
    if text in ("[]", '[{"held_out": 3}]'):
        assert code == 0, said
    else:
        assert code == 2, said
        assert f"{begun}/run.json" in said.replace("\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])
def test_a_damaged_cases_json_is_named(strokes: Path, begun: Path, text: str) -> None:
    (begun / "cases.json").write_text(text)
    code, said = resume(strokes, begun)
    assert code == 2, said
    assert str(begun) in said


def damage(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    checkpoint = torch.load(file, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, file)


def other_shape(checkpoint: dict[str, Any]) -> None:
    state = checkpoint["state_dict"]
    name = next(iter(state))
    state[name] = torch.zeros(3)


def other_optimizer(checkpoint: dict[str, Any]) -> None:
    for values in checkpoint["optimizer_states"][0]["state"].values():
        values["exp_avg"] = torch.zeros(3, 3)


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "step is text": lambda c: c.update(global_step="six"),
    "step is negative": lambda c: c.update(global_step=-1),
    "step is a list": lambda c: c.update(global_step=[6]),
    "step is beyond": lambda c: c.update(global_step=10**9),
    "weights of another shape": other_shape,
    "no weights": lambda c: c.pop("state_dict"),
    "weights are a list": lambda c: c.update(state_dict=[1]),
    "no loops": lambda c: c.pop("loops"),
    "loops are text": lambda c: c.update(loops="x"),
    "no optimizer": lambda c: c.pop("optimizer_states"),
    "optimizer of another network": other_optimizer,
    "two optimizers": lambda c: c.update(optimizer_states=[{}, {}]),
    "callbacks are a number": lambda c: c.update(callbacks=3),
    "best is text": lambda c: c.update(
        callbacks={key: {"best_dice": "x"} for key in c["callbacks"]}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_a_checkpoint_of_other_types_or_shapes_is_named(
    strokes: Path, begun: Path, name: str
) -> None:
    """Resumed from step 4, so that a step is made too."""
    last = begun / "checkpoints" / "last.ckpt"
    shutil.copy(begun / "checkpoints" / "previous.ckpt", last)
    damage(last, DAMAGES[name])
    code, said = resume(strokes, begun)
    assert code == 2, said
    assert f"{last}" in said
    assert "remove it to resume from the checkpoint before" in said
    assert said.count("\n") < 8
    last.unlink()
    assert resume(strokes, begun)[0] == 0


@pytest.mark.slow
def test_a_bug_while_resuming_is_not_blamed_on_the_checkpoint(
    strokes: Path, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("entries")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("factorizer.training.stream.PatchStream.setup", fail)
    code, said = resume(strokes, begun)
    assert code == 70, said
    assert "Bug: KeyError" in said


@pytest.mark.slow
def test_a_damaged_best_checkpoint_does_no_harm(strokes: Path, begun: Path, whole: Path) -> None:
    (begun / "checkpoints" / "last.ckpt").unlink()
    for change in (lambda c: c.update(callbacks={}), lambda c: c.update(global_step="x")):
        damage(begun / "checkpoints" / "best.ckpt", change)
        (begun / "scores.csv").unlink(missing_ok=True)
        assert resume(strokes, begun)[0] == 0
        assert_same(whole, begun)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"step,loss\n1,a\nx,2\n\n3", b"", b"loss\n3\n", b'a,"\n']
)
def test_a_damaged_log_is_named_or_its_rows_left_out(
    strokes: Path, begun: Path, whole: Path, content: bytes
) -> None:
    (begun / "checkpoints" / "last.ckpt").unlink()  # the one before is of step 4
    log = begun / "log" / "metrics.csv"
    log.write_bytes(content)
    code, said = resume(strokes, begun)
    if code == 2:
        assert str(log) in said
        log.unlink()
        assert resume(strokes, begun)[0] == 0
    assert_same(whole, begun)
    assert (
        log.read_text().splitlines()[-1]
        == (whole / "log" / "metrics.csv").read_text().splitlines()[-1]
    )


def test_the_end_of_a_run_on_all_cases_is_in_its_run_json(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "foldall")
    (tmp_path / "foldall" / "scores.csv").unlink()
    assert Fold(tmp_path / "foldall").is_finished
    starts = json.loads((whole / "run.json").read_text())
    (tmp_path / "foldall" / "run.json").write_text(
        json.dumps([*starts[:-1], starts[-1] | {"step": 5}])
    )
    assert not Fold(tmp_path / "foldall").is_finished
    (tmp_path / "foldall" / "run.json").unlink()
    assert not Fold(tmp_path / "foldall").is_finished


@pytest.mark.slow
def test_weights_without_deep_supervision_begin_a_run_with_it(
    strokes: Path, tmp_path: Path
) -> None:
    """Its further heads are drawn at random, and that is said."""
    deep = change_preset(
        PRESET, ["model.widths=[8,16,32]", "training.max_steps=1", "training.learning_rate=1e-9"]
    )
    single = run(
        strokes, tmp_path / "single", change_preset(deep, ["model.deep_supervision=false"])
    ).folder
    said: list[str] = []
    tuned = weights(
        run(strokes, tmp_path / "run", deep, init=str(single), progress=Listener(said)).folder
    )
    assert "drawn at random: heads.1.bias, heads.1.weight" in said
    source = weights(single)
    assert tuned.keys() - source.keys() == {"network.heads.1.bias", "network.heads.1.weight"}
    assert all(torch.allclose(tuned[name], source[name], atol=1e-6) for name in source)
