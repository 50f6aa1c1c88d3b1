"""The documentation: generated pages are complete, links lead somewhere, examples run."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import rankfold as rf
from rankfold import __version__
from rankfold.cli import COMMANDS
from rankfold.config import declarations
from rankfold.losses import LOSSES
from rankfold.methods import METHODS
from rankfold.metrics import METRICS
from rankfold.metrics.graded import GRADED_METRICS
from rankfold.samplers import SAMPLERS
from rankfold.tasks.diagnose import DIAGNOSES

ROOT = Path(__file__).parents[2]
DOCS, SOURCE = ROOT / "docs", ROOT / "src"
GENERATED = ("reference/settings.md",)  # by docs/settings_page.py, which has a test


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    """The modules of ``docs/``, which is no package."""
    sys.path.insert(0, str(DOCS))
    try:
        names = (
            "blocks",
            "versions",
            "command_page",
            "departures_page",
            "http_page",
            "method_pages",
        )
        more = ("notebooks", "python_page", "sampler_page", "samples")
        return {name: __import__(name) for name in (*names, *more)}
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def generated(parts: dict[str, Any]) -> dict[str, str]:
    return {
        **parts["method_pages"].pages(),
        **parts["notebooks"].notebooks(DOCS / "tutorials"),
        "reference/commands.md": parts["command_page"].page(),
        "reference/departures.md": parts["departures_page"].page(),
        "reference/http.md": parts["http_page"].page(),
        "reference/python.md": parts["python_page"].page(),
        "reference/samplers.md": parts["sampler_page"].page(),
    }


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_page_with_advice_and_settings(name: str, parts: dict[str, Any]) -> None:
    page = parts["method_pages"].page(name)
    assert "**When:**" in page, f"say when to use {name} in docs/methods/advice.toml"
    assert "**When not:**" in page, f"say when not to use {name} in docs/methods/advice.toml"
    assert all(f"| `{key}` |" in page for key in declarations(METHODS[name].config))


def test_advice_is_for_methods_that_exist(parts: dict[str, Any]) -> None:
    assert parts["method_pages"].advice().keys() <= METHODS.keys()


def test_reference_names_everything(generated: dict[str, str]) -> None:
    commands, http = generated["reference/commands.md"], generated["reference/http.md"]
    assert all(f"\n## {name}\n" in commands for name in COMMANDS)
    assert all(f" /{path}\n" in http for path in ("search", "grade", "keys", "card", "metrics"))
    losses, metrics = (DOCS / f"reference/{name}.md" for name in ("losses", "metrics"))
    assert [name for name in LOSSES if f"`{name}`" not in losses.read_text()] == []
    named = metrics.read_text()
    assert [name for name in METRICS if f"`{name}" not in named] == []
    assert [name for name in GRADED_METRICS if f"`{name}" not in named] == []
    assert all(f"\n## {name}\n" in generated["reference/samplers.md"] for name in SAMPLERS)
    python = generated["reference/python.md"]
    assert [name for name in rf.__all__ if f"`{name}`" not in python] == ["__version__"]


def test_departures_are_those_of_the_docstrings(generated: dict[str, str]) -> None:
    words = re.compile("Departs from the (?:paper|release)")
    stated = sum(len(words.findall(path.read_text())) for path in SOURCE.rglob("*.py"))
    assert generated["reference/departures.md"].count("\n| `") == stated > 5


@pytest.mark.parametrize("name", DIAGNOSES)
def test_diagnosis_has_a_section_with_its_picture_and_an_answer(name: str) -> None:
    page = (DOCS / "reference/diagnoses.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    for suffix in ("", "-dark"):
        assert f"../figures/diagnose-{name}{suffix}.svg" in section
        assert (DOCS / f"figures/diagnose-{name}{suffix}.svg").exists()
    assert f"<!-- answer: {name} -->\n> " in section
    guide = (DOCS / "guide/diagnose.md").read_text(encoding="utf-8")
    assert f"[{name}](../reference/diagnoses.md#{name})" in guide


def test_error_messages_are_those_of_the_code() -> None:
    """Each part of a message between its dots occurs in the source, as one string."""
    source = " ".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings that go on in the next line
    page = (DOCS / "guide/errors.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    parts = [part.strip() for message in messages for part in message.split("...")]
    assert len(messages) > 20
    assert [part for part in parts if part not in source] == []


def test_links_lead_to_pages_and_sections(generated: dict[str, str]) -> None:
    pages = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
    texts = {**pages, **generated}
    made = (*GENERATED, "reference/python.md")  # other tools give these pages their sections
    sections = {name: _sections(text) for name, text in texts.items() if name not in made}
    broken = []
    for name, text in texts.items():
        if name.endswith(".ipynb"):
            continue
        for link, section in re.findall(
            r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", text
        ):
            target = (DOCS / name).parent / link if link else DOCS / name
            inside = target.resolve().relative_to(ROOT).as_posix().removeprefix("docs/")
            missing = inside not in texts and inside not in made and not target.exists()
            if missing or (section and section not in sections.get(inside, {section})):
                broken.append(f"{name}: {link}#{section}")
    assert broken == []


def _sections(text: str) -> set[str]:
    """The anchors that mkdocs gives to the headings of a page."""
    plain = (re.sub(r"[^\w\s-]", "", line).strip() for line in re.findall(r"^#+ (.+)$", text, re.M))
    return {re.sub(r"[-\s]+", "-", line.lower()) for line in plain}


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    pages = (path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    kept = [page for page in pages if not page.startswith(("decisions/", "gallery/"))]
    assert [page for page in kept if page not in nav] == []


def test_blocks_that_do_not_run_say_why(parts: dict[str, Any]) -> None:
    assert all(len(reason) > 8 for _, reason in parts["blocks"].skipped())


def test_examples_of_the_home_page_run(parts: dict[str, Any], tmp_path: Path) -> None:
    parts["samples"].tables(tmp_path)
    assert parts["blocks"].run_page(DOCS / "index.md", tmp_path, ["python"]) == ""


def test_a_broken_example_is_noticed(parts: dict[str, Any], tmp_path: Path) -> None:
    for text in ("```python\n1 / 0\n```", "```sh\nfalse\n```"):
        page = tmp_path / "page.md"
        page.write_text(f"# Page\n\n{text}\n")
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert "line 3" in parts["blocks"].run_page(page, tmp_path / "empty")


def test_versions_of_the_site_know_each_other(parts: dict[str, Any], tmp_path: Path) -> None:
    script = (DOCS / "assets/versions.js").read_text(encoding="utf-8")
    for version in ("0.9.0", "0.10.0", "0.11.0.dev1", "0.10.0"):
        (tmp_path / "site/assets").mkdir(parents=True, exist_ok=True)
        (tmp_path / "site/assets/versions.js").write_text(script, encoding="utf-8")
        parts["versions"].publish(tmp_path / "site", tmp_path / "public", version)
    for version in ("0.9.0", "0.10.0", "0.11.0.dev1"):
        text = (tmp_path / "public" / version / "assets/versions.js").read_text(encoding="utf-8")
        assert 'const versions = ["0.11.0.dev1", "0.10.0", "0.9.0"];' in text
    assert "url=0.10.0/" in (tmp_path / "public/index.html").read_text(encoding="utf-8")


def test_citation_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_tests_of_the_reliability_page_exist() -> None:
    page = (DOCS / "reference" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/]*test_\w+\.py)`", page)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


SHELL_ONLY = ("guide/deploy.md", "tutorials/machines.md", "concepts/scale.md")  # scripts, torchrun
NOT_IN_PYTHON = ("--card", "--track", "--import")
COMMANDS_OF_BOTH = (
    "prepare|fit|evaluate|search|predict|tune|compare|blend|export|add|extend|diagnose"
)


@pytest.mark.parametrize("folder", ["guide", "tutorials", "concepts", "methods"])
def test_commands_stand_beside_their_python(folder: str, parts: dict[str, Any]) -> None:
    """A block of commands that Python has too is one of two tabs."""
    alone = [
        f"{path.name}:{block.first}"
        for path in sorted((DOCS / folder).glob("*.md"))
        if f"{folder}/{path.name}" not in SHELL_ONLY
        for block in parts["blocks"].read_blocks(path.read_text(encoding="utf-8"))
        if block.language == "sh" and not block.indent
        if re.match(rf"rankfold ({COMMANDS_OF_BOTH}) ", block.text)
        if not any(option in block.text for option in NOT_IN_PYTHON)
    ]
    assert alone == []
