"""The figures of the README."""

from textwrap import fill

from benchmarks.figures.read import grades, load, recommendation, short, text_fit, texts
from benchmarks.figures.sections import PEERS

PAGE = "docs/reference/benchmarks.md"


def headlines() -> str:
    """Five lines, and where rankfold loses."""
    ours, theirs = (
        recommendation("rankfold-rg2", "gowalla"),
        max((recommendation(peer, "gowalla") for peer in PEERS), key=lambda pair: pair[1]),
    )
    at = load("speed/quadratic.json")["widths"]
    tuned = at["64"]["rg2 tuned"]
    grid = at["256"]["irspack grid / rg2 tuned"] * at["256"]["rg2 tuned"]
    run = load("scale/billion.json")["run"]
    yso, peer = "yso-finna-en", "pecos-documents"
    first = (texts("rankfold-siamesexml", yso, "P@1"), texts(peer, yso, "P@1"))
    seconds = (text_fit("rankfold-siamesexml", yso), text_fit(peer, yso))
    found = {who: grades(who, "fars", 0.01) for who in ("untuned-cba", "libauc-sopa", "lightgbm")}
    lost = {who: grades(who, "retinamnist", 0.01) for who in ("untuned-cba", "ce")}
    book = (
        recommendation("irspack", "amazon-book-kgat"),
        max(recommendation(f"rankfold-{who}", "amazon-book-kgat") for who in ("rg2", "blend")),
    )
    lines = [
        f"**Quality**: ndcg@20 {short(ours[1])} on gowalla by `rg2`, {short(theirs[1])} by the "
        "best tuned peer (implicit, irspack).",
        f"**Speed**: {tuned:.0f} CPU seconds to tune and fit `rg2` there, {grid:.0f} for "
        "irspack's grid.",
        f"**Scale**: {run['pairs'] / 1e9:.2f} billion pairs in {run['seconds']:.0f} seconds and "
        f"{run['peak_gib']['resident']:.1f} GiB on two cores (`rg2` without its tail).",
        f"**Texts**: P@1 {first[0]:.1f} for 25,366 labels in {seconds[0]:.0f} CPU seconds by "
        f"`siamesexml`, {first[1]:.1f} in {seconds[1]:.0f} by PECOS with label texts.",
        f"**Grades**: {100 * found['untuned-cba']:.0f} % of the cases found at 1 % false alarms "
        f"by `cba` on fars, {100 * found['libauc-sopa']:.0f} % by LibAUC, "
        f"{100 * found['lightgbm']:.0f} % by LightGBM.",
    ]
    where = []
    if lost["ce"] > lost["untuned-cba"]:
        where.append(
            f"On the 1,600 images of retinamnist cross-entropy finds more than `cba` "
            f"({100 * lost['ce']:.0f} % against {100 * lost['untuned-cba']:.0f} %)."
        )
    if book[0][0] > book[1][0]:
        where.append(
            f"irspack has the better recall on amazon-book ({short(book[0][0])} against "
            f"{short(book[1][0])})."
        )
    ratio = load("speed/contention-amd.json")["ials beside implicit"]["500000 pairs, width 128"]
    if ratio["ratio"][0] > 1:
        where.append(
            f"A whole fit of `ials` takes {ratio['ratio'][0]:.2f} times as long as implicit's."
        )
    linked = (f"- [{line[2:].replace('**', f']({PAGE})', 1)}" for line in lines)
    text = "\n".join(_wrapped(line, "  ") for line in linked)
    return f"{text}\n\n{_wrapped(f'**Where it loses.** {chr(32).join(where)}')}"


def _wrapped(text: str, indent: str = "") -> str:
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
