"""The words of a text, in any language: the one place where Unicode is normalised.

    Émile's Café          emile s cafe
    C++ and .NET          c c++ and net .net        a word with its symbols comes after the word
    東京都                東京 京都 都 ...          no spaces: pairs of characters, then characters
    학교에서              학교에서 학교 교에 에서   Hangul: the word, then pairs of syllables

A text is normalised first: compatibility forms are unified (NFKC), case is folded (one Greek sigma,
ss for sharp s), accents and invisible characters (soft hyphens, joiners) are removed.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

_ACCENTS = "\u0300-\u036f"  # not all marks: vowels are marks in some scripts
_INVISIBLE = "\u00ad\u200c-\u200f\u2060\ufeff"  # inside words; a zero-width space is a space
REMOVED = f"[{_ACCENTS}{_INVISIBLE}]+"
_SHARP = "\u266f"  # the musical sign, as some write C-sharp
_REMOVED = re.compile(REMOVED)

# Scripts that are written without spaces between words. In Tibetan, a mark separates syllables.
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x3005, 0x3007),  # Han: repetition, closing mark, zero
    (0x3041, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA000, 0xA4CF),  # Yi
    (0xA980, 0xA9FF),  # Javanese, Myanmar
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0xF900, 0xFAFF),  # Han
    (0x1AFF0, 0x1B16F),  # Kana
    (0x20000, 0x323AF),  # Han
)
_LAST_MARK = 0x1E94A  # all marks but variation selectors are at or below
_STACKERS = "\u1039\u17d2"  # the consonant after them stands below the one before
_VOWELS_BEFORE = "\u0e40-\u0e44\u0ec0-\u0ec4"  # written before the consonant that they follow
_VOWELS_AFTER = "\u0e30\u0e32\u0e33\u0eb0\u0eb2\u0eb3"  # letters, not marks
_HANGUL = re.compile("[\uac00-\ud7a3]{3,}")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_SPACED_WORD = re.compile(r"[^\W_]+")

_HAS_SYMBOLS = re.compile(r"[^\W_][+#]|\.[^\W\d_]")


def _with_symbols(word: str) -> str:
    """A word with symbols at its end (C++, F#), a dot before (.NET) or dots inside (node.js)."""
    letter = r"(?=[^\W\d_])"
    return rf"(?:(?<![\w.])\.{letter})?{word}(?:\.{letter}{word})*(?:\+\+|[+#](?!\w))?"


_SPACED = re.compile(_with_symbols(r"[^\W_]+"))


def casefold(text: str) -> str:
    """A text without case. Letters and marks are separated first: folding is letter by letter."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKD", text).casefold()


def normalise(text: str) -> str:
    """A text without case, accents and invisible characters."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _REMOVED.sub("", casefold(text)))


def words_of(text: str) -> list[str]:
    """The words of a text in their order, each followed by its other forms."""
    text = normalise(text).replace(_SHARP, "#")
    if _HAS_SYMBOLS.search(text) is None and text.isascii():
        return _ASCII_WORD.findall(text)
    if text.isascii() or _patterns().special.search(text) is None:
        return _forms(_SPACED.findall(text), _SPACED_WORD)
    patterns, words = _patterns(), []
    for run, word in patterns.runs.findall(text):
        if run:
            words += _pairs(patterns.character.findall(run))
        else:
            words += _forms([word], patterns.word)
    return words


def has_symbols(word: str) -> bool:
    """Whether a word is the form of another with its symbols."""
    return not word.isalnum() and any(mark in word for mark in ".+#")


def is_spaced(word: str) -> bool:
    """Whether no letter of a normalised word is Hangul or of a script without spaces."""
    if word.isascii():
        return True
    return _patterns().unspaced.search(word) is None


def script_of(letter: str) -> str:
    """The script of a letter, by its name: Latin, Thai, Cjk."""
    return unicodedata.name(letter, "?").split()[0].split("-")[0].capitalize()


# ---------------------------------------------------------------------------------- scripts


def _forms(words: list[str], word: re.Pattern[str]) -> list[str]:
    """The parts of words that may have symbols, with pairs of syllables, and the words."""
    forms: list[str] = []
    for one in words:
        parts = word.findall(one)
        for part in parts:
            forms.append(part)
            if _HANGUL.fullmatch(part):
                forms += map("".join, pairwise(part))
        if len(parts[0]) < len(one):
            forms.append(one)
    return forms


def _pairs(characters: list[str]) -> list[str]:
    """Pairs of adjacent characters, then the characters."""
    return [*map("".join, pairwise(characters)), *characters]


class _Patterns:
    """Regular expressions that need the marks of Unicode, which ``re`` does not know."""

    def __init__(self) -> None:
        unspaced = {c for start, end in _UNSPACED_RANGES for c in range(start, end + 1)}
        letters = {c for c in unspaced if unicodedata.category(chr(c))[0] in "LM" or c == 0x3007}
        marks = {c for c in range(0x300, _LAST_MARK + 1) if unicodedata.category(chr(c))[0] == "M"}
        alone, inside = _class(letters), _class(letters & marks)
        self.unspaced = re.compile(f"[{alone}\uac00-\ud7a3]")
        self.special = re.compile(f"[{alone}{_class(marks)}]")
        spaced, own_marks = rf"[^\W_{alone}]", _class(marks - letters)
        word = f"{spaced}(?:{spaced}|[{own_marks}])*"
        self.word = re.compile(word)
        self.runs = re.compile(f"([{alone}]+)|({_with_symbols(word)})")
        self.character = re.compile(
            f"[{_VOWELS_BEFORE}]?.(?:[{_STACKERS}][{alone}]|[{inside}])*[{_VOWELS_AFTER}]?",
            re.DOTALL,
        )


@lru_cache(maxsize=1)
def _patterns() -> _Patterns:
    return _Patterns()


def _class(characters: Iterable[int]) -> str:
    """The inside of a character class."""
    ordered = sorted(characters)
    starts = [c for before, c in pairwise([-2, *ordered]) if c != before + 1]
    ends = [c for c, after in pairwise([*ordered, 0x110001]) if after != c + 1]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts, ends, strict=True))
