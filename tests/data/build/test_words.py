"""Texts become words, in any script."""

import unicodedata

import pytest

from rankfold.data.build.similar_words import SimilarWords
from rankfold.data.build.unspaced_scripts import unseparated
from rankfold.data.build.words import is_spaced, script_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Émile's Café", "emile s cafe"),
        ("東京都 3月", "東京 京都 東 京 都 3 月"),
        ("犬", "犬"),
        ("カップ", "カッ ップ カ ッ プ"),
        ("ｶｯﾌﾟ", "カッ ップ カ ッ プ"),  # half width
        ("学校に", "学校 校に 学 校 に"),  # Han and Kana are one run
        ("ภาษาไทย", "ภาษา ษาไท ไทย ภา ษา ไท ย"),  # vowels stay with their consonants
        ("ខ្មែរ", "ខ្មែរ ខ្មែ រ"),  # a consonant below another one stays with it
        ("ລາວ", "ລາວ ລາ ວ"),
        ("မြန်မာ", "မြန် န်မာ မြ န် မာ"),
        ("학교에서 밥을", "학교에서 학교 교에 에서 밥을"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("བོད་སྐད", "བོད སྐད"),
        ("日本語とC++", "日本 本語 語と 日 本 語 と c c++"),
    ],
)
def test_words_by_script(text: str, words: str) -> None:
    for form in ("NFC", "NFD"):
        found = words_of(unicodedata.normalize(form, text))
        assert found == [unicodedata.normalize("NFC", word) for word in words.split()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("C++ and C#.", "c c++ and c c#"),
        ("C++11, a g++", "c c++ 11 a g g++"),
        ("in .NET, Node.js", "in net .net node js node.js"),
        ("ASP.NET Core.", "asp net asp.net core"),
        ("a+b, 1+1, foo#bar, # 5, #5", "a b 1 1 foo bar 5 5"),
        ("version 3.14. The end...", "version 3 14 the end"),
        ("Google+ is gone", "google google+ is gone"),
        ("c c++", "c c c++"),
        ("écran.Net", "ecran net ecran.net"),
    ],
)
def test_words_with_symbols_follow_their_parts(text: str, words: str) -> None:
    assert words_of(text) == words.split()


def test_spaced_scripts_and_names() -> None:
    assert [is_spaced(word) for word in ("word", "слово", "हिन्दी", "漢字", "학교", "ไทย")] == [
        *[True] * 3,
        *[False] * 3,
    ]
    assert [script_of(letter) for letter in "aяกក한"] == [
        "Latin",
        "Cyrillic",
        "Thai",
        "Khmer",
        "Hangul",
    ]


def test_similar_word_is_the_largest_by_the_formula() -> None:
    known = ["receive", "deceive", "relief", "receipt", "walking", "2024", "cat"]
    similar = SimilarWords(known)

    def parts(word: str) -> set[str]:
        whole = f"<{word}>"
        return {whole[i : i + n] for n in (2, 3) for i in range(len(whole) - n + 1)}

    counted = [word for word in known if len(word) >= 4 and word.isalpha()]

    def weight(some: set[str]) -> float:
        from math import log

        return sum(
            log((1 + len(counted)) / (1 + sum(one in parts(word) for word in counted)))
            for one in some
        )

    for unknown in ("recieve", "receiving", "walkings", "reciept", "deceiver"):
        values = [
            2
            * weight(parts(unknown) & parts(word))
            / (weight(parts(unknown)) + weight(parts(word)))
            for word in counted
        ]
        best = max(range(len(counted)), key=values.__getitem__)
        found = similar.find(unknown)
        if values[best] >= 0.6:
            assert found == known.index(counted[best])
    assert similar.find("walkings") == known.index("walking")
    assert similar.find("receipts") == known.index("receipt")


@pytest.mark.parametrize("word", ["2025", "cats", "xyzzy", "c++", "", "日本"])
def test_numbers_short_and_strange_words_have_no_similar_one(word: str) -> None:
    assert SimilarWords(["2024", "cat", "receive", "c", "日本語"]).find(word) is None


def test_without_comparable_words_nothing_is_similar() -> None:
    assert SimilarWords([]).find("receive") is None
    assert SimilarWords(["a", "2024"]).find("receive") is None


def test_scripts_without_separators_are_noticed() -> None:
    cuneiform = ["".join(chr(0x12000 + i + n) for n in range(20)) for i in range(6)]
    glued = [f"averylongwordwithoutany{i}" for i in range(6)]
    assert unseparated(cuneiform) == [{"script": "Cuneiform", "texts": 6, "words": 1.0}]
    assert [found["script"] for found in unseparated(glued)] == ["Latin"]
    assert unseparated(["a text of words", *cuneiform[:4], "ภาษาไทยภาษาไทยภาษาไทย", None]) == []
    assert unseparated(["physics", "chemistry"] * 10) == []
