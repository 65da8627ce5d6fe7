"""Places an order. The order and its message are one transaction of this program's own database.

Needs nothing but Python. Tables: `landfall migrate` or `landfall serve` creates Landfall's.
"""

import json
import os
import sqlite3

DATABASE = os.environ.get("DATABASE", "landfall-data/landfall.db")

connection = sqlite3.connect(DATABASE, timeout=10)
connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, item TEXT)")

# Commits at the end of the block, or rolls back on an exception: both rows exist, or neither.
with connection:
    order = connection.execute("INSERT INTO orders (customer, item) VALUES (?, ?)", ("zoë", "book")).lastrowid
    payload = json.dumps({"order": order, "item": "book", "path": "a\\b"}, ensure_ascii=False)
    connection.execute(
        "INSERT INTO landfall_outbox (topic, key, kind, payload_text) VALUES (?, ?, ?, ?)",
        ("orders", "zoë", "OrderPlaced", payload),
    )
print(f"placed order {order}")
