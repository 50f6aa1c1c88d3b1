"""From input rows to data sets: keys, pairs, splits, side features, tokens, grades."""
