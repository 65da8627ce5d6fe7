"""Places orders and announces them with half messages: plain HTTP and SQL, without an SDK.

    python3 orders.py 7 [--crash before-commit|after-commit]    places order 7; Landfall asks the database
    python3 orders.py serve                                     listens on $PORT (8081); Landfall asks POST /state
    curl -X POST 127.0.0.1:8081/orders/7                        places order 7

The barrier row is part of the order's transaction. If this program dies, Landfall asks what became of it: the database
itself, or the server, which reads the same row. Prefer the database; the server is for a Landfall that may not reach it.
The shop's database needs Landfall's tables: `landfall migrate --database-url sqlite:shop.db`.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import signal
import sqlite3
import sys
import time
import urllib.parse
import urllib.request
import uuid
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LANDFALL = os.environ.get("LANDFALL_URL", "http://127.0.0.1:7700")
SHOP = os.environ.get("SHOP", "shop.db")
SECRET = base64.b64decode(os.environ.get("SECRET", "").removeprefix("whsec_"))
DAY_MS = 24 * 3600 * 1000


def post(path, body=None):
    data = json.dumps(body).encode() if body else b""
    request = urllib.request.Request(LANDFALL + path, data, {"content-type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def uuid7():
    """A UUID that begins with the time. Landfall on PostgreSQL keeps and drops its rows by the day."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62))


def shop():
    return closing(sqlite3.connect(SHOP, timeout=10))


def place(order, check_back, crash_at=None):
    def crash(step):
        if step == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

    # The sender's own id makes a retry of this call the same message.
    half = uuid7()
    post("/v1/half-messages", {
        "id": half, "topic": "orders", "key": f"order-{order}", "kind": "OrderPlaced", "payload": {"order": order},
        "business_type": "order", "business_id": str(order), "check_back": check_back,
    })
    try:
        # Commits at the end of the block, or rolls back on an exception: the order and the barrier row, or neither.
        with shop() as connection, connection:
            connection.execute("INSERT INTO landfall_barrier (id) VALUES (?)", (half,))
            connection.execute("INSERT INTO orders (id) VALUES (?)", (order,))
            crash("before-commit")
    except sqlite3.IntegrityError:
        # The order exists, or a check-back has already decided that this transaction did not happen.
        post(f"/v1/half-messages/{half}/rollback")
        raise
    crash("after-commit")
    post(f"/v1/half-messages/{half}/commit")


def state(half):
    """What became of a local transaction, by its barrier row. A missing row is inserted as rolled back, so that a
    transaction that comes late fails instead of contradicting the answer."""
    with shop() as connection:
        with connection:
            # Waits for a transaction that is still running; an error after 10 seconds is answered as unknown.
            row = "INSERT INTO landfall_barrier (id, verdict) VALUES (?, 'rolled_back') ON CONFLICT DO NOTHING"
            is_new = connection.execute(row, (half,)).rowcount == 1
            # The row of a message this old may have been there and be removed. Leave it to a person.
            (removed,) = connection.execute("SELECT max(removed_before) FROM landfall_barrier_removed").fetchone()
            if is_new and removed is not None and (uuid.UUID(half).int >> 80) < removed + DAY_MS:
                connection.rollback()
                return "unknown"
        query = "SELECT verdict FROM landfall_barrier WHERE id = ?"
        return connection.execute(query, (half,)).fetchone()[0]


def is_signed(headers, body):
    """Verifies a Standard Webhooks signature."""
    message, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not seconds.isdecimal() or abs(time.time() - int(seconds)) > 300:
        return False
    signed = f"{message}.{seconds}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(one, expected) for one in given)


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urllib.parse.urlsplit(self.path)
        try:
            status, answer = self.answer(url, body)
        except Exception as error:  # An answer other than 200 is unknown, and Landfall asks again.
            status, answer = 500, {"error": str(error)}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def answer(self, url, body):
        if url.path == "/state":
            # A forged or damaged question decides nothing.
            if not is_signed(self.headers, body):
                return 401, {"error": "the signature is missing or wrong"}
            return 200, {"state": state(json.loads(body)["id"])}
        order = url.path.removeprefix("/orders/")
        if not order.isdecimal():
            return 404, {"error": "POST /orders/NUMBER or /state"}
        crash_at = urllib.parse.parse_qs(url.query).get("crash", [None])[0]
        place(int(order), {"http": f"http://127.0.0.1:{self.server.server_port}/state"}, crash_at)
        return 201, {"order": order}

    def log_message(self, *_):
        pass


with shop() as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
if sys.argv[1] == "serve":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8081"))), Shop)
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
order = int(sys.argv[1])
try:
    place(order, {"database": "shop"}, sys.argv[3] if sys.argv[2:3] == ["--crash"] else None)
except sqlite3.IntegrityError as error:
    sys.exit(f"order {order} was not placed: {error}")
print(f"placed order {order}")
