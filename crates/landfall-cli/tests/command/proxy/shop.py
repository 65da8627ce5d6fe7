"""A shop without any deduplication: each request that arrives adds one line to effects.txt."""

import http.server
import json
import os
import signal


class Shop(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("X-Behave") == "die-before":
            os.kill(os.getpid(), signal.SIGKILL)
        with open("effects.txt", "a+") as effects:
            effects.write(self.path + "\n")
            effects.flush()
            effects.seek(0)
            number = len(effects.readlines())
        if self.headers.get("X-Behave") == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = json.dumps({"paid": number, "key": self.headers["Idempotency-Key"]}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
print("listening on 127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
