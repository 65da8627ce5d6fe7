"""Receives orders over HTTP and reserves stock, once per message.

Landfall posts a message until it is confirmed, so a message may arrive twice. The record of its id and its effect are one
transaction: a second delivery finds the record and changes nothing.
"""

import json
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer

connection = sqlite3.connect(os.environ.get("DATABASE", "stock.db"))
connection.executescript("""
    CREATE TABLE IF NOT EXISTS handled (message_id TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, free INTEGER);
    INSERT OR IGNORE INTO stock VALUES ('book', 10);
""")


class Orders(BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with connection:
            insert = "INSERT INTO handled VALUES (?) ON CONFLICT DO NOTHING"
            is_new = connection.execute(insert, (self.headers["idempotency-key"],)).rowcount == 1
            if is_new:
                connection.execute("UPDATE stock SET free = free - 1 WHERE item = ?", (order["item"],))
        (free,) = connection.execute("SELECT free FROM stock WHERE item = ?", (order["item"],)).fetchone()
        print(f"order {order['order']}: {'reserved' if is_new else 'duplicate'}, {free} left", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Orders)
print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
