"""The page of all figures: its tables between markers are generated from the result files."""

from benchmarks.paths import HOME

PAGE = HOME.parent / "docs" / "reference" / "benchmarks.md"


def write(name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- end of name -->``."""
    start, stop = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = PAGE.read_text().split(start)
    _, after = rest.split(stop)
    PAGE.write_text(f"{before}{start}\n{text}\n\n{stop}{after}")


def number(value: float) -> str:
    """Four digits, without the leading zero."""
    return f"{value:.4f}".removeprefix("0")
