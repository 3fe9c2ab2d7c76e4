"""The examples in docstrings run, and every public name of nn and models has one."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import factorizer

MODULES = ("nn.blocks", "nn.matricize", "nn.nmf", "nn.unet", "models.registry")


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = import_module(f"factorizer.{name}")
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize("name", factorizer.__all__)
def test_public_names_of_nn_and_models_have_an_example(name: str) -> None:
    public = getattr(factorizer, name)
    home = getattr(public, "__module__", "").removeprefix("factorizer.")
    if home in MODULES:
        assert ">>> " in public.__doc__
