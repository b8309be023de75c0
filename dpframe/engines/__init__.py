"""Tables past one machine: Dask and Spark, which retry and recompute at will, under one key.

An engine reads rows, moves bytes and starts work; what is done with rows is `release`'s and `tables`'s. Each row has an
address, its place in the table or a keyed hash of its id, and its noise, its place in the shuffled order and in the
secret sample are functions of the key and that address. So partitions, retries and repeated actions change nothing.

A release takes two passes. The first counts: rows, the digest, the measured tables, and a
keyed check of each bucket of the shuffled order. The second brings the rows of each bucket together, randomised and
encrypted, compares them with that check, so that no second version of a row ever leaves under one key, and orders them.
"""
