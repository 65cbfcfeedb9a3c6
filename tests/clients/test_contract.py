"""The contract as each HTTP client sees it, against the real gateway."""

import threading

import pytest

from http_clients import CLIENTS, REPLAYED, TEN_EUROS, by_httpx


@pytest.fixture(params=CLIENTS)
def client(request):
    return CLIENTS[request.param]


@pytest.fixture
def post(request, client, certificate):
    """Posts a charge to the gateway; keys are given as they stand on the header line."""
    gateway = request.getfixturevalue("tls_gateway" if client.tls else "gateway")

    def send(*keys, body=TEN_EUROS, path="/v1/charges"):
        trusted = str(certificate.file) if client.tls else None
        answer = client.post(gateway.url + path, [("Idempotency-Key", key) for key in keys], body, trusted)
        assert answer.version == client.version
        return answer

    return send


def lasting(headers):
    """Header lines in order, without what is made anew for every answer, and the first request's own id."""
    fresh = {"request-id", "date", "connection", "keep-alive", "transfer-encoding", "content-length", REPLAYED.lower()}
    return sorted((name, value) for name, value in headers.multi_items() if name not in fresh)


@pytest.mark.parametrize("path", ["/v1/charges", "/v1/receipts"], ids=["text", "binary"])
def test_a_replay_is_the_first_answer_byte_for_byte(fake, client, post, path):
    fresh, replay = post('"order-1"', path=path), post('"order-1"', path=path)
    assert fresh.status == replay.status == 200
    assert REPLAYED not in fresh.headers
    assert replay.headers[REPLAYED] == "true"
    assert replay.body == fresh.body
    assert lasting(replay.headers) == lasting(fresh.headers)
    assert len(replay.headers.get_list("Link")) == (1 if client.joins_lines else 2)
    assert len(fake.ledger) == 1


def test_quoted_and_bare_key_are_the_same_key(fake, post):
    fresh, replay = post('"order-2"'), post("order-2")
    assert replay.headers[REPLAYED] == "true"
    assert replay.body == fresh.body
    assert len(fake.ledger) == 1


def test_without_a_key_every_request_runs(fake, post):
    assert post().body != post().body
    assert len(fake.ledger) == 2


def test_another_body_under_the_same_key_is_422(fake, post):
    post('"order-3"')
    refused = post('"order-3"', body="amount=9000&currency=eur")
    problem = refused.problem()
    assert refused.status == problem["status"] == 422
    assert problem["type"] == "urn:semel:problem:key-reused"
    assert (problem["code"], problem["retryable"], problem["effect"]) == ("key-reused", False, "none")
    assert len(fake.ledger) == 1


@pytest.mark.parametrize("keys", [
    ('"order-4"', '"order-4"'),
    ('"order-4"', '"order-5"'),
    ('"order-4", "order-5"',),
    ('"order-4',),
    ('""',),
    ('"%s"' % ("k" * 256),),
], ids=["same key twice", "two keys", "a list", "a broken quote", "empty", "too long"])
def test_a_malformed_key_is_400_and_runs_nothing(fake, post, keys):
    refused = post(*keys)
    problem = refused.problem()
    assert refused.status == problem["status"] == 400
    assert (problem["code"], problem["retryable"], problem["effect"]) == ("key-malformed", False, "none")
    assert fake.ledger == []


def test_in_flight_is_409_with_retry_after_and_then_the_answer(fake, post):
    hold = fake.hold_next()
    firsts = []
    first_caller = threading.Thread(target=lambda: firsts.append(post('"order-6"')))
    first_caller.start()
    fake.wait_for_effects(1)
    refused = post('"order-6"')
    hold.set()
    first_caller.join(30)
    replay = post('"order-6"')

    problem = refused.problem()
    assert refused.status == problem["status"] == 409
    assert (problem["code"], problem["retryable"], problem["effect"]) == ("in-flight", True, "unknown")
    assert 1 <= int(refused.headers["Retry-After"]) <= 30
    assert (firsts[0].status, replay.status) == (200, 200)
    assert replay.body == firsts[0].body
    assert replay.headers[REPLAYED] == "true"
    assert len(fake.ledger) == 1


def test_the_upstream_sees_key_fence_and_attempt_and_no_callers_own(fake, gateway):
    """A caller cannot forge the fence that the upstream relies on."""
    forged = [("Idempotency-Key", '"order-7"'), ("Semel-Fence", "999"), ("Semel-Attempt", "999")]
    assert by_httpx(gateway.url + "/v1/charges", forged, "amount=1000").status == 200
    seen = {name.lower(): value for name, value in fake.ledger[0].headers.items()}
    assert seen["idempotency-key"].strip('"') == "order-7"
    assert seen["semel-attempt"] == "1"
    assert 1 <= int(seen["semel-fence"]) < 999
