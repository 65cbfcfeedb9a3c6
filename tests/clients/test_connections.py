"""Clients that keep connections, and those that repeat a request by themselves when one breaks."""

import asyncio
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

import programs
from cutting_proxy import CuttingProxy
from http_clients import FORM, REPLAYED, TEN_EUROS, Answer, ask, curl, trusting

CHARGES = "/v1/charges"


class KeptHttpx:
    def __init__(self):
        self._client = httpx.Client(timeout=30)

    def __call__(self, url, headers, body=TEN_EUROS):
        answer = self._client.post(url, headers=[FORM, *headers], content=body)
        return Answer("1.1", answer.status_code, answer.headers, answer.content)


@contextmanager
def keeping(name, *certificate):
    """A client with its pool of connections, as a function that posts."""
    if name == "httpx":
        yield KeptHttpx()
        return
    with programs.go(*certificate) if name == "Go" else programs.node("undici.cjs", name.removeprefix("undici ")) as program:
        yield lambda url, headers, body=TEN_EUROS: ask(program, url, headers, body)


def key(text):
    return [("Idempotency-Key", '"%s"' % text)]


@pytest.mark.parametrize("name", ["httpx", "undici request", "undici fetch", "Go"])
def test_one_connection_carries_answers_replays_and_refusals(fake, gateway, proxy, name):
    """No answer of the gateway's own costs its caller the connection."""
    with keeping(name) as post:
        url = proxy.url + CHARGES
        fresh = post(url, key("order-1"))
        replay = post(url, key("order-1"))
        reused = post(url, key("order-1"), "amount=9000")
        malformed = post(url, [("Idempotency-Key", '"broken')])
        unguarded = post(url, [])
    assert [answer.status for answer in (fresh, replay, reused, malformed, unguarded)] == [200, 200, 422, 400, 200]
    assert (replay.replayed, replay.body) == (True, fresh.body)
    assert proxy.connections == 1
    assert len(fake.ledger) == 2


# --- RetryAgent, which a caller of undici's asks to repeat a POST -----------------------------------------------------

@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_answer_lost_undicis_retry_agent_gets_that_charge(fake, gateway, proxy, reset):
    proxy.cut_next_answer(reset=reset)
    with keeping("undici retry") as post:
        charge = post(proxy.url + CHARGES, key("order-2"))
    assert (charge.status, charge.replayed) == (200, True)
    assert proxy.statuses == [200, 200]
    assert len(fake.ledger) == 1


def test_connection_cut_while_the_charge_runs_undicis_retry_agent_waits_as_it_is_told(fake, gateway, proxy):
    hold = fake.hold_next()
    answers = []
    with keeping("undici retry") as post:
        caller = threading.Thread(target=lambda: answers.append(post(proxy.url + CHARGES, key("order-3"))))
        caller.start()
        fake.wait_for_effects(1)
        proxy.cut_now()
        proxy.wait_for_status(409)  # in flight; it reads Retry-After
        hold.set()
        caller.join(30)
    assert (answers[0].status, answers[0].replayed) == (200, True)
    assert len(fake.ledger) == 1


def test_answer_cut_in_its_body_undicis_retry_agent_makes_no_second_charge(fake, gateway, proxy):
    """It asks for the rest of the body with `Range`, and will not take the whole one: an error, and one charge."""
    proxy.cut_next_answer(body_bytes=10)
    with keeping("undici retry") as post:
        with pytest.raises(programs.Failed):
            post(proxy.url + CHARGES, key("order-4"))
        charge = post(proxy.url + CHARGES, key("order-4"))
    assert (charge.status, charge.replayed) == (200, True)
    assert len(fake.ledger) == 1


def test_connection_cut_behind_the_gateway_undicis_retry_agent_stays_unknown(fake, gateway):
    fake.cut_next()
    with keeping("undici retry") as post:
        with pytest.raises(programs.Failed) as unknown:
            post(gateway.url + CHARGES, key("order-5"))
    assert unknown.value.error["status"] == 409
    assert len(fake.ledger) == 1


# --- Go's transport, which repeats a request by itself ----------------------------------------------------------------

@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_gos_transport_resends_a_request_with_a_key_and_gets_that_charge(fake, gateway, proxy, reset):
    """On a connection that it has used before, and where the request has an `Idempotency-Key`: without its caller.

    Its documentation says so (net/http, Transport). Behind a service that does not know the key this is a second
    charge, see below.
    """
    with keeping("Go") as post:
        post(proxy.url + CHARGES, [])
        proxy.cut_next_answer(reset=reset)
        charge = post(proxy.url + CHARGES, key("order-6"))
    assert (charge.status, charge.replayed) == (200, True)
    assert proxy.statuses == [200, 200, 200]
    assert [effect.key and effect.key.strip('"') for effect in fake.ledger] == [None, "order-6"]


