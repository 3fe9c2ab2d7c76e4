"""The map of the source, docs/code.md, from the first sentences of the modules' docstrings.

`python -m testkit.source_map`, in the folder of the tests, writes it again.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "code.md"
SOURCE = ROOT / "src" / "factorizer"
HEAD = """# Every source file in one line

The lines are the first sentences of the files' docstrings. `make code-map` writes this page, and a
test checks that it is up to date. The packages are in the order of their layers: each imports only
from those above it. [CONTRIBUTING.md](../CONTRIBUTING.md) shows the layers.
"""
OTHERS = ("examples", "benchmarks", "tests/testkit", "tests/fuzz")


def make_map(layers: list[str]) -> str:
    """The page. `layers` are the packages and modules of the source from bottom to top."""
    text = HEAD
    modules = [layer for layer in layers if (SOURCE / f"{layer}.py").is_file()]
    packages = [layer for layer in layers if (SOURCE / layer).is_dir()]
    text += table("src/factorizer", [SOURCE / f"{module}.py" for module in modules])
    for package in packages:
        files = sorted((SOURCE / package).rglob("*.py"))
        text += table(f"src/factorizer/{package}", files)
    for folder in OTHERS:
        text += table(folder, sorted((ROOT / folder).glob("*.py")))
    return text


def table(title: str, files: list[Path]) -> str:
    """The files of one folder."""
    text = f"\n## {title}\n\n| file | what it holds |\n|---|---|\n"
    for file in files:
        if file.name != "__init__.py":
            name = file.relative_to(ROOT / title)
            text += f"| [{name}](../{file.relative_to(ROOT)}) | {first_sentence(file)} |\n"
    return text


def first_sentence(file: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    assert docstring, f"{file} has no docstring"
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z0-9)`\"'])\. (?=[A-Z`])", paragraph)[0]
    return sentence.rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    from test_structure import LAYERS

    MAP.write_text(make_map(list(LAYERS)))
