"""The shape of the code base: imports go one way, and the code follows the rules of the house.

CONTRIBUTING.md explains the layers. A test that fails here names the file and the line.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import factorizer

SOURCE = Path(factorizer.__file__).parent
# A package or module imports only from itself and from those before it in this list.
LAYERS = [
    "errors",
    "words",
    "files",
    "bugs",
    "progress",
    "terminal",
    "bars",
    "targets",
    "hardware",
    "nn",
    "doctor",
    "models",
    "config",
    "preset_files",
    "data",
    "evaluation",
    "runs",
    "inference",
    "inspection",
    "profiling",
    "figures",
    "reports",
    "training",
    "studies",
    "commands",
    "cli",
]
# Public functions that take any keyword, and why they may.
ANY_KEYWORD = {
    "terminal.py:render_str": "overrides a method of rich",
    "commands/program.py:main": "overrides a method of click",
    "commands/program.py:make_context": "overrides a method of click",
    "models/registry.py:build_model": "its overloads name the options of every system",
    "training/log.py:log_hyperparams": "overrides a method of Lightning",
    "training/module.py:optimizer_step": "overrides a method of Lightning",
}
LONGEST_COMMAND = 40
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def parsed() -> list[tuple[str, ast.Module]]:
    """Every module of the package: its path from the package, and its syntax tree."""
    modules = []
    for file in sorted(SOURCE.rglob("*.py")):
        modules.append((file.relative_to(SOURCE).as_posix(), ast.parse(file.read_text())))
    return modules


def layer_of(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def imported_layers(node: ast.AST) -> Iterator[str]:
    """The parts of this project that a statement imports, each by the name of its layer."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.startswith("factorizer."):
                yield alias.name.split(".")[1]
            elif alias.name == "factorizer":
                yield "factorizer"
    if isinstance(node, ast.ImportFrom) and node.module == "factorizer":
        for alias in node.names:
            if alias.name != "__version__":  # the one name that every layer may import
                yield alias.name
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("factorizer."):
        yield node.module.split(".")[1]


def test_every_package_and_module_has_a_layer() -> None:
    present = {layer_of(path) for path, _ in parsed()} - {"__init__"}
    assert sorted(present - set(LAYERS)) == [], "add them to LAYERS"


def test_every_layer_exists() -> None:
    present = {layer_of(path) for path, _ in parsed()}
    assert sorted(set(LAYERS) - present) == [], "remove them from LAYERS"


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_from_itself_and_from_earlier_layers(layer: str) -> None:
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    wrong = []
    for path, tree in parsed():
        if layer_of(path) != layer:
            continue
        for node in ast.walk(tree):
            for imported in imported_layers(node):
                if imported not in allowed:
                    wrong.append(f"{path}:{node.lineno} imports {imported}")
    assert wrong == []


def test_no_import_is_relative() -> None:
    wrong = []
    for path, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def is_public(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public functions of a module or of a class in it. A constructor is one of them."""
    for node in body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from public_functions(node.body)
        elif isinstance(node, FUNCTIONS) and is_public(node.name):
            yield node


def test_public_functions_name_their_keywords() -> None:
    """`**options` takes a misspelt keyword in silence."""
    found = set()
    for path, tree in parsed():
        for function in public_functions(tree.body):
            if function.args.kwarg is not None:
                found.add(f"{path}:{function.name}")
    assert sorted(found - set(ANY_KEYWORD)) == []
    assert sorted(set(ANY_KEYWORD) - found) == [], "remove them from ANY_KEYWORD"


def arguments_of(call: ast.Call) -> Iterator[ast.expr]:
    for argument in call.args:
        yield argument.value if isinstance(argument, ast.Starred) else argument
    for keyword in call.keywords:
        yield keyword.value


def test_a_comprehension_that_is_an_argument_has_one_for() -> None:
    """Otherwise it gets a name on its own line, or becomes a loop."""
    wrong = []
    for path, tree in parsed():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            for argument in arguments_of(node):
                if isinstance(argument, COMPREHENSIONS) and len(argument.generators) > 1:
                    wrong.append(f"{path}:{argument.lineno}")
    assert wrong == []


def test_no_two_modules_have_the_same_file_name() -> None:
    """A name means one thing: `memory.py` in three packages has to be opened to be told apart."""
    places = defaultdict(list)
    for path, _ in parsed():
        if not path.startswith("commands/"):  # a file there is named like its command
            places[Path(path).name].append(path)
    del places["__init__.py"]
    del places["nnunet.py"]  # the network and the data layout of the same project
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_commands_are_short() -> None:
    """A command parses, calls one function of the library, and prints."""
    long = []
    for path, tree in parsed():
        for node in ast.walk(tree):
            if path.startswith("commands/") and isinstance(node, FUNCTIONS):
                lines = node.end_lineno - node.lineno + 1
                if lines > LONGEST_COMMAND:
                    long.append(f"{path}:{node.name} has {lines} lines")
    assert long == []


def test_options_are_defined_in_one_module() -> None:
    """So that an option has one name and one meaning in all commands."""
    wrong = []
    for path, tree in parsed():
        for node in ast.walk(tree):
            is_option = isinstance(node, ast.Attribute) and node.attr in ("Option", "Argument")
            if is_option and path != "commands/options.py":
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def test_public_names_resolve() -> None:
    for name in factorizer.__all__:
        assert getattr(factorizer, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nmf_typo'"):
        factorizer.nmf_typo  # noqa: B018
