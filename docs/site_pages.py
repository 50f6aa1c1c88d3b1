"""The pages of the site that are generated from the code: methods, commands, HTTP, samplers.

mkdocs calls ``on_config`` and ``on_files``. ``docs/settings_page.py`` adds the page of settings.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads a hook without its folder

import command_page
import departures_page
import http_page
import method_pages
import notebooks
import python_page
import sampler_page

from rankfold import __version__

WORKER = "https://unpkg.com/iframe-worker/shim"
QUERY = "e=ce(e),!e)"  # in the worker of Material for MkDocs that searches
WEIGHTS = {  # of pages in a search; the first that a path starts with
    "guide/questions": 2.0,
    "guide/errors": 1.5,
    "guide/": 1.5,
    "methods/choose": 1.5,
    "methods/": 1.2,
    "reference/settings": 0.2,
    "reference/tables": 0.2,
    "reference/processes": 0.2,
    "reference/": 0.7,
    "decisions/": 0.1,
    "gallery/": 0.1,
}


def on_config(config: Any) -> Any:
    """Add the methods to the navigation, and the version to the foot of every page."""
    config.copyright = f"rankfold {__version__} · Apache-2.0"
    methods = next(entry["Methods"] for entry in config.nav if "Methods" in entry)
    methods.append({"All methods": method_pages.navigation()})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of mkdocs."""
    from mkdocs.structure.files import File

    pages = {
        **method_pages.pages(),
        "reference/commands.md": command_page.page(),
        "reference/departures.md": departures_page.page(),
        "reference/http.md": http_page.page(),
        "reference/python.md": python_page.page(),
        "reference/samplers.md": sampler_page.page(),
        **notebooks.notebooks(Path(config.docs_dir) / "tutorials"),
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    """Guides come before reference in a search, and decisions last."""
    del markdown, config, files
    path = page.file.src_uri
    weight = next((WEIGHTS[start] for start in WEIGHTS if path.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": weight})


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Take the worker that searches offline pages from the site; keep options in one line."""
    del config
    here = "../" * page.url.count("/")
    output = re.sub(r"<code>(--[\w-]+)</code>", r'<code class="option">\1</code>', output)
    return output.replace(WORKER, f"{here}assets/iframe-worker.js")


def on_post_build(config: Any) -> None:
    """Searches leave out the small words of a question (``assets/search_words.js``)."""
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.min.js")
    text = worker.read_text(encoding="utf-8")
    if text.count(QUERY) != 1:
        raise RuntimeError(f"{worker.name} is another version: find where it changes the query")
    words = (Path(config.docs_dir) / "assets/search_words.js").read_text(encoding="utf-8")
    worker.write_text(f"{words}\n{text.replace(QUERY, 'e=words(ce(e)),!e)')}", encoding="utf-8")
