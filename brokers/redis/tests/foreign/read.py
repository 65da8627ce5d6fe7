"""Reads all entries of a topic's streams with plain redis-py, and prints each as one line of JSON."""

import json
import sys

import redis

port, prefix, topic = int(sys.argv[1]), sys.argv[2], sys.argv[3]
client = redis.Redis(port=port)
partitions = int(client.hget(prefix + "topics", topic))
for partition in range(partitions):
    stream = f"{prefix}{{{topic}/{partition}}}"
    for entry, fields in client.xrange(stream):
        headers = {name.decode(): value.decode() for name, value in fields.items() if name != b"ce_data"}
        print(json.dumps({"entry": entry.decode(), "headers": headers, "payload": fields[b"ce_data"].hex()}))
