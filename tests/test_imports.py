"""Imports point down: allowed imports, read from the syntax tree."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pyg_glif

ROOT = Path(__file__).parents[1]
PACKAGE = "pyg_glif"

# Part of the package: its rank, and what it may import beside rank 0. A rank
# stands for every part up to it. Private modules of the top level have rank 0.
RANKS: dict[str, tuple[int, set[str] | int]] = {
    "typing": (0, set()),
    "errors": (0, set()),
    "registry": (0, set()),
    "distances": (1, set()),
    "laplacian": (1, set()),
    "reporting": (1, set()),
    "datasets": (2, set()),
    "metric_learning": (2, {"distances"}),
    "graph": (2, {"distances", "laplacian"}),
    "links": (3, set()),
    "neighbors": (3, {"distances", "graph", "laplacian"}),
    "tables": (3, set()),
    "solvers": (3, {"laplacian"}),
    "smoothing": (4, {"laplacian", "links", "solvers"}),
    "functional": (5, {"laplacian", "links", "smoothing", "solvers"}),
    "methods": (5, 4),
    "nn": (6, 5),
    "transforms": (6, 5),
    "metrics": (6, {"distances", "laplacian", "graph", "methods"}),
    "baselines": (6, 5),
    "distributed": (7, 6),
    "fit": (7, 6),
    "audit": (8, 7),
    "guarantees": (8, 7),
    "model_selection": (8, 7),
    "explain": (9, 8),
    "postprocessing": (10, 9),
    "lightning": (11, 10),
    "monitoring": (11, 10),
    "sklearn": (11, 10),
    "serve": (12, 11),
    "cli": (13, 12),
    "__main__": (14, {"cli"}),
}
# Heavy packages that only ranks from 7 on may import when they are loaded.
HEAVY = {"lightning", "pytorch_lightning", "pandas", "sklearn", "altair"}

Import = tuple[str, str | None, int]  # module, name taken from it, line


def part_of(module: str) -> str | None:
    """``graph`` for ``pyg_glif.graph.radius``, ``None`` for the top level."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(tree: ast.AST) -> Iterator[Import]:
    """All imports below a node, as absolute names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield module, alias.name, node.lineno


def loaded(tree: ast.Module) -> Iterator[Import]:
    """Imports that run when the module is loaded: not those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(ast.Module([node], []))
        else:
            yield from loaded(node)  # type: ignore[arg-type]


def rank_of(part: str) -> tuple[int, set[str] | int] | None:
    """The entry of the table, ``None`` if there should be one and is not."""
    private = part.startswith("_") and part != "__main__"
    return (0, set()) if private else RANKS.get(part)


def may_import(part: str, other: str) -> bool:
    """Whether the table lets ``part`` import ``other``."""
    if part == other:
        return True
    (rank, allowed), (other_rank, _) = rank_of(part), rank_of(other)  # type: ignore
    if other_rank == 0:
        return True
    if isinstance(allowed, int):
        return other_rank <= allowed
    return other in allowed and other_rank < rank


def faults(source: str, module: str) -> list[str]:
    """What the imports of a module do that they should not."""
    tree, part, out = ast.parse(source), part_of(module), []
    for target, name, line in imports(tree):
        where = f"{module}:{line}"
        if target.startswith("."):
            out.append(f"{where} imports relatively")
        if target.split(".")[0] == "experiments":
            out.append(f"{where} imports the experiments, which no wheel holds")
        if target.split(".")[0] != PACKAGE:
            continue
        # 'from pyg_glif import graph' names the part, not its module.
        other = part_of(target) or (name if name and rank_of(name) else None)
        if other is None and part is not None:
            out.append(f"{where} imports the top level")
        elif other is not None and rank_of(other) is None:
            out.append(f"{where} imports '{other}', which has no rank")
        elif part is not None and other is not None and not may_import(part, other):
            out.append(f"{where} imports '{other}'")
        inner = [n for n in target.split(".")[2:] if n.startswith("_")]
        if inner and other != part:
            out.append(f"{where} imports the private '{inner[0]}'")
        if target != PACKAGE and name is not None and name.startswith("_"):
            out.append(f"{where} imports the private '{name}'")
    if part is not None and RANKS.get(part, (0,))[0] < 7:
        out += [
            f"{module}:{line} loads '{target}'"
            for target, _, line in loaded(tree)
            if target.split(".")[0] in HEAVY
        ]
    return out


SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))
FRONTS = sorted((ROOT / PACKAGE).glob("*/__init__.py"))
PARTS = [name for name in RANKS if name != "__main__"]


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    module = module_name(path)
    part = part_of(module)
    assert part is None or rank_of(part), f"'{part}' has no rank"
    assert faults(path.read_text(), module) == []


# All that a package may hold whose names are in a stub and are imported when used.
LAZY = """
import lazy_loader
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
"""


