"""The folders that the benchmark programs read and write."""

from pathlib import Path

HOME = Path(__file__).parent.resolve()
RESULTS = HOME / "results"  # in git; mirrors the folders of the programs
SCRATCH = HOME / "scratch"  # ignored by git: prepared data, arrays, environments of peers
SHARED = HOME.parents[1] / "shared" / "data"  # default of --data: the public sets, as downloaded
