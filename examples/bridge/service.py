"""A service that books orders. It knows nothing of brokers: each message comes as one POST from `semel bridge`.

    python3 service.py [PORT]

What it answers decides what becomes of the message: 201 it is done, 503 it is tried again later, 422 it goes among the
dead letters. The Idempotency-Key is the message's id, the same on every attempt. Only the standard library is used.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCOUNTS = {"a-1": 0, "a-2": 0}


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key, attempt = self.headers["Idempotency-Key"], self.headers["Semel-Attempt"]
        try:
            order = json.loads(body)
            account, cents = order["account"], int(order["cents"])
        except (ValueError, KeyError, TypeError) as error:
            return self.answer(422, f"no order: {error!r}")
        if account not in ACCOUNTS:
            return self.answer(422, f"no account {account}")
        if order.get("flaky") and attempt == "1":
            return self.answer(503, "the ledger is being moved", ("Retry-After", "1"))
        ACCOUNTS[account] += cents
        print(f"booked {cents} on {account} under {key}, attempt {attempt}: {ACCOUNTS[account]}", flush=True)
        self.answer(201, "booked")

    def answer(self, status, text, *headers):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    print(f"orders on http://127.0.0.1:{port}/orders", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Orders).serve_forever()
