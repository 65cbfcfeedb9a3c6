"""The fakes by themselves: what the other tests prove rests on them."""

import http.client
import threading

import pytest

from cutting_proxy import CuttingProxy


@pytest.fixture
def cutting(fake):
    proxy = CuttingProxy(fake.url)
    yield proxy
    proxy.close()


def post(url, connection=None):
    connection = connection or http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.request("POST", "/v1/charges", "amount=1000", {"Idempotency-Key": "k"})
    return connection.getresponse()


def test_the_fake_charges_again_for_the_same_key(fake):
    assert post(fake.url).status == post(fake.url).status == 200
    assert [effect.key for effect in fake.ledger] == ["k", "k"]


def test_the_fake_charges_before_it_cuts(fake):
    fake.cut_next()
    with pytest.raises(http.client.RemoteDisconnected):
        post(fake.url)
    assert len(fake.ledger) == 1
    assert post(fake.url).status == 200


def test_the_fake_charges_before_it_waits(fake):
    hold = fake.hold_next()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(post(fake.url).status))
    caller.start()
    fake.wait_for_effects(1)
    assert answers == []
    hold.set()
    caller.join(20)
    assert answers == [200]


def test_the_proxy_passes_several_requests_on_one_connection(fake, cutting):
    connection = http.client.HTTPConnection(cutting.url.removeprefix("http://"), timeout=20)
    for _ in range(3):
        assert post(cutting.url, connection).read()
    assert cutting.statuses == [200, 200, 200]


@pytest.mark.parametrize("reset, error", [(False, http.client.RemoteDisconnected), (True, ConnectionResetError)])
def test_the_proxy_loses_one_whole_answer(fake, cutting, reset, error):
    cutting.cut_next_answer(reset=reset)
    with pytest.raises(error):
        post(cutting.url)
    assert cutting.statuses == [200]
    assert post(cutting.url).status == 200


def test_the_proxy_cuts_within_a_body(fake, cutting):
    cutting.cut_next_answer(body_bytes=10)
    with pytest.raises(http.client.IncompleteRead) as cut:
        post(cutting.url).read()
    assert len(cut.value.partial) == 10


def test_the_proxy_cuts_while_the_service_works(fake, cutting):
    hold = fake.hold_next()
    errors = []

    def call():
        try:
            post(cutting.url)
        except OSError as error:
            errors.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    fake.wait_for_effects(1)
    cutting.cut_now()
    caller.join(20)
    assert len(errors) == 1
    hold.set()
