"""Writes to a topic's stream with redis-py alone: an event, one with as little as possible, and one that is no event."""

import sys

import redis

port, prefix, topic, first, second = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5]
client = redis.Redis(port=port)
stream = f"{prefix}{{{topic}/0}}"
client.xadd(
    stream,
    {
        "ce_specversion": "1.0",
        "ce_id": first,
        "ce_type": "OrderPlaced",
        "ce_source": "/somebody/else",
        "ce_time": "2026-11-15T08:40:00Z",
        "ce_partitionkey": "客户 1",
        "ce_sequence": "7",
        "tenant": "北京",
        "ce_data": bytes([0, 255, 10]),
    },
)
client.xadd(stream, {"ce_id": second})
client.xadd(stream, {"hello": "world"})
