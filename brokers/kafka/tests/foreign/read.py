"""Reads COUNT records of TOPIC and prints each as a line of JSON."""
import json
import sys

from confluent_kafka import Consumer

servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": servers, "group.id": "foreign", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
while count:
    record = consumer.poll(1)
    if record is None:
        continue
    if record.error():
        print(record.error(), file=sys.stderr)
        continue
    headers = {name: value.decode() for name, value in record.headers() or []}
    key = record.key().decode() if record.key() is not None else None
    print(json.dumps({"key": key, "payload": record.value().decode(), "headers": headers, "partition": record.partition()}))
    count -= 1
consumer.close()
