"""LightGBM's text form of trees: constant first trees, and two texts joined to one.

A resumed fit grows new trees on top of known ones, and LightGBM only writes the new ones. A
constant is a tree with one leaf. So the text holds all there is to know, and LightGBM reads it.
"""

import re
from collections.abc import Sequence

_FIRST = re.compile(r"^Tree=\d+\n", re.MULTILINE)
_END = "end of trees"


def constant_trees(constants: Sequence[float]) -> list[str]:
    """A tree with one leaf for each constant."""
    return [f"num_leaves=1\nnum_cat=0\nleaf_value={c!r}\nshrinkage=1\n\n\n" for c in constants]


def head_and_trees(text: str) -> tuple[str, list[str]]:
    """The lines before the first tree, and the trees without their numbers."""
    head, *trees = _FIRST.split(text.partition(_END)[0])
    lines = [line for line in head.splitlines() if line and not line.startswith("tree_sizes=")]
    return "\n".join(lines), trees


def is_complete(text: str) -> bool:
    """Whether nothing is missing. LightGBM trusts its input: a part of a text ends the process."""
    return text.startswith("tree\n") and text == write(*head_and_trees(text))


def write(head: str, trees: Sequence[str]) -> str:
    """The text of some trees. The parameters of a fit are not part of it."""
    numbered = [f"Tree={number}\n{tree}" for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree)) for tree in numbered)
    return f"{head}\ntree_sizes={sizes}\n\n{''.join(numbered)}{_END}\n"
