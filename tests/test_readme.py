"""What the README shows is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from factorizer.cli import app
from testkit.places import ROOT

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


def commands() -> list[str]:
    lines = [
        line.partition("#")[0].strip() for block in blocks("bash") for line in block.splitlines()
    ]
    return [line for line in lines if line.startswith("factorizer ")]


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in commands():
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_there_is_something_to_run_and_make_targets_exist() -> None:
    assert blocks("python")
    assert commands()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([\w-]+)", README)) <= set(targets)


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert all((ROOT / link).exists() for link in links)
