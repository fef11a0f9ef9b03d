"""A readable pure-Python codec, queue and filter.

It ships with no wheel. It is the oracle that the native core is compared with, and the pure-Python
line of the benchmarks, so it is written to be read first and to be reasonably quick second.
"""
