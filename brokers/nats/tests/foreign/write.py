"""Writes to a subject with nats-py: a CloudEvent, one with encoded values, and a message that is not a CloudEvent."""

import asyncio
import sys

import nats


async def main(url, subject):
    client = await nats.connect(url)
    stream = client.jetstream()
    plain = {
        "ce_specversion": "1.0",
        "ce_id": "0199b3a0-0000-7000-8000-000000000001",
        "ce_type": "OrderPlaced",
        "ce_source": "/checkout",
        "ce_time": "2026-11-15T08:00:00Z",
        "ce_partitionkey": "order-7",
        "ce_sequence": "3",
        "tenant": "acme",
    }
    await stream.publish(subject, b'{"total": 42}', headers=plain)
    encoded = {"ce_id": "0199b3a0-0000-7000-8000-000000000002", "ce_type": "Order%20placed", "tenant": "100%25 %E5%8C%97"}
    await stream.publish(subject, b"\x00\xff", headers=encoded)
    await stream.publish(subject, b"hello")
    await client.close()


asyncio.run(main(sys.argv[1], sys.argv[2]))
