"""Places an order and announces it with a half message over a Kafka topic, with Confluent's client and no SDK.

    python3 orders_kafka.py 7 [--crash before-commit|after-commit]

Needs `pip install confluent-kafka`, and a daemon with check_back.topic = "look_back_msg". The barrier row is part of
the order's transaction. If this program dies, Landfall asks the database what became of it.
The shop's database needs Landfall's tables: `landfall migrate --database-url sqlite:shop.db`.
"""

import json
import os
import signal
import sqlite3
import sys
import uuid

from confluent_kafka import Producer

SERVERS = os.environ.get("KAFKA_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("HALF_TOPIC", "look_back_msg")
SHOP = os.environ.get("SHOP", "shop.db")
CRASH = sys.argv[3] if sys.argv[2:3] == ["--crash"] else None

producer = Producer({"bootstrap.servers": SERVERS, "acks": "all", "enable.idempotence": True})


def send(action, half, business_id, **fields):
    """Returns after every replica in sync has the message."""
    body = {"action": action, "id": half, "business_type": "order", "business_id": business_id, **fields}
    errors = []
    producer.produce(
        TOPIC,
        json.dumps(body).encode(),
        # All messages of one order are in one partition, so that they arrive in order.
        key=business_id.encode(),
        # The coordinator's inbox recognises a repeated message by this.
        headers=[("ce_id", f"{half}/{action}")],
        on_delivery=lambda error, _: errors.append(error) if error else None,
    )
    if producer.flush(30) or errors:
        raise SystemExit(f"{action} of order {business_id} was not sent: {errors or 'no answer from Kafka'}")


def crash(step):
    if step == CRASH:
        os.kill(os.getpid(), signal.SIGKILL)


order = int(sys.argv[1])
half = str(uuid.uuid4())
send("prepare", half, str(order), topic="orders", key=f"order-{order}", kind="OrderPlaced", payload={"order": order},
     check_back={"database": "shop"})

shop = sqlite3.connect(SHOP, timeout=10)
shop.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
try:
    # Commits at the end of the block, or rolls back on an exception: the order and the barrier row, or neither.
    with shop:
        shop.execute("INSERT INTO landfall_barrier (id) VALUES (?)", (half,))
        shop.execute("INSERT INTO orders (id) VALUES (?)", (order,))
        crash("before-commit")
except sqlite3.IntegrityError as error:
    # The order exists, or a check-back has already decided that this transaction did not happen.
    send("rollback", half, str(order))
    sys.exit(f"order {order} was not placed: {error}")
crash("after-commit")
send("commit", half, str(order))
print(f"placed order {order}")
