"""Spaces of columns that were not declared: from their types, from noisy counts, or read off the data.

`from_data` has the spaces that types determine, and those read off the data. Private inference is `private`: it counts
all columns in rounds. Each column is a `column.Task`, which says what is counted, and makes the space from the noisy
counts (`numbers`, `vectors`, `categories`, `objects`). `cost` calibrates the noise of the histograms. A plan stores
their cost (`histogram_specs`) and their counts (`inferred`), and `proof` checks both.

Bounds of numbers follow from `grids` of `cells`, by `ranges`. `number_counts` compares counts with the bounds, and
`findings` says from the same counts which columns were not found, why, and what helps.
"""
