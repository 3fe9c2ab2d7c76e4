"""Every public name has an example in its docstring, and the examples run."""

from __future__ import annotations

import doctest
import shutil
from importlib import import_module
from pathlib import Path

import pytest

import factorizer

# The examples of these modules need no files. Examples of methods run too.
MODULES = ("nn.blocks", "nn.matricize", "nn.nmf", "nn.unet", "models.registry")
PUBLIC = sorted(set(factorizer.__all__) - {"__version__"})
# These take minutes. Their examples are not run; tests/studies calls the functions.
LONG = {"ablate", "ablate_training", "tune"}


def home_of(name: str) -> str:
    return getattr(factorizer, name).__module__.removeprefix("factorizer.")


WITH_FILES = [name for name in PUBLIC if home_of(name) not in MODULES and name not in LONG]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_networks_run(name: str) -> None:
    module = import_module(f"factorizer.{name}")
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_an_example(name: str) -> None:
    text = getattr(factorizer, name).__doc__
    assert ">>> " in text
    assert ("+SKIP" in text) == (name in LONG)


@pytest.fixture
def place(strokes: Path, stroke_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the examples work in: a data set, its true labels, and a run."""
    shutil.copytree(strokes, tmp_path / "strokes")
    shutil.copytree(stroke_run, tmp_path / "runs" / "strokes")
    (tmp_path / "predictions").mkdir()
    for mask in strokes.glob("derivatives/**/*_msk.nii.gz"):
        shutil.copy(mask, tmp_path / "predictions" / f"{mask.name.partition('_')[0]}.nii.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_FILES)
def test_examples_with_files_run(name: str, place: Path) -> None:
    names = {"factorizer": factorizer, "Path": Path}
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(factorizer, name), name, globs=names
    )
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert results.attempted
    assert not results.failed
