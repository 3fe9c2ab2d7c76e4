"""The shape of the code base: imports go one way, and public names are what they say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import factorizer

SOURCE = Path(factorizer.__file__).parent
EVERYWHERE = {"files", "words"}  # what every package may import
# each package and what it may import of this project
ALLOWED = {
    "nn": {"nn"},
    "models": {"nn", "models"},
    "data": {"config", "data", "doctor"},
    "inference": {"config", "data", "evaluation", "inference", "models", "nn", "preset_files"},
    "evaluation": {"config", "data", "evaluation", "preset_files"},
    "training": {
        "config",
        "data",
        "doctor",
        "evaluation",
        "inference",
        "models",
        "nn",
        "preset_files",
        "profiling",
        "reports",
        "training",
    },
    "commands": {
        "commands",
        "config",
        "data",
        "evaluation",
        "inference",
        "inspection",
        "models",
        "preset_files",
        "profiling",
        "reports",
        "training",
    },
    "inspection": {
        "data",
        "evaluation",
        "inference",
        "inspection",
        "models",
        "nn",
        "profiling",
        "reports",
    },
    "reports": {"config", "data", "evaluation", "reports"},
    "profiling": {"nn", "models", "config", "preset_files", "profiling"},
}


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    files = list((SOURCE / package).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not (isinstance(node, ast.ImportFrom) and node.level), (
                f"{file.name} has a relative import"
            )
            for name in names:
                if name == "factorizer":
                    assert isinstance(node, ast.ImportFrom)
                    assert [alias.name for alias in node.names] == ["__version__"], (
                        "name the module"
                    )
                if name.startswith("factorizer."):
                    assert name.split(".")[1] in ALLOWED[package] | EVERYWHERE, (
                        f"{file.name} imports {name}"
                    )


def test_every_package_of_the_source_has_a_rule() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(ALLOWED)


def test_public_names_resolve() -> None:
    for name in factorizer.__all__:
        assert getattr(factorizer, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nmf_typo'"):
        factorizer.nmf_typo  # noqa: B018
