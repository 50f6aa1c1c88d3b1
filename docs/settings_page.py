"""The page "Settings" of the site: generated from the declared settings when the site is built."""

from __future__ import annotations

from typing import Any

from rankfold.config import describe_values, list_settings
from rankfold.methods import METHODS


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the files of mkdocs."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def settings_page() -> str:
    """A section per method, with a table of its settings."""
    head = "# Settings\n\n    rankfold fit rg2 data --out model --set width=128\n\n"
    head += "Every setting of every method. `rankfold methods NAME` prints the same.\n"
    return head + "".join(f"\n{_section(name)}" for name in METHODS)


def _section(name: str) -> str:
    method = METHODS[name]
    lines = [f"## {name}", "", f"{method.summary[0].upper()}{method.summary[1:]}.", ""]
    rows = [
        f"| `{key}` | {default} | {describe_values(method.config, key)} | {declared.help} |"
        for key, default, declared in list_settings(method.config)
    ]
    if rows:
        lines += ["| setting | default | values | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)
