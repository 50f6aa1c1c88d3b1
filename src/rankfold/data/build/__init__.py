"""From what was read to data sets: keys, pairs, splits, side features, tokens, grades."""
