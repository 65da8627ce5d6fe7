"""Writes a CloudEvent with the id ID and a record that is not a CloudEvent to TOPIC; prints the position of each."""
import json
import sys

from confluent_kafka import Producer

servers, topic, event_id = sys.argv[1:4]
producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
positions = []


def report(error, record):
    if error:
        raise SystemExit(str(error))
    positions.append({"partition": record.partition(), "offset": record.offset()})


headers = [
    ("ce_specversion", "1.0"),
    ("ce_id", event_id),
    ("ce_type", "OrderPaid"),
    ("ce_source", "/bank"),
    ("ce_time", "2026-11-15T08:00:00Z"),
    ("ce_sequence", "4"),
    ("tenant", "Köln".encode()),
]
producer.produce(topic, b"\x00\xffpaid", key="客户 7".encode(), headers=headers, on_delivery=report)
producer.flush()
producer.produce(topic, b"hello", key=b"x", on_delivery=report)
producer.flush()
for position in positions:
    print(json.dumps(position))
