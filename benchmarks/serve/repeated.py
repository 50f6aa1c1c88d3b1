"""The cost of the second and later requests to a served model.

    python -m benchmarks.serve.repeated --label before|after [--seconds 6] [--home DIR]

Two models are built once in DIR. ``siamesexml`` has 300,000 words, 100,000 labels and width 256; it
is fitted for zero epochs, so its vectors are random. ``cba`` has 20 numeric and 4 categorical
columns and 5 grades. Both are measured with one thread, one text or one row per request:

- floor: the arithmetic alone, on tensors of the same shapes that are held in memory.
- Python: calls on a loaded model. The first call is reported separately.
- HTTP: ``rankfold serve`` on loopback, with 1 and 16 connections. The client is another process on
  the same machine. ``cpu_ms`` is the server's CPU time per request.

Texts and rows cycle through 64 different ones. Times are medians in milliseconds. The load average
is saved with them: on a busy machine, compare the CPU times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import polars as pl
import torch
from torch import Tensor, nn

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH

OUT = RESULTS / "serve"
FOLDER = SCRATCH / "serve_repeated"
WORDS, LABELS, WIDTH, K = 300_000, 100_000, 256, 10
DOCUMENTS, TITLES, TITLE_WORDS = 2000, 400, 10  # 5 documents per title: its word pairs are tokens
NUMBERS, CATEGORIES, LEVELS, GRADES, ROWS = 20, 4, 8, 5, 5000
DIFFERENT = 64  # texts and rows to send
CONNECTIONS = (1, 16)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--label", choices=("before", "after"), required=True)
    parser.add_argument("--seconds", type=float, default=6, help="per HTTP measurement")
    parser.add_argument("--home", type=Path, default=FOLDER)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(0)
    folders = {name: given.home / name for name in BUILD}
    for name, folder in folders.items():
        if not (folder / "manifest.json").exists():
            given.home.mkdir(parents=True, exist_ok=True)
            BUILD[name](folder)
    texts = [title(number) for number in rng.sample(range(TITLES), DIFFERENT)]
    rows = [random_row(rng) for _ in range(DIFFERENT)]
    result: dict[str, Any] = {"label": given.label, "load_before": os.getloadavg()}
    result["floor"] = {"texts": text_floor(), "rows": row_floor()}
    result["python"] = in_python(folders, texts, rows)
    searches = [encoded("/models/texts/search", {"text": text, "k": K}) for text in texts]
    grades = [encoded("/models/rows/grade", {"rows": [row]}) for row in rows]
    with serving(folders) as (port, process):
        result["http"] = {
            f"{name}, {n} conn.": drive(port, process, requests, n, given.seconds)
            for name, requests in (("texts", searches), ("rows", grades))
            for n in CONNECTIONS
        }
    result["load_after"] = os.getloadavg()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"repeated-{given.label}.json").write_text(json.dumps(result, indent=2) + "\n")
    print_table(result)


def title(number: int) -> str:
    """Ten adjacent words of the vocabulary."""
    return " ".join(f"w{TITLE_WORDS * number + place}" for place in range(TITLE_WORDS))


def build_texts(folder: Path) -> None:
    """Three words per label, 50 labels per document; no training."""
    source, table = folder.parent / "documents.jsonl", folder.parent / "labels.csv"
    labels = [f"l{i}" for i in range(LABELS)]
    tags = [labels[i::DOCUMENTS] for i in range(DOCUMENTS)]
    titles = [title(i % TITLES) for i in range(DOCUMENTS)]
    pl.DataFrame({"title": titles, "tags": tags}).write_ndjson(source)
    words = [f"w{3 * i} w{3 * i + 1} w{3 * i + 2}" for i in range(LABELS)]
    pl.DataFrame({"tag": labels, "text": words}).write_csv(table)
    data = rf.prepare(source, format="texts", candidate_texts=str(table))
    epochs = dict.fromkeys(("encoder_epochs", "classifier_epochs", "joint_epochs"), 0)
    mix = {"classifier_share": 0.5, "centroid_weight": 0.0, "popularity_weight": 0.0}
    rf.fit("siamesexml", data, width=WIDTH, out=folder, **epochs, **mix)


def random_row(rng: random.Random) -> dict[str, Any]:
    numbers = {f"n{i}": rng.gauss(0, 1) for i in range(NUMBERS)}
    return {**numbers, **{f"c{i}": f"level {rng.randrange(LEVELS)}" for i in range(CATEGORIES)}}


def build_rows(folder: Path) -> None:
    fit_rows("cba", folder, epochs=2)


def fit_rows(method: str, folder: Path, **settings: Any) -> None:
    rng = random.Random(1)
    rows = [random_row(rng) for _ in range(ROWS)]
    for row in rows:
        row["grade"] = min(GRADES - 1, max(0, int(row["n0"] + row["n1"] + rng.gauss(2, 0.5))))
    data = rf.prepare(pl.DataFrame(rows), format="features", grade_column="grade")
    rf.fit(method, data, out=folder, **settings)


BUILD: dict[str, Callable[[Path], None]] = {"texts": build_texts, "rows": build_rows}


def timed(call: Callable[[Any], Any], inputs: Sequence[Any], rounds: int = 5) -> dict[str, float]:
    """The first call, and medians of the later ones."""
    elapsed, cpu = [], []
    for one in list(inputs) * rounds:
        start, used = time.perf_counter(), time.process_time()
        call(one)
        cpu.append(1e3 * (time.process_time() - used))
        elapsed.append(1e3 * (time.perf_counter() - start))
    values = {"ms": median(elapsed[1:]), "cpu_ms": median(cpu[1:]), "first_ms": elapsed[0]}
    return {name: round(value, 3) for name, value in values.items()}


def text_floor() -> dict[str, float]:
    """Sum of the text's token vectors, product with all labels, top k."""
    tokens, labels = torch.randn(WORDS, WIDTH).half(), torch.randn(LABELS, WIDTH)

    def call(ids: Tensor) -> Any:
        vector = nn.functional.normalize(tokens[ids].float().sum(dim=0), dim=0)
        return (labels @ vector).topk(K)

    return timed(call, torch.randint(0, WORDS, (DIFFERENT, TITLE_WORDS)))


