"""Decode a pull response straight into Arrow columns (needs pyarrow).

    python arrow.py FILE
"""

import pathlib
import sys

import pyarrow as pa

import rocketmq_fast as rmq

body = pathlib.Path(sys.argv[1]).read_bytes()
# Only the named columns are built. The object speaks the Arrow C data interface, so that polars,
# DuckDB and others take it as well.
columns = rmq.decode_arrow(body, columns=["topic", "queueId", "queueOffset", "tags", "body"])
table = pa.record_batch(columns)
print(table.schema)
print(table.num_rows, "rows,", len(columns.errors), "messages that could not be decoded")
