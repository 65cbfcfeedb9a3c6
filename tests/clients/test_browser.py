"""A page in a real browser, on another origin than the gateway: the browser decides what its script may do (H16).

The service behind the gateway knows nothing of CORS.
"""

import threading

import httpx
import pytest

from browser import Page
from cutting_proxy import CuttingProxy
from gateway import Gateway
from http_clients import REPLAYED

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def page():
    page = Page()
    yield page
    page.close()


@pytest.fixture
def other_page():
    page = Page()
    yield page
    page.close()


@pytest.fixture
def flags(page):
    return ["--cors-origin", page.origin]


@pytest.fixture
def gateway(fake, tmp_path, flags):
    gateway = Gateway(fake.url, tmp_path, *flags)
    yield gateway
    gateway.close()


def charge(gateway, key, amount=1000, **more):
    """A call of the page's script, as `fetch` takes it."""
    headers = {"Content-Type": FORM, "Idempotency-Key": '"%s"' % key}
    call = {"method": "POST", "headers": headers, "body": "amount=%d" % amount}
    return {"url": gateway.url + "/v1/charges", **call, **more}


def failed(reads):
    """A script is told of an answer that it may not read as of a broken connection."""
    return [read.failed for read in reads] == ["TypeError"] * len(reads)


def test_a_script_sends_the_key_and_reads_the_replay_its_marker_and_refusals(fake, gateway, page, tmp_path):
    two_keys = {"Content-Type": FORM, "Idempotency-Key": "one, two"}
    fresh, replay, reused, malformed, policy = page.open(
        tmp_path,
        charge(gateway, "order-1"),
        charge(gateway, "order-1"),
        charge(gateway, "order-1", amount=9000),
        charge(gateway, "", headers=two_keys),
        {"url": gateway.url + "/.well-known/semel-policy", "headers": {"Accept": "application/json"}},
    )
    assert (fresh.failed, fresh.status, fresh.json()["amount"]) == (None, 200, 1000)
    assert REPLAYED not in fresh.headers
    assert (replay.status, replay.body, replay.headers[REPLAYED]) == (200, fresh.body, "true")
    assert (reused.status, reused.json()["code"]) == (422, "key-reused")
    assert 'rel="describedby"' in reused.headers["Link"]
    assert (malformed.status, malformed.json()["code"]) == (400, "key-malformed")
    assert (policy.status, policy.json()["key"]["header"]) == (200, "Idempotency-Key")
    assert [effect.object["amount"] for effect in fake.ledger] == [1000]


def test_a_script_reads_when_to_come_back_while_the_first_request_runs(fake, gateway, page, tmp_path):
    hold = fake.hold_next()
    same = charge(gateway, "order-2")
    first = threading.Thread(
        target=lambda: httpx.post(same["url"], headers=same["headers"], content=same["body"], timeout=60))
    first.start()
    fake.wait_for_effects(1)
    [told] = page.open(tmp_path, same)
    hold.set()
    first.join(30)
    assert (told.status, told.json()["code"]) == (409, "in-flight")
    assert int(told.headers["Retry-After"]) >= 1
    assert len(fake.ledger) == 1


def test_from_an_origin_that_is_not_listed_nothing_is_sent_and_nothing_read(fake, gateway, other_page, tmp_path):
    simple = {"Content-Type": FORM}
    reads = other_page.open(
        tmp_path,
        charge(gateway, "order-3"),
        {"url": gateway.url + "/v1/charges"},
        {"url": gateway.url + "/.well-known/semel-policy"},
    )
    assert failed(reads)
    assert fake.ledger == []
    # Without the key it is a request that needs no preflight: every page may send it, and none but ours read it.
    [blind] = other_page.open(tmp_path, charge(gateway, "", headers=simple))
    assert failed([blind])
    assert len(fake.ledger) == 1


@pytest.mark.parametrize("flags", [[]], ids=["no option"])
def test_without_the_option_no_page_gets_through(fake, gateway, page, tmp_path):
    """What the tests above show is the option's doing."""
    assert failed(page.open(tmp_path, charge(gateway, "order-4"), charge(gateway, "order-4")))
    assert fake.ledger == []


@pytest.mark.parametrize("flags", [["--cors-origin", "*"]], ids=["every origin"])
def test_with_a_star_every_page_gets_through_but_none_with_cookies(fake, gateway, page, tmp_path):
    without, with_cookies = page.open(
        tmp_path, charge(gateway, "order-5"), charge(gateway, "order-6", credentials="include"))
    assert (without.failed, without.status) == (None, 200)
    assert failed([with_cookies])
    assert len(fake.ledger) == 1


@pytest.mark.parametrize("allowed", [False, True], ids=["not allowed", "allowed"])
def test_cookies_are_sent_and_refusals_then_read_only_where_they_are_allowed(fake, page, tmp_path, allowed):
    credentials = ["--cors-credentials"] if allowed else []
    gateway = Gateway(fake.url, tmp_path, "--cors-origin", page.origin, *credentials)
    try:
        reads = page.open(
            tmp_path,
            charge(gateway, "order-7", credentials="include"),
            charge(gateway, "order-7", credentials="include"),
            charge(gateway, "order-7", amount=9000, credentials="include"),
        )
    finally:
        gateway.close()
    if allowed:
        assert [read.status for read in reads] == [200, 200, 422]
        assert reads[1].headers[REPLAYED] == "true"
    else:
        assert failed(reads)
    assert len(fake.ledger) == allowed


def test_answer_lost_the_browser_itself_resends_and_gets_that_charge(fake, gateway, page, tmp_path):
    """Chromium repeats a POST whose connection, used before, broke without an answer. The script never knows."""
    proxy = CuttingProxy(gateway.url)
    try:
        proxy.cut_next_answer(status=200)  # not the preflight's, which is 204
        [answer] = page.open(tmp_path, charge(proxy, "order-8"))
    finally:
        proxy.close()
    assert (answer.failed, answer.status, answer.headers.get(REPLAYED)) == (None, 200, "true")
    assert proxy.statuses == [204, 200, 200]
    assert len(fake.ledger) == 1