def row_floor() -> dict[str, float]:
    """The forward pass of a network of the same size: embeddings, two layers, a head."""
    size = 2 + LEVELS // 2
    levels = [nn.Embedding(LEVELS + 1, size) for _ in range(CATEGORIES)]
    first, second = nn.Linear(2 * NUMBERS + CATEGORIES * size, 256), nn.Linear(256, 64)
    head, numbers = nn.Linear(64, 1 + GRADES), torch.randn(1, 2 * NUMBERS)

    @torch.inference_mode()
    def call(places: Tensor) -> Any:
        parts = [table(place) for table, place in zip(levels, places, strict=True)]
        return head(second(first(torch.cat([numbers, *parts], dim=1)).relu()).relu())

    return timed(call, torch.randint(0, LEVELS, (DIFFERENT, CATEGORIES, 1)))


def in_python(
    folders: dict[str, Path], texts: list[str], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    model, grader = rf.load(folders["texts"]), rf.load(folders["rows"])
    assert isinstance(grader, rf.Grader)
    tables = [pl.DataFrame([row]) for row in rows]
    return {
        "search": timed(lambda text: model.search(text=[text], k=K), texts),
        "predict": timed(grader.predict, tables),
        "score": timed(grader.score, [grader.read(table).rows for table in tables]),
    }


@contextmanager
def serving(folders: dict[str, Path]) -> Iterator[tuple[int, int]]:
    """A server process: its port and its process id."""
    models = [f"{name}={folder}" for name, folder in folders.items()]
    words = ["serve", *models, "--port", "0", "--quiet", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rankfold", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = re.search(r"http://\S+:(\d+)", process.stdout.readline())
    assert address, "the server did not start"
    try:
        yield int(address[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def drive(
    port: int, process: int, requests: list[bytes], connections: int, seconds: float
) -> dict[str, Any]:
    """Each connection sends its next request when the last one is answered."""
    asyncio.run(load(port, requests, connections, 1.0))  # warm-up
    cpu, start = cpu_seconds(process), time.perf_counter()
    times = asyncio.run(load(port, requests, connections, seconds))
    elapsed, cpu = time.perf_counter() - start, cpu_seconds(process) - cpu
    cuts = quantiles(times, n=100, method="inclusive")
    values = {"ms": cuts[49], "p99_ms": cuts[98], "cpu_ms": cpu / len(times)}
    values = {name: round(1e3 * value, 3) for name, value in values.items()}
    return {**values, "per_second": round(len(times) / elapsed, 1), "requests": len(times)}


def encoded(path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def load(port: int, requests: list[bytes], connections: int, seconds: float) -> list[float]:
    """Seconds of every request; all must be answered with 200."""
    end, times = time.perf_counter() + seconds, []

    async def one(place: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(requests[place % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            answer = await reader.readexactly(int(size[1]) if size else 0)
            times.append(time.perf_counter() - start)
            if b" 200 " not in head[:16]:
                raise RuntimeError(f"expected status 200, got {head[:40]!r}: {answer[:200]!r}")
            place += 1
        writer.close()

    step = DIFFERENT // connections
    await asyncio.gather(*(one(number * step) for number in range(connections)))
    return times


def cpu_seconds(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def print_table(result: dict[str, Any]) -> None:
    columns = ("ms", "p99_ms", "cpu_ms", "per_second", "first_ms")
    print(" " * 24 + "".join(f"{name:>12}" for name in columns))
    for part in ("floor", "python", "http"):
        for name, one in result[part].items():
            cells = "".join(f"{one.get(column, ''):>12}" for column in columns)
            print(f"{part}, {name}".ljust(24) + cells)
    print("load average, before and after:", result["load_before"], result["load_after"])


if __name__ == "__main__":
    main()
