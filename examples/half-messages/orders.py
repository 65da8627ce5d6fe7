"""Places an order and announces it with a half message: plain HTTP and SQL, without an SDK.

    python3 orders.py 7 [--crash before-commit|after-commit]

The barrier row is part of the order's transaction. If this program dies, Landfall asks the database what became of it.
The shop's database needs Landfall's tables: `landfall migrate --database-url sqlite:shop.db`.
"""

import json
import os
import signal
import sqlite3
import sys
import urllib.request
import uuid

LANDFALL = os.environ.get("LANDFALL_URL", "http://127.0.0.1:7700")
SHOP = os.environ.get("SHOP", "shop.db")
CRASH = sys.argv[3] if sys.argv[2:3] == ["--crash"] else None


def post(path, body=None):
    data = json.dumps(body).encode() if body else b""
    request = urllib.request.Request(LANDFALL + path, data, {"content-type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def crash(step):
    if step == CRASH:
        os.kill(os.getpid(), signal.SIGKILL)


order = int(sys.argv[1])
# The sender's own id makes a retry of this call the same message.
half = str(uuid.uuid4())
post("/v1/half-messages", {
    "id": half, "topic": "orders", "key": f"order-{order}", "kind": "OrderPlaced", "payload": {"order": order},
    "business_type": "order", "business_id": str(order), "check_back": {"database": "shop"},
})

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
    post(f"/v1/half-messages/{half}/rollback")
    sys.exit(f"order {order} was not placed: {error}")
crash("after-commit")
post(f"/v1/half-messages/{half}/commit")
print(f"placed order {order}")
