"""Tables past one machine: Dask and Spark, which retry and recompute at will, under one key.

An engine reads rows, moves bytes and starts work; `dpframe.tables` randomises the rows. Each row has an address: its
position in the table, or a keyed hash of its id. Its noise, its position in the shuffled order and its part in the
secret sample are functions of the key and the address, so that partitions, retries and repeated actions change nothing.

A release takes two passes. The first pass counts rows and measured tables, and computes the digest and a keyed check of
each bucket of the shuffled order. The second pass collects the randomised and encrypted rows of each bucket, compares
them with the check, and orders them. So no second version of a row ever leaves under one key.
"""
