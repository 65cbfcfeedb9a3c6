"""A small fake of the Stripe endpoints that the `stripe` package calls.

It forgets nothing and recognises no key: a request that arrives twice charges twice. So its ledger shows what
the gateway let through, and nothing else protects the card.
"""

import json
import os
import sys
import threading
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from sockets import close_at_once

OBJECTS = {"/v1/charges": "charge", "/v1/payment_intents": "payment_intent", "/v1/refunds": "refund"}
PREFIXES = {"charge": "ch", "payment_intent": "pi", "refund": "re"}


@dataclass
class Plan:
    """What happens to one POST after its effect is in the ledger. Without a plan it is answered at once."""

    cut: bool = False                      # close the connection, answer nothing
    hold: "threading.Event | None" = None  # answer only when this is set


@dataclass
class Effect:
    key: "str | None"  # the Idempotency-Key as it arrived, quotes and all
    object: dict
    headers: dict


class FakeStripe:
    """Runs in a thread of this process; `ledger` lists every effect in order."""

    HOLD_SECONDS_MAX = 30  # a test that fails must not leave a request hanging for ever

    def __init__(self):
        self.ledger: list[Effect] = []
        self._plans: list[Plan] = []
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self.url = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def plan(self, plan):
        """The next POST follows `plan`; plans wait in line."""
        with self._changed:
            self._plans.append(plan)

    def cut_next(self):
        self.plan(Plan(cut=True))

    def hold_next(self):
        """The next POST takes effect and is answered when the returned event is set."""
        hold = threading.Event()
        self.plan(Plan(hold=hold))
        return hold

    def wait_for_effects(self, count, timeout=20):
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.ledger) >= count, timeout):
                raise AssertionError("%d effects after %d s, wanted %d" % (len(self.ledger), timeout, count))

    def record(self, effect):
        """Commits the effect and hands out what happens next, in one step, so that plans meet requests in order."""
        with self._changed:
            self.ledger.append(effect)
            self._changed.notify_all()
            return self._plans.pop(0) if self._plans else Plan()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # Connections end in the middle here on purpose; anything else is a fault of this file.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler_of(fake):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            if path == "/v1/receipts":
                return self._effect({"object": "receipt"}, os.urandom(2048), "application/pdf")
            if path not in OBJECTS:
                return self._not_found()
            fields = dict(parse_qsl(body.decode()))
            if "amount" not in fields:
                return self._answer(400, {"error": {
                    "type": "invalid_request_error", "code": "parameter_missing", "param": "amount",
                    "message": "Missing required param: amount."}})
            made = _made(OBJECTS[path], fields)
            self._effect(made, json.dumps(made).encode(), "application/json")

        def do_GET(self):
            kind = OBJECTS.get(urlsplit(self.path).path)
            if kind is None:
                return self._not_found()
            found = [effect.object for effect in reversed(fake.ledger) if effect.object["object"] == kind]
            self._answer(200, {"object": "list", "url": self.path, "has_more": False, "data": found})

        def _effect(self, made, body, content_type):
            plan = fake.record(Effect(self.headers.get("Idempotency-Key"), made, dict(self.headers)))
            if plan.hold:
                plan.hold.wait(fake.HOLD_SECONDS_MAX)
            if plan.cut:
                self.close_connection = True
                return close_at_once(self.connection)
            self._send(200, body, content_type)

        def _not_found(self):
            self._answer(404, {"error": {"type": "invalid_request_error", "message": "Unrecognized request URL."}})

        def _answer(self, status, value):
            self._send(status, json.dumps(value).encode(), "application/json")

        def _send(self, status, body, content_type):
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Request-Id", "req_" + uuid.uuid4().hex[:14])
            # Two lines of one name: a replay must keep them two.
            self.send_header("Link", "</v1/terms>; rel=\"terms-of-service\"")
            self.send_header("Link", "</v1/help>; rel=\"help\"")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def _made(kind, fields):
    return {
        "id": "%s_%s" % (PREFIXES[kind], uuid.uuid4().hex[:24]),
        "object": kind,
        "amount": int(fields["amount"]),
        "currency": fields.get("currency", "usd"),
        "status": "succeeded",
    }