def rank_of_name(name: str) -> tuple[bool, bool, str]:
    """Constants, classes, functions, each by name: the order of the linter."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize("path", FRONTS, ids=module_name)
def test_init_is_imports_and_a_sorted_all(path: Path) -> None:
    _, *body = ast.parse(path.read_text()).body
    if "lazy_loader" in path.read_text():
        assert ast.dump(ast.Module(body, [])) == ast.dump(ast.parse(LAZY))
        body = ast.parse(path.with_suffix(".pyi").read_text()).body
    names = [a.name for n in body if isinstance(n, ast.ImportFrom) for a in n.names]
    rest = [node for node in body if not isinstance(node, ast.ImportFrom)]
    if names or rest:
        (last,) = rest
        assert isinstance(last, ast.Assign)
        assert ast.literal_eval(last.value) == sorted(names, key=rank_of_name)


def test_the_top_level_names_every_part_and_every_export() -> None:
    stub = (ROOT / PACKAGE / "__init__.pyi").read_text()
    found = {name for _, name, _ in imports(ast.parse(stub))}
    assert found == {*PARTS, *pyg_glif.__all__}
    listed = [n for n in ast.parse(stub).body if isinstance(n, ast.Assign)]
    assert ast.literal_eval(listed[0].value) == pyg_glif.__all__
    assert pyg_glif.__all__ == sorted(pyg_glif.__all__, key=rank_of_name)


@pytest.mark.parametrize("name", ["", *PARTS])
def test_every_name_of_a_stub_is_there(name: str) -> None:
    module = importlib.import_module(f"{PACKAGE}.{name}".rstrip("."))
    for export in getattr(module, "__all__", ()):
        assert not isinstance(getattr(module, export), ModuleType), export
    if not name:
        assert {part for part in PARTS if not getattr(pyg_glif, part)} == set()


def test_a_function_is_not_hidden_by_the_module_it_lives_in() -> None:
    code = (
        "import pyg_glif.metrics.local_lipschitz, pyg_glif.audit.audit\n"
        "from pyg_glif.metrics import local_lipschitz\n"
        "from pyg_glif.audit import audit\n"
        "print(local_lipschitz.__name__, audit.__name__)\n"
    )
    assert fresh(code) == "local_lipschitz audit"


def fresh(code: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


BIG = {"torch_geometric", "pytorch_lightning", "lightning", "torchmetrics"}
BIG |= {"torch._dynamo", "pandas", "sklearn", "scipy", "matplotlib"}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pyg_glif", BIG | {"torch", "numpy"}),
        ("from pyg_glif import fair_radius_graph, edge_weights, suggest_tau", BIG),
        ("from pyg_glif import glif_smooth, glif_path", BIG),
        ("from pyg_glif import LaplacianLoss", BIG),
        ("from pyg_glif.metrics import local_lipschitz, laplacian_energy", BIG),
    ],
)
def test_nothing_is_loaded_before_it_is_used(statement: str, absent: set[str]) -> None:
    code = f"import sys\n{statement}\nprint({absent} & sys.modules.keys())"
    assert fresh(code) == "set()"


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("graph.radius", "from pyg_glif.distances import Euclidean", []),
        ("graph.radius", "from pyg_glif._utils.validation import check_rows", []),
        ("graph.radius", "from pyg_glif import _validate", []),
        ("graph.radius", "from pyg_glif.graph.search import find", []),
        ("transforms.a", "from pyg_glif.transforms._storage import write_graph", []),
        ("transforms.a", "from pyg_glif.methods.path import glif_path", []),
        ("methods", "from pyg_glif.links import Link", []),
        ("lightning.a", "import pytorch_lightning", []),
        ("graph.radius", "def f():\n    import sklearn", []),
        ("_new", "from pyg_glif._utils.validation import check_rows", []),
        ("_new", "from pyg_glif.graph import x", [":1 imports 'graph'"]),
        ("distances.a", "from pyg_glif.graph import x", [":1 imports 'graph'"]),
        ("distances.a", "import pyg_glif.graph.x", [":1 imports 'graph'"]),
        ("graph.radius", "from pyg_glif import nn", [":1 imports 'nn'"]),
        ("graph.a", "from pyg_glif.metric_learning import F", ["metric_learning"]),
        ("nn.a", "from pyg_glif.transforms import F", [":1 imports 'transforms'"]),
        ("methods", "from pyg_glif.functional import f", [":1 imports 'functional'"]),
        ("laplacian", "def f():\n    from pyg_glif.graph import x", [":2 imports"]),
        ("graph.a", "from pyg_glif.distances.base import _x", ["private '_x'"]),
        ("graph.a", "from pyg_glif.graph.search import _x", ["private '_x'"]),
        ("nn.a", "from pyg_glif.graph._b import x", ["private '_b'"]),
        ("nn.a", "from pyg_glif.extra import x", ["'extra', which has no rank"]),
        ("nn.a", "from pyg_glif import GLIFConv", ["imports the top level"]),
        ("nn.a", "from .b import x", ["imports relatively"]),
        ("nn.a", "import experiments.text", ["imports the experiments"]),
        ("nn.a", "import sklearn.cluster", ["loads 'sklearn.cluster'"]),
        ("nn.a", "if True:\n    from pandas import x", ["loads 'pandas'"]),
        ("nn.a", "class A:\n    import lightning", ["loads 'lightning'"]),
    ],
)
def test_the_reader_finds_faults(module: str, source: str, expected: list[str]) -> None:
    found = faults(source, f"{PACKAGE}.{module}")
    assert len(found) == len(expected), found
    for fault, text in zip(found, expected, strict=True):
        assert text in fault
