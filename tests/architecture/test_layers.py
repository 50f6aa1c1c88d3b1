"""Data flows one way: a module imports only from layers before its own."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "rankfold"
LAYERS = [
    "errors",
    "interrupts",
    "config",
    "notebook",
    "types",
    "storage",
    "distributed",
    "metrics",
    "data",
    "encoders",
    "kernels",
    "losses",
    "objectives",
    "samplers",
    "solvers",
    "training",
    "methods",
    "index",
    "models",
    "tasks",
    "sklearn",
    "report",
    "serve",
    "cli",
    "__main__",
]
DATA = [  # inside the layer of the same name
    "read",
    "build",
    "sources",
    "folder",
    "options",
    "inputs",
    "prepare",
]
RANK = {name: rank for rank, name in enumerate(LAYERS)}
TORCH_ONLY = {"losses", "kernels", "solvers", "training", "methods", "metrics", "objectives"} | {
    "samplers",
    "encoders",
}
TRAINING_IMPORTS = {"torch", "numpy", "rankfold"} | set(sys.stdlib_module_names)


def imported(node: ast.AST) -> list[str]:
    """The full names that an import statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    """Layer, path and tree of every module; parsed once."""
    result = []
    for path in SRC.rglob("*.py"):
        layer = path.relative_to(SRC).with_suffix("").parts[0]
        if layer != "__init__":
            result.append((layer, path, ast.parse(path.read_text())))
    return result


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer for layer, _, _ in modules()} <= set(LAYERS)


def test_imports_point_backwards() -> None:
    for layer, path, tree in modules():
        for node in ast.walk(tree):
            for name in imported(node):
                parts = name.split(".")
                if parts[0] == "rankfold" and parts[1] in RANK:
                    assert RANK[parts[1]] <= RANK[layer], f"{path}: {layer} imports {parts[1]}"


def test_inside_data_imports_point_backwards() -> None:
    rank = {name: number for number, name in enumerate(DATA)}
    for layer, path, tree in modules():
        if layer != "data" or path == SRC / "data" / "__init__.py":
            continue
        part = path.relative_to(SRC / "data").with_suffix("").parts[0]
        for node in ast.walk(tree):
            for name in imported(node):
                if name.startswith("rankfold.data."):
                    target = name.split(".")[2]
                    assert rank[target] <= rank[part], f"{path}: {part} imports {target}"


def test_training_imports_only_torch_and_numpy() -> None:
    for layer, path, tree in modules():
        if layer in TORCH_ONLY:
            for node in tree.body:
                for name in imported(node):
                    assert name.split(".")[0] in TRAINING_IMPORTS, f"{path} imports {name}"


def test_training_does_not_need_polars() -> None:
    """Indirect imports count too: methods load without polars, faiss and typer."""
    hide = "import sys; sys.modules.update(dict.fromkeys(('polars', 'faiss', 'typer', 'rich')))"
    code = f"{hide}; import rankfold.methods, rankfold.losses, rankfold.training.checkpoint"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_import_is_light() -> None:
    heavy = "[name for name in ('torch', 'polars') if name in sys.modules]"
    code = f"import rankfold, rankfold.cli, sys; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs the list of threads of Linux"
)
def test_imports_compute_nothing_with_polars() -> None:
    """Its threads do not survive a fork: a process forked after them waits for ever."""
    threads = (
        "[open(f'/proc/self/task/{one}/comm').read() for one in os.listdir('/proc/self/task')]"
    )
    code = f"import os, rankfold.tasks.fit, rankfold.data.prepare; print({threads})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "polars-0" not in done.stdout
