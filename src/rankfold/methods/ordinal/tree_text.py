"""LightGBM's text form of trees: constant first trees, and two texts joined to one.

A resumed fit grows new trees on top of known ones, and LightGBM only writes the new ones. A
constant is a tree with one leaf. So the text holds all there is to know, and LightGBM reads it.

LightGBM trusts its input: a part of a text, or a child that is no node, ends the process or lets it
run for ever. So a text is checked before it gets there.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_FIRST = re.compile(r"^Tree=\d+\n", re.MULTILINE)
_VALUES = re.compile(r"^(leaf_value|internal_value)=(.*)$", re.MULTILINE)
_END = "end of trees"
_HEAD = re.compile(
    r"tree\nversion=v\d\nnum_class=(\d{1,6})\nnum_tree_per_iteration=\1\nlabel_index=0\n"
    r"max_feature_idx=(\d{1,8})\nfeature_names=([^\n]*)\nfeature_infos=([^\n]*)"
)
_INFO = re.compile(r"none|\[[^\s:]{1,30}:[^\s:]{1,30}\]|-?\d{1,10}(:-?\d{1,10})*")
_WHOLE = re.compile(r"-?\d{1,10}")
_WHOLES = re.compile(rf"(?:{_WHOLE.pattern}(?: |$))*+")  # a line of them
_NUMBERS = re.compile(r"(?:-?(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)(?: |$))*+")
_OF_SPLITS = {"split_feature": _WHOLES, "threshold": _NUMBERS, "decision_type": _WHOLES}
_OF_SPLITS |= {"left_child": _WHOLES, "right_child": _WHOLES, "split_gain": _NUMBERS}
_OF_SPLITS |= dict.fromkeys(("internal_value", "internal_weight"), _NUMBERS)
_OF_SPLITS |= {"internal_count": _WHOLES}
_OF_LEAVES = {"leaf_value": _NUMBERS, "leaf_weight": _NUMBERS, "leaf_count": _WHOLES}
_OF_SETS = {"cat_boundaries": _WHOLES, "cat_threshold": _WHOLES}
_SINGLE = {"num_leaves": _WHOLES, "num_cat": _WHOLES, "is_linear": _WHOLES, "shrinkage": _NUMBERS}
_FIELDS = _OF_SPLITS | _OF_LEAVES | _OF_SETS | _SINGLE
_USED = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
_TREE_END = "\n\n\n"
_BY_SET = 1  # the bit of a decision type that makes a split one by categories


def constant_trees(constants: Sequence[float]) -> list[str]:
    """A tree with one leaf for each constant."""
    return [f"num_leaves=1\nnum_cat=0\nleaf_value={c!r}\nshrinkage=1\n\n\n" for c in constants]


def head_and_trees(text: str) -> tuple[str, list[str]]:
    """The lines before the first tree, and the trees without their numbers."""
    head, *trees = _FIRST.split(text.partition(_END)[0])
    lines = [line for line in head.splitlines() if line and not line.startswith("tree_sizes=")]
    return "\n".join(lines), trees


def write(head: str, trees: Sequence[str]) -> str:
    """The text of some trees. The parameters of a fit are not part of it."""
    numbered = [f"Tree={number}\n{tree}" for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree)) for tree in numbered)
    return f"{head}\ntree_sizes={sizes}\n\n{''.join(numbered)}{_END}\n"


def averaged(texts: Sequence[str], width: int) -> str:
    """The text of trees whose outputs are the mean of those of several texts.

    They have the same first ``width`` trees, and the same number of trees.
    """
    if len(texts) == 1:
        return texts[0]
    head, first = head_and_trees(texts[0])
    grown = [tree for text in texts for tree in head_and_trees(text)[1][width:]]
    return write(head, [*first[:width], *(_divided(tree, len(texts)) for tree in grown)])


def _divided(tree: str, n: int) -> str:
    """A tree with its values divided by n."""

    def divided(line: re.Match[str]) -> str:
        values = (repr(float(value) / n) for value in line[2].split())
        return f"{line[1]}={' '.join(values)}"

    return _VALUES.sub(divided, tree)


@lru_cache(maxsize=2)  # the trees of a fit are read several times
def is_sound(text: str) -> bool:
    """Whether nothing is missing, and every row ends in a leaf of each tree."""
    head, trees = head_and_trees(text)
    if text != write(head, trees) or (found := _HEAD.fullmatch(head)) is None:
        return False
    width, n = int(found[1]), int(found[2]) + 1
    infos = found[4].split(" ")
    named = found[3] == " ".join(f"Column_{place}" for place in range(len(infos)))
    return (
        named
        and len(infos) == n
        and all(map(_INFO.fullmatch, infos))
        and width > 0
        and len(trees) > 0
        and len(trees) % width == 0
        and all(_is_sound_tree(tree, n) for tree in trees)
    )


def _is_sound_tree(tree: str, n_columns: int) -> bool:
    lines = tree.removesuffix(_TREE_END).split("\n")
    known = {name: values for name, _, values in (line.partition("=") for line in lines)}
    fields = {name: values.split() for name, values in known.items()}
    if not tree.endswith(_TREE_END) or len(fields) < len(lines) or not _has_numbers(known):
        return False
    if any(len(fields[name]) != 1 for name in _SINGLE if name in fields):
        return False
    n_leaves, n_sets = int(fields["num_leaves"][0]), int(fields["num_cat"][0])
    lengths = {**dict.fromkeys(_OF_SPLITS, n_leaves - 1), **dict.fromkeys(_OF_LEAVES, n_leaves)}
    if any(len(fields[name]) != n for name, n in lengths.items() if name in fields):
        return False
    if not n_leaves > 0 or "leaf_value" not in fields or fields.get("is_linear", ["0"]) != ["0"]:
        return False
    if n_leaves == 1:
        return n_sets == 0
    if not fields.keys() >= set(_USED) or not _has_sets(fields, n_sets):
        return False
    columns, kinds, left, right = ([*map(int, fields[name])] for name in _USED if name != _USED[1])
    children = zip(left + right, 2 * [*range(n_leaves - 1)], strict=True)
    return (
        all(0 <= column < n_columns for column in columns)
        and all(0 <= kind < 12 for kind in kinds)
        and all(
            -n_leaves <= child < 0 or parent < child < n_leaves - 1 for child, parent in children
        )
        and all(
            _WHOLE.fullmatch(place) and 0 <= int(place) < n_sets
            for place, kind in zip(fields["threshold"], kinds, strict=True)
            if kind & _BY_SET
        )
    )


def _has_numbers(fields: Mapping[str, str]) -> bool:
    """Whether all fields are known and hold numbers."""
    return (
        fields.keys() <= _FIELDS.keys()
        and fields.keys() >= {"num_leaves", "num_cat", "shrinkage"}
        and all(_FIELDS[name].fullmatch(values) for name, values in fields.items())
    )


def _has_sets(fields: Mapping[str, Sequence[str]], n_sets: int) -> bool:
    """Whether the sets of categories are those that the boundaries say."""
    if n_sets == 0:
        return not fields.keys() & _OF_SETS.keys()
    if not fields.keys() >= _OF_SETS.keys():
        return False
    ends = [*map(int, fields["cat_boundaries"])]
    words = [*map(int, fields["cat_threshold"])]
    return (
        len(ends) == n_sets + 1
        and ends == sorted(ends)
        and (ends[0], ends[-1]) == (0, len(words))
        and all(0 <= word < 2**32 for word in words)
    )
