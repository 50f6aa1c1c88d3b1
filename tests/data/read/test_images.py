"""Folders of images, and image files."""

from pathlib import Path

import numpy as np
import pytest
from graded_samples import SPLITS, write_images

from rankfold.data.prepare import prepare
from rankfold.errors import UserError


def test_a_folder_of_images(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "notes.txt").write_text("not an image")
    (home / "0" / ".DS_Store").write_text("hidden")
    data = prepare(home, format="features", image_size=4)
    assert data.summary["images"] == [4, 4, 3]
    assert data.summary["grade_names"] == ["0", "1", "2"]
    assert data.summary["dropped"] == [
        {"why": "a file that is not an image", "rows": 1, "first": ["eyes/0/notes.txt"]}
    ]
    seen = []
    for name in SPLITS:
        part = data.graded(name)
        assert part.images is not None
        blue = part.images[:, 0, 0, 2].long()
        assert (part.images[..., 2] == blue[:, None, None]).all()
        assert part.images[..., :2].sum() == 0
        assert (blue // 80).tolist() == part.grades.tolist()
        seen += blue.tolist()
    assert sorted(seen) == [80 * g + n for g in range(3) for n in range(10)]


def test_images_by_paths_are_those_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grades are the names of folders; one image in colour puts all in colour."""
    from PIL import Image

    home = write_images(tmp_path / "eyes", "L")
    Image.new("RGB", (9, 7), (0, 0, 3)).save(home / "0" / "3.png")
    whole = prepare(home, format="features", image_size=4)
    monkeypatch.chdir(tmp_path)
    files = sorted(home.rglob("*.png"))
    mixed = [
        file.relative_to(tmp_path) if number % 2 else file for number, file in enumerate(files)
    ]
    globs = [f"eyes/{grade}/*.png" for grade in range(3)]
    for inputs in (files, mixed, ["eyes/*/*.png"], globs):
        result = prepare(*inputs, format="features", image_size=4)
        assert result.fingerprint == whole.fingerprint
    parts = prepare(train="eyes/*/[0-7].png", test=files, format="features", image_size=4)
    assert parts.summary["test"]["grades"] == [10, 10, 10]


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_grey_images_have_one_channel(mode: str, channels: int, tmp_path: Path) -> None:
    data = prepare(write_images(tmp_path / "eyes", mode), format="features")
    assert data.summary["images"] == [64, 64, channels]


@pytest.mark.parametrize("kind", ["png", "pgm", "tif"])
def test_images_of_16_bits_keep_their_order(kind: str, tmp_path: Path) -> None:
    from PIL import Image

    for grade in range(2):
        (tmp_path / "eyes" / str(grade)).mkdir(parents=True)
        for number in range(5):
            deep = np.full((4, 4), 30_000 * grade + 1000, dtype=np.uint16)
            image = Image.fromarray(deep)
            if kind == "pgm":
                image = image.convert("I")  # Pillow 10.0 writes no other mode in 16 bits
            image.save(tmp_path / "eyes" / str(grade) / f"{number}.{kind}")
    train = prepare(tmp_path / "eyes", format="features").graded("train")
    assert train.images is not None
    assert train.images[:, 0, 0, 0].tolist() == [[3, 121][g] for g in train.grades]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_images_of_32_bits_are_dropped_not_clipped(dtype: type, tmp_path: Path) -> None:
    from PIL import Image

    home = write_images(tmp_path / "eyes", "L")
    Image.fromarray(np.full((4, 4), 1000, dtype=dtype)).save(home / "0" / "deep.tif")
    data = prepare(home, format="features")
    [gone] = data.summary["dropped"]
    assert gone["why"].startswith("an image of 32 bits per pixel")
    assert gone["first"] == ["eyes/0/deep.tif"]
    with pytest.raises(UserError, match="32 bits per pixel: convert it"):
        prepare(home, format="features", strict=True)


def test_without_pillow_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_images(tmp_path / "eyes")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(UserError, match="Pillow") as caught:
        prepare(home, format="features")
    assert "rankfold[images]" in str(caught.value.hint)
