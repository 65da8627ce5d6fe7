"""Writes to a topic's stream with plain redis-py: a CloudEvent, a minimal one, and an entry that is not a CloudEvent."""

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
        "ce_source": "/other/producer",
        "ce_time": "2026-11-15T08:40:00Z",
        "ce_partitionkey": "客户 1",
        "ce_sequence": "7",
        "tenant": "北京",
        "ce_data": bytes([0, 255, 10]),
    },
)
client.xadd(stream, {"ce_id": second})
client.xadd(stream, {"hello": "world"})
