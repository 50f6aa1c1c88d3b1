"""Settings of SiameseXML: bounds, and defaults that depend on the data."""

from typing import Any

import pytest

from rankfold.errors import UserError
from rankfold.methods.text.siamesexml.config import SiameseConfig, fill_defaults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 0),
        ("lr", 0.0),
        ("thinning", 1.5),
        ("classifier_share", -0.1),
        ("encoder_epochs", -1),
        ("classifier_batch_size", 0),
        ("negatives", "all"),
        ("encoder", "none"),
    ],
)
def test_settings_out_of_bounds_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"`{name}` must be"):
        SiameseConfig(**{name: value})


def test_open_settings_follow_the_number_of_documents() -> None:
    few = fill_defaults(SiameseConfig(), 1000)
    assert (few.batch_size, few.lr, few.pairs_from, few.joint_epochs) == (256, 0.007, 5, 12)
    assert fill_defaults(SiameseConfig(), 20_000).joint_epochs == 4
    assert fill_defaults(SiameseConfig(), 10_000).joint_epochs == 7  # of 40 batches
    many = fill_defaults(SiameseConfig(), 250_000)
    assert (many.batch_size, many.pairs_from) == (976, 2)
    most = fill_defaults(SiameseConfig(), 10_000_000)
    assert (most.batch_size, most.lr, most.pairs_from, most.joint_epochs) == (1024, 0.007, 2, 4)


@pytest.mark.parametrize("n_documents", [1000, 1_000_000])
def test_given_settings_are_kept(n_documents: int) -> None:
    given = SiameseConfig(batch_size=7, lr=0.3, pairs_from=0, encoder_epochs=2, joint_epochs=3)
    assert fill_defaults(given, n_documents) == given
