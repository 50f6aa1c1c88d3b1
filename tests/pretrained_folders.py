"""Small random pretrained models, saved in the true format of transformers and its tokenizers."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import rankfold as rf

WORDS = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
TOPICS = 6
_MODULES = "sentence_transformers.models"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def documents(n: int = 60) -> pl.DataFrame:
    """Each label is named by a word of its topic; a document has words of a topic."""
    rng = torch.Generator().manual_seed(0)
    rows = []
    for number in range(n):
        topic = number % TOPICS
        drawn = torch.randint(0, 8, (6,), generator=rng).tolist()
        text = " ".join(WORDS[10 * topic + word] for word in drawn)
        rows.append({"id": f"d{number}", "text": text, "labels": [WORDS[10 * topic]]})
    return pl.DataFrame(rows)


@pytest.fixture(scope="module", name="data")
def documents_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "data"
    rf.prepare(documents(), out=path, format="texts", query_column="id")
    return path


def save_tokenizer(folder: Path, *, decoder: bool = False, max_length: int = 32) -> None:
    """Whole words; BERT's begins and ends a text with its marks, a decoder's ends it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = [
        *_SPECIAL,
        *WORDS,
        *map(chr, range(97, 123)),
        *(f"##{chr(c)}" for c in range(97, 123)),
    ]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not decoder)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]" if decoder else "[CLS] $A [SEP]",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=max_length,
        padding_side="right",
    ).save_pretrained(folder)


def save_bert(folder: Path, **changes: Any) -> Path:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    given = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2} | changes
    config = BertConfig(
        vocab_size=len(WORDS) + len(_SPECIAL) + 52,
        intermediate_size=32,
        max_position_embeddings=40,
        **given,
    )
    BertModel(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_minilm(folder: Path, *, pooling: str = "mean", max_length: int = 12) -> Path:
    """A BERT as sentence-transformers saves it."""
    save_bert(folder)
    kinds = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
        {
            "idx": 2,
            "name": "2",
            "path": "2_Normalize",
            "type": "sentence_transformers.models.Normalize",
        },
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    chosen = {f"pooling_mode_{kind}": name == pooling for name, kind in kinds.items()}
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 16, **chosen})
    write(
        folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False}
    )
    prompts = {"query": "ak bl ", "document": "cm "}
    write(folder / "config_sentence_transformers.json", {"prompts": prompts})
    return folder


def save_decoder(folder: Path) -> Path:
    """A decoder with rotary positions, whose last token stands for a text."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS) + len(_SPECIAL) + 52,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    save_tokenizer(folder, decoder=True)
    return folder


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), "utf-8")


def change(path: Path, **values: object) -> None:
    """Change some values of a JSON file."""
    write(path, {**json.loads(path.read_text("utf-8")), **values})
