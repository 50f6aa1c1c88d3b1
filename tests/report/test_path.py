"""The picture of a path: a line for each pair of exponents and threshold, the kept point marked."""

from xml.etree import ElementTree

from rankfold.report.path import path_svg

SVG = "{http://www.w3.org/2000/svg}"


def entry(
    e: float, beta: float, rank: int, threshold: float, discount: float, score: float
) -> dict:
    return {
        "query_exponent": e,
        "candidate_exponent": beta,
        "rank": rank,
        "threshold": threshold,
        "discount": discount,
        "score": score,
        "error": 0.01,
    }


def test_every_line_and_the_kept_point_are_drawn() -> None:
    path = [
        entry(e, beta, rank, threshold, 0.2, score=0.1 + 0.01 * rank + beta - 0.1 * threshold)
        for e, beta in ((-0.5, 0.0), (-0.375, 0.35))
        for rank in (4, 8)
        for threshold in (0.0, 0.5)
    ]
    kept = entry(-0.375, 0.35, 8, 0.0, 0.1, score=0.6)
    root = ElementTree.fromstring(path_svg([*path, kept], kept, "ndcg@10"))
    lines = [line.get("points", "").split() for line in root.iter(f"{SVG}polyline")]
    assert [len(line) for line in lines] == [2] * 4
    xs = [[float(point.split(",")[0]) for point in line] for line in lines]
    assert all(x[0] < x[1] for x in xs)
    heights = [float(line[1].split(",")[1]) for line in lines]
    assert heights[2] == min(heights)  # the best score stands highest: y counts downwards
    (ring,) = root.iter(f"{SVG}circle")
    assert float(ring.get("cy", "")) < heights[2]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "exponents -0.5, 0 (plain)" in texts
    assert "kept, discount 0.1: 0.6000" in texts
    assert {"4", "8", "rank"} <= set(texts)


def test_one_score_for_all_is_drawn_too() -> None:
    path = [entry(-0.5, 0.0, rank, 0.0, 0.2, score=0.0) for rank in (1, 2)]
    assert "nan" not in path_svg(path, path[0], "ndcg@10")
