"""The plan of ``export``, after its checks."""

from pathlib import Path
from typing import Any

from rankfold.models.load import load_ranker
from rankfold.tasks.dry_run import outline
from rankfold.tasks.export import check_export


def outline_export(
    model: Path, out: Path, *, format: str, data: Path | None, **files: bool
) -> dict[str, Any]:
    """Check an export and outline it; the arguments are those of ``export``."""
    ranker = load_ranker(model)
    sides, size = check_export(ranker, out, format)
    work: dict[str, Any] = {
        "method": ranker.model.method,
        "format": format,
        "width": sides["candidate"].width,
        **{f"{side} vectors": len(vectors.keys) for side, vectors in sides.items()},
        "also": ", ".join(name for name, wanted in files.items() if wanted),
    }
    memory = sum(tensor.nbytes for tensor in ranker.model.tensors.values())
    reads = [path for path in (model, data) if path is not None]
    return outline("export", work, reads, {out: size}, memory=memory)
