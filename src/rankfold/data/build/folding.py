"""What is left of a text's letters when case and accents are no matter."""

import re
import unicodedata

ACCENTS = "\u0300-\u036f"  # not all marks: vowels are marks in some scripts
UNSEEN = "\u00ad\u200c-\u200f\u2060\ufeff"  # inside words; a space of no width is a space
LEFT_OUT = f"[{ACCENTS}{UNSEEN}]+"


def folded(text: str) -> str:
    """Without case: of Greek sigmas one, ss for sharp s.

    Case is folded letter by letter, and so after letters and their marks were taken apart.
    """
    return text.lower() if text.isascii() else unicodedata.normalize("NFKD", text).casefold()


def bare(word: str) -> str:
    """Without accents and what does not show, too: as a tokenizer has it."""
    return unicodedata.normalize("NFC", re.sub(LEFT_OUT, "", folded(word)))