def test_gos_transport_charges_twice_where_nobody_knows_the_key(fake):
    """Why the test above means something: the same without the gateway."""
    proxy = CuttingProxy(fake.url)
    try:
        with keeping("Go") as post:
            post(proxy.url + CHARGES, [])
            proxy.cut_next_answer()
            assert post(proxy.url + CHARGES, key("order-7")).status == 200
    finally:
        proxy.close()
    assert [effect.key and effect.key.strip('"') for effect in fake.ledger] == [None, "order-7", "order-7"]


def test_gos_transport_does_not_resend_what_has_no_key(fake, gateway, proxy):
    with keeping("Go") as post:
        post(proxy.url + CHARGES, [])
        proxy.cut_next_answer()
        with pytest.raises(programs.Failed):
            post(proxy.url + CHARGES, [])
    assert len(fake.ledger) == 2


def test_connection_cut_while_the_charge_runs_gos_transport_is_told_in_flight(fake, gateway, proxy):
    """Its own repetition reaches the gateway at once. It does not wait and ask again: that is its caller's part."""
    with keeping("Go") as post:
        post(proxy.url + CHARGES, [])
        hold = fake.hold_next()
        answers = []
        caller = threading.Thread(target=lambda: answers.append(post(proxy.url + CHARGES, key("order-8"))))
        caller.start()
        fake.wait_for_effects(2)
        proxy.cut_now()
        proxy.wait_for_status(409)
        hold.set()
        caller.join(30)
        assert (answers[0].status, answers[0].problem()["code"]) == (409, "in-flight")
        charge = until_settled(lambda: post(proxy.url + CHARGES, key("order-8")))
    assert (charge.status, charge.replayed) == (200, True)
    assert len(fake.ledger) == 2


def until_settled(call):
    """Asks again while the first run is being settled, as a caller does who is told in flight."""
    deadline = time.monotonic() + 20
    while (answer := call()).status == 409:
        assert time.monotonic() < deadline, "still in flight"
        time.sleep(0.01)  # between two looks, not instead of one
    return answer


# --- TLS and HTTP/2 ---------------------------------------------------------------------------------------------------

@pytest.fixture
def tls_proxy(tls_gateway):
    proxy = CuttingProxy(tls_gateway.url)
    yield proxy
    proxy.close()


def test_twenty_duplicates_at_once_on_one_http2_connection_are_one_charge(fake, tls_proxy, certificate):
    async def at_once():
        async with httpx.AsyncClient(http2=True, verify=trusting(certificate.file), timeout=30) as client:
            await client.get(tls_proxy.url + CHARGES)  # the connection
            return await asyncio.gather(*(
                client.post(tls_proxy.url + CHARGES, headers=[FORM, *key("order-9")], content=TEN_EUROS)
                for _ in range(20)))

    answers = asyncio.run(at_once())
    assert {answer.http_version for answer in answers} == {"HTTP/2"}
    charged = [answer for answer in answers if answer.status_code == 200]
    assert len({answer.content for answer in charged}) == 1
    assert [answer.headers.get(REPLAYED) for answer in charged].count(None) == 1
    assert {answer.json()["code"] for answer in answers if answer not in charged} <= {"in-flight"}
    assert tls_proxy.connections == 1
    assert len(fake.ledger) == 1


def test_http2_connection_cut_while_the_charge_runs_go_says_so_and_the_same_key_gets_it(fake, tls_proxy, certificate):
    """Over HTTP/2 Go's transport does not resend what may have been served: its caller does."""
    hold = fake.hold_next()
    failures = []

    def call(post):
        with pytest.raises(programs.Failed) as failed:
            post(tls_proxy.url + CHARGES, key("order-10"))
        failures.append(failed.value)

    with keeping("Go", str(certificate.file)) as post:
        caller = threading.Thread(target=call, args=[post])
        caller.start()
        fake.wait_for_effects(1)
        tls_proxy.cut_now()
        caller.join(30)
        hold.set()
        charge = until_settled(lambda: post(tls_proxy.url + CHARGES, key("order-10")))
    assert len(failures) == 1
    assert (charge.version, charge.status, charge.replayed) == ("2", 200, True)
    assert tls_proxy.connections == 2
    assert len(fake.ledger) == 1


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_connection_cut_while_the_charge_runs_curls_own_retry_gets_that_charge(fake, tls_proxy, certificate, version):
    hold = fake.hold_next()
    answers = []
    retrying = curl("--http%s" % version, "--retry", "5", "--retry-all-errors", "--fail-with-body")
    caller = threading.Thread(target=lambda: answers.append(
        retrying(tls_proxy.url + CHARGES, key("order-11"), TEN_EUROS, certificate.file)))
    caller.start()
    fake.wait_for_effects(1)
    tls_proxy.cut_now()
    hold.set()
    caller.join(30)
    [charge] = answers
    assert (charge.version, charge.status, charge.replayed) == (version, 200, True)
    assert len(fake.ledger) == 1
