"""The files of the page: content policy and contrast."""

import re
from importlib import resources


def files(ending: str) -> dict[str, str]:
    home = resources.files("rankfold.serve") / "page"
    texts = {
        entry.name: entry.read_text() for entry in home.iterdir() if entry.name.endswith(ending)
    }
    assert texts
    return texts


def test_the_files_respect_the_content_policy() -> None:
    for name, text in files(".html").items():
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?:", text), name
    for name, text in files(".js").items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
        ), name
        assert not re.search(r"localStorage|sessionStorage|cookie", text), name


def test_colours_have_enough_contrast() -> None:
    [css] = files(".css").values()
    blocks = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    assert len(blocks) == 2  # light and dark
    for block in blocks:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for ground in ("paper", "band"):
            for ink in ("ink", "soft", "good", "bad", "link"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
            assert contrast(colours["edge"], colours[ground]) >= 3, ground  # of fields
        assert contrast(colours["on-link"], colours["link"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
