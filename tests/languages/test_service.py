"""payments_service.py: the contract of the key over HTTP, with the answer in the transaction of the debit."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from database import BALANCE, BLOCKED, EXAMPLES


class Service:
    def __init__(self, url):
        self._process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "python/payments_service.py"), "127.0.0.1:0"],
            env={**os.environ, "DATABASE_URL": url}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the service did not start"

    def pay(self, key='"k"', body=b'{"cents": 100}', token="alice-token", more=()):
        """The status, the headers and the body."""
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json", **dict(more)}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = urllib.request.Request(self.url + "/payments", data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def service(slow_database):
    service = Service(slow_database.programs_url())
    yield service
    service.kill()


def code(answer):
    status, headers, body = answer
    assert headers["Content-Type"] == "application/problem+json", body
    told = json.loads(body)
    assert told["status"] == status
    return status, told["code"]


def test_a_retry_gets_the_answer_byte_for_byte(service, slow_database):
    status, headers, body = service.pay()
    assert (status, headers["Idempotent-Replayed"]) == (201, None)
    for key in ('"k"', "k"):  # bare is the same key
        again, headers, same = service.pay(key)
        assert (again, headers["Idempotent-Replayed"], same) == (201, "true", body)
    assert slow_database.ledger() == (BALANCE - 100, 1, 100)


def test_refusals_are_kept_too(service):
    status, _, body = service.pay(body=b'{"cents": %d}' % (BALANCE + 1))
    assert status == 402
    assert service.pay(body=b'{"cents": %d}' % (BALANCE + 1))[2] == body
    assert service.pay('"l"', b'{"cents": 1.5}')[0] == 422
    assert service.pay('"l"', b'{"cents": 1.5}')[1]["Idempotent-Replayed"] == "true"


def test_another_body_under_the_same_key_is_refused(service, slow_database):
    service.pay()
    assert code(service.pay(body=b'{"cents": 101}')) == (422, "key-reused")
    assert slow_database.ledger()[1] == 1


def test_a_key_is_needed_and_never_guessed_at(service, slow_database):
    assert code(service.pay(None)) == (400, "key-missing")
    for malformed in ('""', '"a', "a,b", "a b", '"a", "b"', '"%s"' % ("k" * 256), "k\u00e9"):
        assert code(service.pay(malformed)) == (400, "key-malformed"), malformed
    assert service.pay('"%s"' % ("k" * 255))[0] == 201
    assert slow_database.ledger()[1] == 1


def test_a_caller_who_is_not_known_meets_no_key(service, slow_database):
    service.pay()
    assert service.pay(token="nobody")[0] == 401
    with slow_database.owner() as owner:
        owner.execute("INSERT INTO accounts VALUES ('bob', 500, sha256('bob-token'))")
    assert service.pay(token="bob-token")[:1] == (201,)  # the same key of somebody else is another key
    assert slow_database.ask("SELECT balance_cents FROM accounts WHERE id = 'bob'") == (400,)


def test_while_the_first_runs_the_others_are_told_at_once(service, slow_database):
    with ThreadPoolExecutor(1) as other, slow_database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED["after the debit"])
        first = other.submit(service.pay)
        slow_database.wait_until_blocked(1)
        for _ in range(3):
            answer = service.pay()
            assert code(answer) == (409, "in-flight")
            assert int(answer[1]["Retry-After"]) >= 1
        blocker.commit()
        assert first.result()[0] == 201
    assert service.pay()[1]["Idempotent-Replayed"] == "true"
    assert slow_database.ledger() == (BALANCE - 100, 1, 100)


@pytest.mark.parametrize("place", BLOCKED)
def test_killed_in_the_middle_it_has_charged_once_or_not_at_all(service, slow_database, place):
    with ThreadPoolExecutor(1) as other, slow_database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED[place])
        first = other.submit(service.pay)
        pid, = slow_database.wait_until_blocked(1)
        service.kill()
        with pytest.raises(OSError):
            first.result()
        blocker.commit()
    slow_database.wait_until_gone(pid)
    again = Service(slow_database.programs_url())
    try:
        status, headers, _ = again.pay()
        assert (status, headers["Idempotent-Replayed"]) == (201, "true" if place == "in COMMIT" else None)
    finally:
        again.kill()
    assert slow_database.ledger() == (BALANCE - 100, 1, 100)


def test_without_a_database_nothing_is_promised():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    service = Service("postgres://payments_app:x@%s:%d/x" % address)
    try:
        answer = service.pay()
        assert code(answer) == (503, "store-unavailable")
        assert json.loads(answer[2])["effect"] == "unknown"
        assert answer[1]["Retry-After"] == "1"
    finally:
        service.kill()


def test_what_is_cut_or_too_long_is_not_run(service, slow_database):
    assert code(service.pay(body=b" " * 65537)) == (413, "body-too-large")
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as cut:
        cut.sendall(b'POST /payments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n'
                    b'Idempotency-Key: "k"\r\nContent-Length: 14\r\n\r\n{"cents"')
        cut.shutdown(socket.SHUT_WR)
        assert cut.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert slow_database.ledger()[1] == 0
