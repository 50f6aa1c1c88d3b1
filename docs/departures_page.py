"""The page "Departures from the papers": collected from the docstrings that state them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1] / "src" / "rankfold"
HEAD = """# Departures from the papers

Where the code differs from the paper that it cites, its docstring says so. This page collects these
statements. [Papers](papers.md) has the keys, each [method](../methods/choose.md) its formula.

- **`rg2`** adds weights of candidates, a popularity discount and [a sparse
  tail](../concepts/quadratic.md#the-tail-of-rg2) to the paper's objective, which is `rg2-plain`.
- **`siamesexml`** has a plain encoder, one pool of negatives per batch and [one vector per
  label](../concepts/texts.md#the-answer); `siamesexml-paper` is the paper's description.
- **`cba`** adds [classes, direct ranks and a narrow
  Gaussian](../concepts/grades.md#what-rankfold-adds) to the paper's loss.
- **`ease`** normalises its pairs and relaxes its diagonal; exponents and `diagonal` of 0 are the
  paper's.

| where | departs |
|---|---|
"""


def page() -> str:
    """A row per statement."""
    return HEAD + "\n".join(f"| `{place}` | {text} |" for place, text in statements()) + "\n"


def statements() -> Iterator[tuple[str, str]]:
    """The place of each docstring with such a statement, and the statement."""
    for path in sorted(HOME.rglob("*.py")):
        module = path.relative_to(HOME).with_suffix("").as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            text = ast.get_docstring(node) or ""
            found = re.search(r"Departs from the (?:paper|release)[:,] (.*?)(?:\n\n|$)", text, re.S)
            if found:
                name = "" if isinstance(node, ast.Module) else f".{node.name}"
                yield module.removesuffix(".__init__") + name, " ".join(found[1].split())
