"""README.md of a model folder: a card that Hugging Face reads, and that people may replace."""

from pathlib import Path

import pytest
from planted import split_groups

import rankfold as rf
from rankfold import storage
from rankfold.models.ranker import Ranker
from rankfold.tasks.card import add_to_card

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cards") / "model"
    rf.fit("ials", split_groups(), width=4, sweeps=2, out=path)
    return path


def test_a_card_has_data_settings_limits_and_how_to_load(folder: Path) -> None:
    card = hub.ModelCard.load(folder / storage.CARD)
    assert card.data.library_name == "rankfold"
    assert card.data.tags == ["ranking", "ials"]
    for part in ("| width | 4 |", "rf.load(", "## Limits", "Not measured on test", "| train |"):
        assert part in card.text, part


def test_measured_values_are_in_the_card_with_intervals(folder: Path) -> None:
    result = rf.evaluate(folder, split_groups(), metrics=["ndcg@10", "coverage@10"])
    add_to_card(folder, result)
    add_to_card(folder, result)  # replaces the first
    card = hub.ModelCard.load(folder / storage.CARD)
    values = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert values == {name: pytest.approx(value) for name, value in result.metrics.items()}
    (line,) = [line for line in card.text.splitlines() if line.startswith("| ndcg@10 |")]
    low, high = map(float, line.split("|")[3].split(" to "))
    assert low <= result["ndcg@10"] <= high
    assert storage.foreign(folder) == []
    ranker = rf.load(folder)
    assert isinstance(ranker, Ranker)
    assert ranker.search(ranker.queries.keys.to_list()[:1]).keys


def test_figures_of_fitted_pairs_are_refused(folder: Path) -> None:
    data = split_groups()
    model = rf.fit("ials", data, width=4, sweeps=2, refit=True)
    result = rf.evaluate(model, data, split="validation")
    with pytest.raises(rf.UserError, match="too high for a card"):
        add_to_card(folder, result)


def test_a_card_without_the_mark_is_kept(tmp_path: Path) -> None:
    model = rf.fit("popularity", split_groups())
    model.save(tmp_path / "model")
    card = tmp_path / "model" / storage.CARD
    card.write_text("my own words")
    model.save(tmp_path / "model")
    assert card.read_text() == "my own words"
    card.unlink()
    card.symlink_to(tmp_path / "elsewhere")
    model.save(tmp_path / "model")
    assert not (tmp_path / "elsewhere").exists()


def test_a_write_that_left_only_a_card_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / storage.CARD).write_text(storage.CARD_MARK)
    rf.fit("popularity", split_groups()).save(tmp_path)
    assert "popularity" in (tmp_path / storage.CARD).read_text()
