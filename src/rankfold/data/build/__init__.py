"""From what was read to prepared data: keys, pairs, splits, side features, grades."""
