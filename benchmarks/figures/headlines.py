"""The figures of the README."""

from textwrap import fill

from benchmarks.figures.read import grades, load, recommendation, short, text_fit, texts
from benchmarks.figures.sections import PEERS, UNSEEN, table
from rankfold.tasks.compare.published import PUBLISHED

PAGE = "docs/reference/benchmarks.md"


def headlines() -> str:
    """Five rows, and where rankfold loses."""
    ours, theirs = (
        recommendation("rankfold-rg2", "gowalla"),
        max((recommendation(peer, "gowalla") for peer in PEERS), key=lambda pair: pair[1]),
    )
    speed = load("speed/quadratic.json")["widths"]["256"]
    tuned = speed["rg2 tuned"]
    grids = [tuned * speed[f"{peer} grid / rg2 tuned"] for peer in PEERS]
    run = load("scale/billion.json")["run, tail=neighbours"]
    yso, peer = "yso-finna-en", "pecos-documents"
    first = (texts("rankfold-siamesexml", yso, "P@1"), texts(peer, yso, "P@1"))
    seconds = (text_fit("rankfold-siamesexml", yso), text_fit(peer, yso))
    found = {who: grades(who, "fars", 0.01) for who in ("untuned-cba", "libauc-sopa", "lightgbm")}
    lost = {who: grades(who, "retinamnist", 0.01) for who in ("untuned-cba", "ce")}
    book = (
        recommendation("irspack", "amazon-book-kgat"),
        max(recommendation(f"rankfold-{who}", "amazon-book-kgat") for who in ("rg2", "blend")),
    )
    rows = [
        ["ndcg@20 on gowalla, best width up to 512", f"`rg2` {short(ours[1])}",
         f"{short(theirs[1])}: implicit and irspack, tuned"],
        ["to tune and fit there at width 256", f"`rg2` {tuned:.0f} CPU s",
         " and ".join(f"{s:.0f}" for s in grids) + f" CPU s: grids of {' and '.join(PEERS)}"],
        [f"a fit of {run['pairs'] / 1e9:.2f} billion pairs",
         f"`rg2` {run['seconds'] / 60:.0f} minutes, {run['peak_gib']['resident']:.1f} GiB", ""],
        ["top label correct, of 25,366 (yso-finna-en)",
         f"`siamesexml` {first[0]:.1f} % in {seconds[0]:.0f} CPU s",
         f"{first[1]:.1f} % in {seconds[1]:.0f} CPU s: PECOS with label texts"],
        ["cases flagged at 1 % false alarms (fars)", f"`cba` {100 * found['untuned-cba']:.0f} %",
         f"{100 * found['libauc-sopa']:.0f} %: LibAUC; "
         f"{100 * found['lightgbm']:.0f} %: LightGBM"],
    ]  # fmt: skip
    rows_of = PUBLISHED["lightgcn"]["gowalla"].rows.values()
    published, name = max((values[1], who) for one in rows_of for who, values in one.items())
    where = [
        f"{name}'s published ndcg@20 on gowalla is {short(published)}. If most items are new and "
        "have few pairs, [`ials` can be better](docs/decisions/0046-race-of-the-tail.md) than "
        "`rg2`.",
        UNSEEN.replace(" (`benchmarks/quality/unseen.py`)", ""),
    ]
    if first[1] > first[0]:
        where.append(
            f"PECOS has the better first label on {yso} ({first[1]:.1f} % against "
            f"{first[0]:.1f} %)."
        )
    if lost["ce"] > lost["untuned-cba"]:
        where.append(
            f"On the 1,600 images of retinamnist cross-entropy flags more cases than `cba` "
            f"({100 * lost['ce']:.0f} % against {100 * lost['untuned-cba']:.0f} %)."
        )
    if book[0][0] > book[1][0]:
        where.append(
            f"irspack has the better recall@20 on amazon-book-kgat ({short(book[0][0])} against "
            f"{short(book[1][0])})."
        )
    ratio = load("speed/contention-amd.json")["ials beside implicit"]["500000 pairs, width 128"]
    if ratio["ratio"][0] > 1:
        where.append(
            f"A whole fit of `ials` takes {ratio['ratio'][0]:.2f} times as long as implicit's."
        )
    lost = fill(f"**Where it loses.** {' '.join(where)}", 100)
    return f"{table([f'[measured]({PAGE})', 'rankfold', 'compared with'], rows)}\n\n{lost}"
