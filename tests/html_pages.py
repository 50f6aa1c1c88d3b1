"""A page of HTML, read strictly."""

from html.parser import HTMLParser

EVIL = "<script>alert('x')</script>"
_VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Elements in order; a tag that is not closed where it should be is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["title"], ["desc"]):
            self.words += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def flat(self) -> str:
        return " ".join(self.words.split())
