"""Pages from templates: self-contained HTML. Importing this needs the extra ``report``.

jinja2 escapes all text that comes from data; charts escape their own text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from rankfold.report import chart, formats, scales


def render(template: str, values: Mapping[str, Any]) -> str:
    """A template of this folder as HTML."""
    page = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {
        "number": formats.number,
        "signed": formats.signed,
        "p_value": formats.p_value,
        "duration": formats.duration,
        "size": formats.size,
        "count": formats.count,
        "setting": formats.setting,
        "sample": chart.sample,
        "shorten": scales.shorten,
    }
    style = {"light": chart.LIGHT, "dark": chart.DARK, "chart_css": chart.css()}
    return page.get_template(template).render({**style, **values})
