"""Two processes train as one does, and the first alone writes."""

from __future__ import annotations

import atexit
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from factorizer.config import Training
from factorizer.runs.fold import Fold
from factorizer.training.environment import NUMBERS, RunError, check_environment, processes_started
from factorizer.training.machine import Machine, share_batch
from factorizer.training.trainer import let_threads_finish, make_trainer

SETTINGS = (
    "training.max_steps=4",
    "training.checkpoint_every=2",
    "training.validate_every=2",
    "training.folds=3",
    "training.learning_rate=0.01",
    "model.widths=[8,16]",
    "model.window=4",
    "data.patch_size=[16,16,16]",
)
# every process writes down which files it opens for writing, makes, moves and removes
WATCHER = """
import os, sys
rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
log_name = os.path.join(os.environ["WATCH_LOG"], f"{os.getpid()}-{rank}")
log = os.open(log_name, os.O_CREAT | os.O_WRONLY)
def watch(event, arguments):
    flags = arguments[2] if event == "open" else 0
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
        os.write(log, f"{arguments[0]}\\n".encode())
    elif event in ("os.mkdir", "os.rename", "os.remove"):
        os.write(log, f"{arguments[0]}\\n".encode())
sys.addaudithook(watch)
"""
FACTORIZER = Path(sys.executable).with_name("factorizer")
TORCHRUN = Path(sys.executable).with_name("torchrun")


def train(
    strokes: Path, out: Path, logs: Path, *options: str, launcher: tuple[str, ...] = ()
) -> Path:
    """Run `factorizer train` in processes of its own, watched; the folder of the run."""
    logs.mkdir(parents=True)
    (logs / "code").mkdir()
    (logs / "code" / "sitecustomize.py").write_text(WATCHER)
    (logs / "written").mkdir()
    path = os.pathsep.join([str(logs / "code"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "WATCH_LOG": str(logs / "written")}
    command = [
        *launcher,
        str(FACTORIZER),
        "train",
        "--preset",
        "isles22",
        "--data",
        str(strokes),
        "--output",
        str(out),
    ]
    command += ["--device", "cpu", "--workers", "0", *options]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("scores.csv") == 1, "the first process alone speaks"
    return out / "fold0"


@pytest.fixture(scope="module")
def single(strokes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    return train(strokes, folder / "run", folder / "logs")


def files_written(logs: Path, out: Path, rank: str) -> set[str]:
    lines = [
        line
        for log in (logs / "written").glob(f"*-{rank}")
        for line in log.read_text().splitlines()
    ]
    return {line for line in lines if line.startswith(str(out))}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "lightning"])
def test_two_processes_train_as_one(
    strokes: Path, single: Path, tmp_path: Path, launcher: str
) -> None:
    out, logs = tmp_path / "run", tmp_path / "logs"
    if launcher == "torchrun":
        start = (str(TORCHRUN), "--nproc-per-node", "2", "--master-port", "29611", "--no-python")
        folder = train(strokes, out, logs, launcher=start)
    else:
        folder = train(strokes, out, logs, "--devices", "2")
    one, two = (
        torch.load(f / "checkpoints" / "last.ckpt", weights_only=True) for f in (single, folder)
    )
    assert one["global_step"] == two["global_step"] == 4
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, rtol=1e-3, atol=1e-5)
    assert (folder / "scores.csv").read_text() == (single / "scores.csv").read_text()
    assert any("scores.csv" in file for file in files_written(logs, out, "0"))
    assert files_written(logs, out, "1") == set()


@pytest.mark.slow
def test_two_processes_go_on_with_what_one_began(
    strokes: Path, single: Path, tmp_path: Path
) -> None:
    """The samples of a step do not depend on the number of processes."""
    shutil.copytree(single.parent, tmp_path / "run")
    (tmp_path / "run" / "fold0" / "scores.csv").unlink()
    (
        tmp_path / "run" / "fold0" / "checkpoints" / "last.ckpt"
    ).unlink()  # the one before is of step 2
    folder = train(strokes, tmp_path / "run", tmp_path / "logs", "--devices", "2", "--resume")
    assert json.loads((folder / "run.json").read_text())[1]["processes"] == 2
    log = list(csv.DictReader((folder / "log" / "metrics.csv").read_text().splitlines()))
    assert [row["step"] for row in log if row["val_dice"]] == [
        "1",
        "3",
    ]  # the first of the run before
    one, two = (
        torch.load(f / "checkpoints" / "last.ckpt", weights_only=True) for f in (single, folder)
    )
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, rtol=1e-3, atol=1e-5)


