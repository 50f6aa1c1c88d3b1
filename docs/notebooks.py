"""The tutorials as notebooks: their text and their Python and shell blocks, as they stand."""

import json
from pathlib import Path
from typing import Any

from blocks import read_blocks


def notebooks(folder: Path) -> dict[str, str]:
    """Path and text of a notebook for each tutorial."""
    pages = (path for path in sorted(folder.glob("*.md")) if path.stem != "index")
    return {f"tutorials/{path.stem}.ipynb": notebook(path.read_text()) for path in pages}


def notebook(page: str) -> str:
    """A page as a notebook. Every block that runs becomes a cell; the rest is text."""
    cells: list[dict[str, Any]] = []
    lines, at = page.splitlines(), 0
    for block in read_blocks(page):
        if not block.runs or block.indent:
            continue
        _text(cells, lines[at : block.first - 1])
        code = block.text if block.language == "python" else f"%%bash\n{block.text}"
        cells.append({"cell_type": "code", "metadata": {}, "source": code,
                      "execution_count": None, "outputs": []})  # fmt: skip
        at = block.last
    _text(cells, lines[at:])
    meta = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    document = {"nbformat": 4, "nbformat_minor": 4, "metadata": meta, "cells": cells}
    return json.dumps(document, indent=1)


def _text(cells: list[dict[str, Any]], lines: list[str]) -> None:
    text = "\n".join(line for line in lines if not line.startswith("<!--")).strip()
    if text:
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
