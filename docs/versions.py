"""Adds the built site to a folder of all versions, and lets a reader choose among them.

    python docs/versions.py site public    # public/0.1.0/, and public/index.html, the newest

The folder can be put on any web server, or be opened as files.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

LIST = re.compile(r"^const versions = \[.*\];$", re.MULTILINE)


def publish(site: Path, public: Path, version: str) -> None:
    """Copy the site, and write the list of versions into every one of them."""
    shutil.rmtree(public / version, ignore_errors=True)
    shutil.copytree(site, public / version)
    scripts = public.glob("*/assets/versions.js")
    versions = sorted((path.parents[1].name for path in scripts), key=_order, reverse=True)
    for name in versions:
        script = public / name / "assets/versions.js"
        text = script.read_text(encoding="utf-8")
        script.write_text(LIST.sub(f"const versions = {json.dumps(versions)};", text), "utf-8")
    newest = next((name for name in versions if "dev" not in name), versions[0])
    forward = f'<meta http-equiv="refresh" content="0; url={newest}/index.html">'
    (public / "index.html").write_text(f"<!doctype html>\n{forward}\n", encoding="utf-8")


def _order(version: str) -> tuple[list[int], bool]:
    """Numbers in order; a development version comes before its release."""
    release = version.partition(".dev")[0]
    return [int(number) for number in re.findall(r"\d+", release)], "dev" not in version


if __name__ == "__main__":
    from rankfold import __version__

    publish(Path(sys.argv[1]), Path(sys.argv[2]), __version__)
