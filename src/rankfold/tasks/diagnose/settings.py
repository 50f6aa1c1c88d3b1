"""Settings that are lists of numbers, written with commas; a ValueError says what they must be."""


def sizes_of(words: str) -> list[int]:
    """Two or more ascending whole numbers."""
    sizes = [int(word) if word.strip().isdecimal() else 0 for word in str(words).split(",")]
    if len(sizes) < 2 or sizes != sorted(set(sizes)) or not 1 <= sizes[0] <= sizes[-1] <= 2**24:
        raise ValueError("two or more ascending whole numbers, such as 256,1024,4096")
    return sizes


def sigmas_of(words: str) -> list[float]:
    """Distinct numbers above 0, in the order given."""
    try:
        sigmas = [float(word) for word in words.split(",")]
    except ValueError:
        sigmas = []
    distinct = len({f"{sigma:g}" for sigma in sigmas}) == len(sigmas)
    if not sigmas or not distinct or not all(0 < sigma < float("inf") for sigma in sigmas):
        raise ValueError("distinct numbers above 0, such as 0.1,0.05")
    return sigmas
