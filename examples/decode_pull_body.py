"""Decode the body of a pull response from a file: the codec works without any connection.

python decode_pull_body.py FILE
"""

import argparse
import pathlib

import rocketmq_fast as rmq

parser = argparse.ArgumentParser(description="Decode the body of a pull response.")
parser.add_argument("file", type=pathlib.Path, help="such as tests/golden/stored_v4_9_4.bin")
batch = rmq.decode_messages(parser.parse_args().file.read_bytes(), check_crc=True)
print(len(batch), "messages,", batch.body_bytes, "bytes of bodies as stored")
print("queue offsets", batch.queue_offsets)  # a numpy array over the decoder's memory
for message in batch[:3]:
    print(message.topic, message.queue_id, message.queue_offset, message.tags, message.keys)
for position, queue_offset, reason in batch.errors:
    print("at byte", position, "offset", queue_offset, reason)
matches = rmq.TagFilter("TagA || TagB").mask(batch)
print(int(matches.sum()), "messages have the tag TagA or TagB")
