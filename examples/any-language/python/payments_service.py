"""A payment service that charges once, however often it is asked.

    DATABASE_URL=postgres://... python payments_service.py 127.0.0.1:3000
    curl -i http://127.0.0.1:3000/payments -H 'Authorization: Bearer TOKEN' -H 'Idempotency-Key: "order-77"' \
        -H 'Content-Type: application/json' -d '{"cents": 1200}'

Key, debit and answer commit together. A retry gets the same answer, byte for byte, with `Idempotent-Replayed: true`;
one that comes while the first still runs is told so at once. The refusals are those of `semel gateway`.

It opens a connection for each request. A service with much to do takes them from a pool.
"""

import hashlib
import json
import os
import re
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import psycopg

from payment import AGAIN, debit

BODY_BYTES_MAX = 65536

ACCOUNT = "SELECT id FROM accounts WHERE token_hash = %s"
CLAIM = """
    SELECT claim, fence, outcome, retry_after_ms
    FROM semel.once(%(scope)s, %(key)s, %(attempt)s, semel.fingerprint('POST', '/payments', %(body)s), twin => 'refuse')
"""
COMPLETE = "SELECT semel.complete(%(scope)s, %(key)s, %(fence)s, %(attempt)s, %(outcome)s)"


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict = {}

    def kept(self):
        """As the outcome of the key: what comes first is the status."""
        return b"%d %b" % (self.status, self.body)


def replay_of(outcome):
    status, body = bytes(outcome).split(b" ", 1)
    return Answer(int(status), body, {"Content-Type": "application/json", "Idempotent-Replayed": "true"})


def problem(status, code, title, retryable, effect, retry_after=None):
    """A refusal: whether the same request may be sent again, and what the operation has done."""
    told = {"type": f"urn:semel:problem:{code}", "title": title, "status": status, "code": code,
            "retryable": retryable, "effect": effect}
    headers = {"Content-Type": "application/problem+json"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return Answer(status, json.dumps(told).encode(), headers)


REFUSALS = {
    "mismatch": problem(422, "key-reused", "The key belongs to another request", False, "none"),
    "forgotten": problem(410, "key-expired", "The operation was done, and its answer is gone", False, "done"),
    "unknown": problem(409, "outcome-unknown", "Whether the operation took effect is not known", True, "unknown"),
    "dead": problem(409, "attempts-exhausted", "The operation was given up", False, "unknown"),
}
MISSING = problem(400, "key-missing", "An Idempotency-Key is required", False, "none")
MALFORMED = problem(400, "key-malformed", "The Idempotency-Key cannot be read", False, "none")
UNAVAILABLE = problem(503, "store-unavailable", "The key cannot be checked now", True, "unknown", 1)


class Unreadable(Exception):
    """The answer to a request that is not understood: `args[0]`."""


def key_of(lines):
    """The key, in quotes or bare. Anything else is refused, never guessed at."""
    if not lines:
        raise Unreadable(MISSING)
    found = re.fullmatch(r'"([ !#-\[\]-~]{1,255})"|([!#-+\--:<-\[\]-~]{1,255})', lines[0].strip())
    if len(lines) > 1 or not found:
        raise Unreadable(MALFORMED)
    return found[1] or found[2]


def cents_of(body):
    try:
        cents = json.loads(body)["cents"]
    except (ValueError, LookupError, TypeError):
        cents = None
    if type(cents) is not int or not 0 < cents < 2**53:
        return None
    return cents


def answer_in(connection, account, body):
    """The effect and its answer. Every answer is kept; what raises rolls everything back, and the key with it."""
    cents = cents_of(body)
    if cents is None:
        return Answer(422, b'{"error": "cents is a number above 0"}\n', {"Content-Type": "application/json"})
    receipt = debit(connection, account, cents)
    status = 402 if receipt.startswith("declined") else 201
    return Answer(status, json.dumps({"receipt": receipt}).encode() + b"\n", {"Content-Type": "application/json"})


# begin: once
def pay_in(connection, attempt, token, key, body):
    row = connection.execute(ACCOUNT, [hashlib.sha256(token.encode()).digest()]).fetchone()
    if row is None:
        return Answer(401, b"", {"WWW-Authenticate": "Bearer"})
    account = row[0]
    # The caller is part of the scope: nobody meets somebody else's keys.
    asked = {"scope": f"payments/{account}", "key": key, "attempt": attempt, "body": body}
    claim, fence, outcome, retry_after_ms = connection.execute(CLAIM, asked).fetchone()
    if claim == "completed":
        return replay_of(outcome)
    if claim == "in-flight":
        seconds = max(1, -(-retry_after_ms // 1000))
        return problem(409, "in-flight", "The first request is still running", True, "unknown", seconds)
    if claim != "acquired":
        return REFUSALS[claim]
    answer = answer_in(connection, account, body)
    connection.execute(COMPLETE, {**asked, "fence": fence, "outcome": answer.kept()})
    return answer
# end: once


def pay(url, token, key, body):
    attempt = uuid.uuid4()
    for pause in (0.1, 0.2, 0.4, None):
        try:
            with psycopg.connect(url, connect_timeout=5) as connection:
                return pay_in(connection, attempt, token, key, body)
        except AGAIN as error:
            if pause is None:
                print(f"payments: {error}", file=sys.stderr)
                return UNAVAILABLE
            time.sleep(pause)


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self):
        try:
            answer = self.answer()
        except Unreadable as unreadable:
            answer = unreadable.args[0]
            self.close_connection = True  # the body may still lie in it
        except psycopg.Error as error:
            # The database said no, so nothing was committed: the key is as it was.
            print(f"payments: {error}", file=sys.stderr)
            answer = Answer(500, b"")
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def answer(self):
        if self.path != "/payments":
            raise Unreadable(Answer(404, b""))
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unreadable(Answer(401, b"", {"WWW-Authenticate": "Bearer"}))
        key = key_of(self.headers.get_all("Idempotency-Key"))
        return pay(os.environ["DATABASE_URL"], token, key, self.body())

    def body(self):
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Unreadable(Answer(411, b""))
        if int(length) > BODY_BYTES_MAX:
            raise Unreadable(problem(413, "body-too-large", "The body is too large", False, "none"))
        read = self.rfile.read(int(length))
        try:
            text = read.decode()
        except UnicodeDecodeError:
            text = "\0"
        # Shorter than it said: it was cut, and nothing is done for half a request. PostgreSQL's text has no NUL.
        if len(read) < int(length) or "\0" in text:
            raise Unreadable(Answer(400, b""))
        return text


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Payments)
    print("http://%s:%d" % server.server_address[:2], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
