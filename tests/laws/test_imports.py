"""The law of imports: what may import what, read from the imports themselves.

A room is a folder of wordle_rl/. It imports only the rooms to its left in ROOMS. Imports inside
functions and for type checkers count like all others.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from packaging.requirements import Requirement

from wordle_rl.runs.paths import ROOT

PACKAGE = "wordle_rl"
ROOMS = (
    *("runs", "words", "game", "prompts", "rewards", "evaluation", "algorithms", "policy"),
    *("rollouts", "data", "training", "backends", "adapters", "export", "reports", "web"),
    *("sweeps", "commands"),
)
LOOSE = ""  # the room of train.py, eval.py, the sweeper, and wordle_rl/__init__.py and __main__.py
TENSORS = {
    *("torch", "lightning", "lightning_fabric", "pytorch_lightning", "transformers", "peft"),
    *("mlx", "mlx_lm", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "tensorboard"),
}
CONFIG = {"hydra", "omegaconf", "yaml"}
# The only rooms that import a library.
HOMES = {
    **dict.fromkeys(TENSORS, ("backends",)),
    **dict.fromkeys(("starlette", "uvicorn", "anyio", "httpx"), ("web",)),
    # adapters compose conf/ for programs.
    **dict.fromkeys(CONFIG, (LOOSE, "commands", "sweeps", "adapters", "runs")),
    "httpx2": ("backends",),
    "optuna": ("sweeps",),
}
PLAIN = set(ROOMS[1 : ROOMS.index("backends")])  # rooms of plain Python and numpy
# But for tables, the bar below the steps, and the memory in use.
EXTRA_IMPORTS = {
    ("evaluation", "rich"),
    ("evaluation", "scipy"),
    ("training", "rich"),
    ("training", "psutil"),
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports, wherever in its source."""

    importer: str
    name: str  # dotted; of `from a import b`, a.b where that is a module of the project, else a
    line: int
    late: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.importer} line {self.line}: imports {self.name}"

    @property
    def rooms(self) -> tuple[str | None, str | None]:
        """Of the importer, and of what it imports."""
        return room_of(self.importer), room_of(self.name)

    @property
    def library(self) -> str:
        return self.name.partition(".")[0]


def project_files() -> dict[str, Path]:
    """Module name -> file, of the package and the commands."""
    files = {name: ROOT / f"{name}.py" for name in ("train", "eval")}
    for folder in (PACKAGE, "hydra_plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


FILES = project_files()


def room_of(module: str) -> str | None:
    """The room of one of our modules; None for other libraries."""
    if module not in FILES:
        return None
    folders = FILES[module].relative_to(ROOT).parts[1:-1]
    return folders[0] if module.startswith(f"{PACKAGE}.") and folders else LOOSE


def imports_of(importer: str, source: str) -> list[Import]:
    """Every import of a module's source: late, type-checking and by name included."""
    imports: list[Import] = []

    def visit(node: ast.AST, late: bool) -> None:
        names: list[str] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=base):
                assert base and not node.level, f"{importer} line {node.lineno}: a relative import"
                candidates = (f"{base}.{alias.name}" for alias in node.names)
                names = [name if name in FILES else base for name in candidates]
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names = [name]
        line = getattr(node, "lineno", 0)
        imports.extend(Import(importer, name, line, late) for name in names)
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(source), False)
    return imports


IMPORTS = [item for name, path in FILES.items() for item in imports_of(name, path.read_text())]


def assert_none(imports: Iterable[Import]) -> None:
    assert not [*imports], "\n".join(map(str, imports))


def breaks_the_law(item: Import) -> bool:
    importer, target = item.rooms
    if target is None or importer in (target, LOOSE):
        return False
    rooms = ("runs",) if importer == "sweeps" else ROOMS[: ROOMS.index(importer or "")]
    return target not in rooms


def test_every_folder_is_a_room_and_no_module_lies_loose():
    package = ROOT / PACKAGE
    assert {path.relative_to(package).parts[0] for path in package.rglob("*/*.py")} <= {*ROOMS}
    assert {path.stem for path in package.glob("*.py")} == {"__init__", "__main__"}
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists(), "it is a namespace"


def test_every_room_imports_only_rooms_to_its_left():
    assert_none([item for item in IMPORTS if breaks_the_law(item)])


def test_no_modules_import_each_other_in_a_circle():
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for item in IMPORTS:
        if item.name in FILES and item.name != item.importer:
            sorter.add(item.importer, item.name)
    sorter.prepare()  # a CycleError names the modules


def test_a_library_is_imported_only_in_its_rooms():
    assert {item.library for item in IMPORTS} >= {"torch", "mlx", "hydra", "optuna", "starlette"}
    faults = [i for i in IMPORTS if i.rooms[0] not in HOMES.get(i.library, i.rooms)]
    # What runs/ needs of a config is imported late.
    assert_none(
        [
            *faults,
            *(i for i in IMPORTS if i.rooms[0] == "runs" and i.library in CONFIG and not i.late),
        ]
    )


def test_the_libraries_of_the_page_come_with_the_package():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {re.split(r"[^\w-]", dep)[0] for dep in tomllib.loads(text)["project"]["dependencies"]}
    libraries = {item.library for item in IMPORTS if item.rooms[0] == "web"}
    assert "uvicorn" in libraries and libraries - {PACKAGE, *sys.stdlib_module_names} <= names


def test_on_apple_silicon_mlx_comes_with_the_package_as_the_readme_says():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requirements = map(Requirement, tomllib.loads(text)["project"]["dependencies"])
    [marker] = [requirement.marker for requirement in requirements if requirement.name == "mlx-lm"]
    assert marker is not None
    places = [("Darwin", "arm64"), ("Darwin", "x86_64"), ("Linux", "aarch64")]
    names = ("platform_system", "platform_machine")
    results = [marker.evaluate(dict(zip(names, place, strict=True))) for place in places]
    assert results == [True, False, False]


def test_what_takes_long_to_import_is_imported_late_outside_its_room():
    loader, client = f"{PACKAGE}.backends", f"{PACKAGE}.backends.vllm"
    web = {i.importer for i in IMPORTS if i.library in ("starlette", "uvicorn")}
    assert web
    imports = [
        item
        for item in IMPORTS
        if (item.rooms[1] == "backends" != item.rooms[0] and item.name != loader)
        or item.name == client
        or (item.name in web and item.rooms[0] != "web")
        or (item.importer.startswith("hydra_plugins") and item.rooms[1] == "sweeps")
    ]
    assert_none([item for item in imports if not item.late])


def test_only_a_training_on_torch_waits_for_lightning():
    module = f"{PACKAGE}.backends.torch.trainer"
    users = [item for item in IMPORTS if item.library == "lightning" or item.name == module]
    assert module in {item.importer for item in users}
    assert_none([item for item in users if not item.late and item.importer != module])


def test_rooms_need_only_numpy_until_the_backends():
    libraries = {PACKAGE, "numpy", *sys.stdlib_module_names}
    faults = [i for i in IMPORTS if i.rooms[0] in PLAIN and i.library not in libraries]
    assert_none([i for i in faults if (i.rooms[0], i.library) not in EXTRA_IMPORTS])
