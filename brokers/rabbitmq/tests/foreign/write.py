"""write.py PORT EXCHANGE: publishes CloudEvents with pika, as a producer without Landfall does."""

import sys
import uuid

import pika

port, exchange = int(sys.argv[1]), sys.argv[2]
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
channel.confirm_delivery()
for number in range(3):
    headers = {
        "ce_specversion": "1.0",
        "ce_id": str(uuid.uuid4()),
        "ce_type": "shop.order.placed",
        "ce_source": "/legacy/shop",
        "ce_time": "2026-05-01T12:00:00Z",
        "ce_sequence": number,
        "tenant": "Zürich",
    }
    properties = pika.BasicProperties(headers=headers, content_type="application/json", delivery_mode=2)
    body = ('{"number": %d}' % number).encode()
    channel.basic_publish(exchange, "order-7", body, properties, mandatory=True)
connection.close()
