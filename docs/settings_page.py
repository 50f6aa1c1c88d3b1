"""The page "Settings" of the site: generated from the declared settings when the site is built."""

from __future__ import annotations

from typing import Any

from rankfold.config import describe_values, list_settings
from rankfold.methods import METHODS
from rankfold.tasks.diagnose import DIAGNOSES


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the files of mkdocs."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def settings_page() -> str:
    """A section per method and per diagnosis, with a table of its settings."""
    head = "# Settings\n\n    rankfold fit rg2 data --out model --set width=128\n\n"
    head += "Every setting of every method (see also `rankfold methods NAME`) and diagnosis.\n"
    methods = [
        _section(name, f"{one.summary[0].upper()}{one.summary[1:]}.", one.config)
        for name, one in METHODS.items()
    ]
    diagnoses = [
        _section(f"diagnose {name}", one.summary, one.config) for name, one in DIAGNOSES.items()
    ]
    return "\n".join([head, *methods, *diagnoses])


def _section(name: str, summary: str, config: type[Any]) -> str:
    return "\n".join([f"## {name}", "", summary, "", *settings_table(config), ""])


def settings_table(config: type[Any]) -> list[str]:
    """A row per setting, with its default as on the command line."""
    rows = [
        f"| `{key}` | {_written(default)} | {describe_values(config, key)} | {declared.help} |"
        for key, default, declared in list_settings(config)
    ]
    return ["| setting | default | values | meaning |", "|---|---|---|---|", *rows] if rows else []


def _written(default: Any) -> str:
    return f"{default}".lower() if default is None or isinstance(default, bool) else f"{default}"
