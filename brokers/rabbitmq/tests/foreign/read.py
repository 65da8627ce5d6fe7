"""read.py PORT QUEUE COUNT: consumes messages with pika and prints each as one line of JSON."""

import base64
import json
import sys

import pika

port, queue, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
for method, properties, body in channel.consume(queue, inactivity_timeout=30):
    if method is None:
        sys.exit("no message arrived")
    line = {
        "headers": properties.headers,
        "message_id": properties.message_id,
        "delivery_mode": properties.delivery_mode,
        "body": base64.b64encode(body).decode(),
    }
    print(json.dumps(line))
    channel.basic_ack(method.delivery_tag)
    count -= 1
    if count == 0:
        break
connection.close()
