"""The page of full tables: what stands between its markers is generated from result files."""

from benchmarks.paths import HOME

PAGE = HOME.parent / "docs" / "reference" / "tables.md"


def write(name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- end of name -->``."""
    PAGE.write_text(replaced(PAGE.read_text(), name, text))


def replaced(page: str, name: str, text: str) -> str:
    """A page with a new text between two markers."""
    start, stop = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = page.split(start)
    _, after = rest.split(stop)
    return f"{before}{start}\n{text}\n\n{stop}{after}"


def number(value: float) -> str:
    """Four digits, without the leading zero."""
    return f"{value:.4f}".removeprefix("0")
