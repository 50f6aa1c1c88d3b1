"""Looks at the built site with headless Chromium, and reports what a reader would stumble over.

    python docs/look.py site            # every page, at 1280 and 390 pixels
    python docs/look.py site pictures   # the same, and pictures of some pages

Reported: messages on the console, pages wider than the window, text with a contrast below 4.5 (3
if it is large), images that are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZES = ((1280, 900), (390, 844))
PICTURES = (
    "index", "tutorials/recommender", "guide/filter", "methods/rg2", "reference/python",
    "reference/benchmarks", "methods/choose",
)  # fmt: skip
SCRIPT = """
const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const lum = c => c.slice(0, 3).map(light)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const over = (top, under) => {
  const a = top.length > 3 ? top[3] : 1;
  return [0, 1, 2].map(i => a * top[i] + (1 - a) * under[i]);
};
const ground = element => {
  const layers = [];
  for (let e = element; e; e = e.parentElement)
    layers.push(rgb(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
};
const found = [];
for (const e of document.querySelectorAll('.md-content *, .md-tabs *, .md-footer *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (!own || !box.width || style.visibility === 'hidden' || style.opacity === '0') continue;
  if (e.closest('svg, .headerlink, .md-clipboard')) continue;
  const back = ground(e), ink = over(rgb(style.color), back);
  const [hi, lo] = [lum(ink), lum(back)].sort((a, b) => b - a), ratio = (hi + .05) / (lo + .05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5))
    found.push(`${ratio.toFixed(2)} ${e.tagName} ${e.textContent.trim().slice(0, 30)}`);
}
const broken = [...document.images].filter(i => i.complete && !i.naturalWidth && i.offsetParent)
  .map(i => i.src);
const root = document.documentElement;
return {wide: root.scrollWidth - innerWidth, contrast: [...new Set(found)].slice(0, 6), broken};
"""


def main(site: Path, *, pictures: bool) -> int:
    """Look at every page; 1 if something is wrong."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 "--disable-dev-shm-usage", "--allow-file-access-from-files"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    bad = 0
    try:
        for scheme in ("light", "dark"):
            for width, height in SIZES:
                driver.execute_cdp_cmd(
                    "Emulation.setDeviceMetricsOverride",
                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
                )
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
                for page in sorted({*site.rglob("*.html")} - {site / "404.html"}):
                    name = page.relative_to(site).with_suffix("").as_posix()
                    for trouble in _look(driver, page):
                        bad += 1
                        sys.stdout.write(f"{name} {width} {scheme}: {trouble}\n")
                    if pictures and name in PICTURES:
                        file = f"{name.replace('/', '-')}-{width}-{scheme}.png"
                        driver.save_screenshot(str(site / file))
    finally:
        driver.quit()
    sys.stdout.write(f"{bad} troubles\n")
    return int(bad > 0)


def _look(driver: Any, page: Path) -> Sequence[str]:
    driver.get(page.resolve().as_uri())
    result = driver.execute_script(SCRIPT)
    troubles = [f"contrast {one}" for one in result["contrast"]]
    troubles += [f"missing image {one}" for one in result["broken"]]
    if result["wide"] > 0:
        troubles.append(f"{result['wide']} pixels wider than the window")
    return [*troubles, *(f"console {entry['message']}" for entry in driver.get_log("browser"))]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), pictures=sys.argv[2:] == ["pictures"]))
