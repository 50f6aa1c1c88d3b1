"""Texts in any script, and words with symbols, are searched from end to end."""

import polars as pl
import pytest
from script_texts import DOCUMENTS, QUERIES, TOPICS

import rankfold as rf
from rankfold.models.ranker import Ranker

SYMBOLS = {
    "cpp": ("Templates in C++ are compiled", "A class of C++ with templates"),
    "csharp": ("Async methods in C# are awaited", "C# has properties and events"),
    "c": ("Pointers in C are addresses", "The language C has macros"),
    "fsharp": ("F# is functional", "Pattern matching in F#"),
    "dotnet": ("Assemblies of .NET run anywhere", "The runtime of .NET collects garbage"),
    "fishing": ("A net catches fish in a river", "The net of a fisher"),
    "nodejs": ("Packages of node.js by npm", "Servers on node.js wait for events"),
}


def fitted(documents: dict[str, tuple[str, ...]]) -> Ranker:
    """A model of documents by label; the labels' own names tell nothing."""
    rows = [(text, [label]) for label, texts in documents.items() for text in texts]
    keys = {label: f"k{number}" for number, label in enumerate(documents)}
    table = pl.DataFrame(
        {"text": [text for text, _ in rows], "labels": [[keys[own[0]]] for _, own in rows]}
    )
    data = rf.prepare(table, format="texts", split=(1.0, 0.0, 0.0))
    model = rf.fit("text-neighbours", data)
    assert isinstance(model, Ranker)
    return model


@pytest.mark.parametrize("script", DOCUMENTS)
def test_each_topic_is_found_in_each_script(script: str) -> None:
    model = fitted(dict(zip(TOPICS, DOCUMENTS[script], strict=True)))
    found = model.search(text=QUERIES[script], k=1).keys
    assert found == [[f"k{number}"] for number in range(len(TOPICS))]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("C++", "cpp"),
        ("c#", "csharp"),
        ("C", "c"),
        ("F#", "fsharp"),
        (".NET", "dotnet"),
        ("a net", "fishing"),
        ("Node.js", "nodejs"),
        ("\uff23\uff0b\uff0b", "cpp"),  # full width
        ("C\u266f", "csharp"),  # the musical sign
    ],
)
def test_words_with_symbols_are_told_apart(text: str, label: str) -> None:
    assert fitted(SYMBOLS).search(text=text, k=1).keys == [[f"k{[*SYMBOLS].index(label)}"]]


@pytest.mark.parametrize(
    ("text", "label"), [("garbge", "dotnet"), ("pointer adress", "c"), ("templtes", "cpp")]
)
def test_typos_are_found(text: str, label: str) -> None:
    assert fitted(SYMBOLS).search(text=text, k=1).keys == [[f"k{[*SYMBOLS].index(label)}"]]
