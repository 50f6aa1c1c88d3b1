"""Pretrained encoders in a folder, as transformers or sentence-transformers save them.

    FOLDER/
      config.json                the network
      tokenizer.json             of the tokenizers library
      model.safetensors          or several, with an index
      modules.json, 1_Pooling/config.json, sentence_bert_config.json,
      config_sentence_transformers.json    optional: pooling, maximum length, prompts

Nothing in it is executed: no code, no pickle.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankfold.data.build.pretrained_tokens import truncating
from rankfold.errors import UserError

POOLINGS = ("mean", "cls", "last", "max")
_LONGEST = 512  # tokens, unless the folder or a setting says otherwise
_POOLING_NAMES = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    "max": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
}
_LEFT_OUT = {"torch_dtype", "auto_map", "attn_implementation", "_attn_implementation"}
_PROMPT_NAMES = {"query": ("query",), "candidate": ("document", "passage", "corpus")}


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person may choose; None: as the folder says."""

    pooling: str | None = None
    max_length: int | None = None
    query_prompt: str | None = None
    candidate_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that a model needs to build the encoder again, beside its weights, as JSON values."""

    folder: str  # its name
    checksum: str  # sha256 of configuration, tokenizer and weights
    config: dict[str, Any]
    pooling: str
    max_length: int
    prompts: dict[str, str]  # by side: put before each text
    lower: bool  # texts are put into lower case first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_blueprint(path: Path, choices: Choices) -> tuple[Blueprint, str]:
    """The blueprint of a folder and its tokenizer; a UserError if something is missing."""
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise UserError(
            f"{path} {problem}", hint="encoder=hf:FOLDER takes a folder on disk; nothing is loaded"
        )
    modules = _modules(path)
    network = path / modules.get("Transformer", "")
    config = _required(network, "config.json", "is it the folder of a saved model?")
    _check_no_code(path, network, config)
    if config.get("quantization_config"):
        raise UserError(f"{path} has quantised weights", hint="use the folder of the full ones")
    if config.get("is_encoder_decoder"):
        raise UserError(
            f"{path} is an encoder with a decoder", hint="save its encoder alone, or use another"
        )
    tokenizer = _find(path, network, "tokenizer.json")
    if tokenizer is None:
        raise UserError(
            f"{path} has no tokenizer.json",
            hint="save a fast one: AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)",
        )
    weights = _weights(path, network)
    sentences = _optional(network / "sentence_bert_config.json")
    length = choices.max_length or _max_length(path, network, config, sentences)
    blueprint = Blueprint(
        folder=path.resolve().name,
        checksum=_checksum([network / "config.json", tokenizer, *weights]),
        config={k: v for k, v in config.items() if k not in _LEFT_OUT} | {"dtype": "float32"},
        pooling=choices.pooling or _pooling(path, modules, config),
        max_length=length,
        prompts=_prompts(path, choices),
        lower=bool(sentences.get("do_lower_case")),
    )
    return blueprint, truncating(tokenizer.read_text("utf-8"), length, str(tokenizer))


def network_folder(path: Path) -> Path:
    """The folder of the network itself."""
    return path / _modules(path).get("Transformer", "")


def _modules(path: Path) -> dict[str, str]:
    """The paths of the parts of a sentence-transformers folder, by the name of their class."""
    listed = _optional(path / "modules.json", default=[])
    try:
        modules = {str(entry["type"]).rsplit(".", 1)[-1]: str(entry["path"]) for entry in listed}
    except (TypeError, KeyError):
        raise UserError(f"{path}/modules.json is damaged", hint="copy the folder again") from None
    for name in modules.keys() - {"Transformer", "Pooling", "Normalize"}:
        raise UserError(
            f"{path} has the module {name}, which is not supported",
            hint="a Transformer with Pooling and Normalize is; save the folder without the others",
        )
    if any(Path(part).is_absolute() or ".." in Path(part).parts for part in modules.values()):
        raise UserError(f"{path}/modules.json names a path outside", hint="copy the folder again")
    return modules


def _check_no_code(path: Path, network: Path, config: dict[str, Any]) -> None:
    both = {"config.json": config}
    for folder in {path, network}:
        both["tokenizer_config.json"] = _optional(folder / "tokenizer_config.json")
        for name, content in both.items():
            if content.get("auto_map"):
                raise UserError(
                    f"{path} needs custom code ({name} has auto_map), which is never run",
                    hint="use a model whose type is part of transformers",
                )


def _weights(path: Path, network: Path) -> list[Path]:
    files = sorted(network.glob("*.safetensors"))
    if not files:
        pickled = [*network.glob("*.bin"), *network.glob("*.pt"), *network.glob("*.ckpt")]
        if pickled:
            raise UserError(
                f"{path} has only pickled weights, {pickled[0].name}, which may hold code",
                hint="save it as safetensors: AutoModel.from_pretrained(FOLDER).save_pretrained()",
            )
        raise UserError(f"{path} has no weights", hint="it needs model.safetensors")
    return files


def _pooling(path: Path, modules: dict[str, str], config: dict[str, Any]) -> str:
    """As ``1_Pooling`` says; else the last token for a decoder, the mean for others."""
    if "Pooling" not in modules:
        names = config.get("architectures") or []
        return "last" if any("CausalLM" in str(name) for name in names) else "mean"
    name = f"{modules['Pooling']}/config.json"
    given = _required(path, name, "it says how token vectors become one")
    mode = given.get("pooling_mode")
    chosen = [mode] if mode else [key for key, on in given.items() if on is True]
    chosen = [one for one in chosen if str(one).startswith("pooling_mode") or one == mode]
    if len(chosen) != 1 or chosen[0] not in _POOLING_NAMES:
        raise UserError(
            f"{path}/{name} asks for the pooling {' and '.join(map(str, chosen)) or 'none'}",
            hint=f"set pooling= to one of {', '.join(POOLINGS)}",
        )
    return _POOLING_NAMES[chosen[0]]


def _max_length(
    path: Path, network: Path, config: dict[str, Any], sentences: dict[str, Any]
) -> int:
    """The length that the folder was made for, at most 512 if it does not say."""
    if sentences.get("max_seq_length"):
        return int(sentences["max_seq_length"])
    limits = [_LONGEST]
    for folder in {path, network}:
        limits.append(_optional(folder / "tokenizer_config.json").get("model_max_length"))
    positions = config.get("max_position_embeddings")
    if positions and config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= (config.get("pad_token_id") or 0) + 1  # the first positions stay unused
    return int(min(limit for limit in [*limits, positions] if limit))


def _prompts(path: Path, choices: Choices) -> dict[str, str]:
    given = _optional(path / "config_sentence_transformers.json").get("prompts") or {}
    chosen = {"query": choices.query_prompt, "candidate": choices.candidate_prompt}
    prompts = {}
    for side, names in _PROMPT_NAMES.items():
        own = next((str(given[name]) for name in names if given.get(name)), "")
        prompts[side] = own if chosen[side] is None else str(chosen[side])
    return prompts


def _checksum(paths: list[Path]) -> str:
    """Of the content of some files."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _find(path: Path, network: Path, name: str) -> Path | None:
    return next((one / name for one in (network, path) if (one / name).is_file()), None)


def _required(folder: Path, name: str, hint: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        raise UserError(f"{folder} has no {name}", hint=hint)
    return dict(_optional(folder / name))


def _optional(path: Path, default: Any = None) -> Any:
    """The JSON of a file, the default if there is none."""
    default = {} if default is None else default
    if not path.is_file():
        return default
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not valid JSON: {error}", hint="copy the folder again"
        ) from None
    if not isinstance(content, type(default)):
        expected = "an object" if isinstance(default, dict) else "a list"
        raise UserError(f"{path} must hold {expected}", hint="copy the folder again")
    return content
