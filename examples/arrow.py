"""Decode a pull response straight into Arrow columns (needs pyarrow).

python arrow.py FILE
"""

import argparse
import pathlib

import pyarrow as pa

import rocketmq_fast as rmq

parser = argparse.ArgumentParser(description="Decode a pull response into Arrow columns.")
parser.add_argument("file", type=pathlib.Path, help="such as tests/golden/stored_v4_9_4.bin")
body = parser.parse_args().file.read_bytes()
# Only the named columns are built. The object speaks the Arrow C data interface, so that polars,
# DuckDB and others take it as well.
columns = rmq.decode_arrow(body, columns=["topic", "queueId", "queueOffset", "tags", "body"])
table = pa.record_batch(columns)
print(table.schema)
print(table.num_rows, "rows,", len(columns.errors), "messages that could not be decoded")
