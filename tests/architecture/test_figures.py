"""The benchmarks page, its charts and the README's figures are those of the result files."""

from pathlib import Path

from benchmarks.figures.__main__ import files

ROOT = Path(__file__).parents[2]


def test_pages_and_charts_agree_with_the_results() -> None:
    stale = [path.name for path, text in files(today="today").items() if path.read_text() != text]
    assert stale == [], f"run `python -m benchmarks.figures`, it rewrites {', '.join(stale)}"


def test_readme_is_short_and_says_where_it_loses() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 120
    assert "**Where it loses.**" in readme