def test_processes_are_those_that_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    assert processes_started() is None
    assert Machine().processes() == (1, 1)
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "8",
    }.items():
        monkeypatch.setenv(name, value)
    assert Machine().processes() == (4, 2)
    with pytest.raises(RunError, match="is 2 x 2, but 4 x 2 processes were started"):
        Machine(devices=2).processes()
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    for name, value in {
        "SLURM_NTASKS": "6",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert Machine().processes() == (2, 3)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(RunError, match="give --ntasks-per-node"):
        Machine().processes()
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    assert Machine().processes() == (1, 1)


TORCHRUN_SET = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "1",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "WORLD_SIZE": "2",
}
LIGHTNING_SET = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500", "NODE_RANK": "0"}


@pytest.mark.parametrize(
    ("variables", "devices", "named"),
    [
        ({}, None, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None, None),
        (TORCHRUN_SET, None, None),
        (LIGHTNING_SET, 2, None),
        (
            {
                "SLURM_NTASKS": "4",
                "SLURM_NTASKS_PER_NODE": "2",
                "SLURM_NNODES": "2",
                "SLURM_PROCID": "3",
            },
            None,
            None,
        ),
        ({"RANK": "1"}, None, "RANK"),
        ({"RANK": "abc"}, None, "RANK"),
        ({"WORLD_SIZE": "4"}, None, "WORLD_SIZE"),
        ({"LOCAL_RANK": "1"}, 2, "LOCAL_RANK"),
        (LIGHTNING_SET, None, "LOCAL_RANK"),
        ({"SLURM_PROCID": "2"}, None, "SLURM_PROCID"),
        ({"NODE_RANK": "-1"}, None, "NODE_RANK"),
        (TORCHRUN_SET | {"LOCAL_WORLD_SIZE": "0"}, None, "LOCAL_WORLD_SIZE"),
        (TORCHRUN_SET | {"WORLD_SIZE": "abc"}, None, "WORLD_SIZE"),
        (TORCHRUN_SET | {"WORLD_SIZE": "3"}, None, "WORLD_SIZE"),
        (TORCHRUN_SET | {"RANK": "2"}, None, "RANK"),
        (TORCHRUN_SET | {"LOCAL_RANK": "\u0663"}, None, "LOCAL_RANK"),
        ({"SLURM_NTASKS": "1" * 5000}, None, "SLURM_NTASKS"),
        (
            {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2(x2)", "SLURM_NNODES": "1"},
            None,
            "SLURM_NTASKS_PER_NODE",
        ),
    ],
)
def test_variables_of_another_job_are_named(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    devices: int | None,
    named: str | None,
) -> None:
    for name in (*NUMBERS, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if named is None:
        check_environment(devices)
        return
    with pytest.raises(
        RunError, match=f"the environment variable {named} is '.*; unset it, or start with torchrun"
    ):
        check_environment(devices)


@pytest.mark.slow
def test_a_leftover_variable_ends_with_one_line() -> None:
    """Lightning reads RANK when it is imported."""
    command = [str(FACTORIZER), "train", "--preset", "isles22", "--data", "nowhere"]
    done = subprocess.run(
        command, env=os.environ | {"RANK": "x"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "RANK is 'x'" in done.stderr


def test_a_batch_is_shared_evenly() -> None:
    assert share_batch(8, 2, 2) == 2
    with pytest.raises(
        RunError, match=r"training\.batch_size is 2, which 4 devices with 1 accumulated batches"
    ):
        share_batch(2, 1, 4)


@pytest.mark.parametrize("devices", [1, 2])
def test_one_of_several_processes_ends_with_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    """Without it about one in ten aborted at its end on a busy machine."""
    at_end: list[object] = []
    monkeypatch.setattr(atexit, "register", at_end.append)
    monkeypatch.setattr(
        atexit, "unregister", lambda function: function in at_end and at_end.remove(function)
    )
    for _ in range(2):  # as for two folds
        machine = Machine(device="cpu", devices=devices)
        make_trainer(Training(batch_size=2), Fold(tmp_path), [], machine)
    assert at_end == ([let_threads_finish] if devices == 2 else [])
