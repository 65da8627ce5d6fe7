"""A client of the example shop, with the standard library only.

It sends each request again until it gets an answer, under the same Idempotency-Key. The network in front of the shop
loses every third request, and the answer of every third one.

    python3 client.py http://127.0.0.1:PORT
"""

import http.client
import json
import sys
import threading
import urllib.error
import urllib.request

SHOP = sys.argv[1]


def call(path, body, **headers):
    """Returns status, body, headers and the number of attempts."""
    request = urllib.request.Request(SHOP + path, data=json.dumps(body).encode(), method="POST")
    request.add_header("Authorization", "Bearer ann")
    request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    for attempt in range(1, 30):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers, attempt
        except urllib.error.HTTPError as error:
            # 409 with Retry-After: another attempt is running. Everything else is an answer.
            if error.status != 409 or "Retry-After" not in error.headers:
                return error.status, error.read().decode(), error.headers, attempt
        except (http.client.HTTPException, OSError):
            pass  # No answer: send it again.
    raise SystemExit(f"no answer to {path}")


def show(what, path, body, **headers):
    status, text, answered, attempts = call(path, body, **headers)
    replayed = ", replayed" if answered.get("Idempotent-Replayed") else ""
    print(f"{what}: {status} after {attempts} attempts{replayed}", flush=True)
    return text


# The record is in the transaction of the order: its row and its message are written once.
for order in (1, 2, 3):
    show(f"place order {order}", "/orders", {"euro": 10 * order}, Idempotency_Key=f"order-{order}")
show("another order under a used key", "/orders", {"euro": 99}, Idempotency_Key="order-1")

# A record with a lease, around the bank. The state of the order says whether it may be paid.
for order in (1, 2, 3):
    show(f"pay order {order}", f"/orders/{order}/pay", {}, Idempotency_Key=f"pay-{order}")
show("pay order 3 again", "/orders/3/pay", {}, Idempotency_Key="pay-3-again")
show("pay order 1 under a new key", "/orders/1/pay", {}, Idempotency_Key="pay-1-again")

# A one-time token, for a client without a key of its own.
token = json.loads(show("open the refund form", "/orders/2/refund-form", {}))["token"]
show("refund order 2", "/orders/2/refund", {}, Idempotent_Token=token)
show("refund order 1 with that token", "/orders/1/refund", {}, Idempotent_Token=token)

# A time window: a repeat is suppressed, and gets no stored answer.
show("send a code", "/codes", {"phone": "+49 170 1"})
# A lock: reports never overlap, but each attempt that arrives writes one.
show("write a report", "/reports", {})

# Ten at once, with one key.
answers = []
placing = lambda: answers.append(call("/orders", {"euro": 40}, Idempotency_Key="order-4")[:2])
threads = [threading.Thread(target=placing) for _ in range(10)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"ten clients at once: {len(answers)} answers, {len(set(answers))} different", flush=True)
