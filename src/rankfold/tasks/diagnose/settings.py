"""Settings that are lists of numbers, written with commas."""

from rankfold.errors import UserError


def sizes_of(name: str, words: str) -> list[int]:
    """Two or more ascending whole numbers; a UserError for other words."""
    try:
        sizes = [int(word) for word in str(words).split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1 or sizes != sorted(set(sizes)) or max(sizes) > 2**24:
        raise UserError(
            f"`{name}` must be ascending whole numbers, got {words!r}", hint="write 256,1024,4096"
        )
    if len(sizes) < 2:
        raise UserError(
            f"`{name}` needs at least two numbers, got {words!r}", hint="write 256,1024,4096"
        )
    return sizes
