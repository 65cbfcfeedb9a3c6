"""The Stripe SDKs, with their own keys and their own retries, through the gateway.

The card is charged by a fake that recognises no key: what it charged twice, the gateway let through twice.
"""

import json
import threading

import pytest

from stripe_sdks import SDKS, NodeSdk, Refused

TEN_EUROS = {"amount": 1000, "currency": "eur", "source": "tok_visa"}


@pytest.fixture(params=SDKS)
def sdk(request):
    return SDKS[request.param]


def test_a_charge_and_a_refund_pass_through(fake, gateway, sdk):
    client = sdk(gateway.url)
    charge = client.create("charges", TEN_EUROS)
    client.create("refunds", {"charge": charge.id, "amount": 1000})
    assert [effect.object["object"] for effect in fake.ledger] == ["charge", "refund"]
    assert not charge.replayed
    assert client.list_charges() == [charge.id]


def test_two_calls_without_a_cut_are_two_charges(fake, gateway, sdk):
    client = sdk(gateway.url)
    first, second = (client.create("charges", TEN_EUROS) for _ in range(2))
    assert first.id != second.id
    assert len(fake.ledger) == 2


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("service", ["charges", "payment_intents"])
def test_answer_lost_before_the_client_the_sdks_retry_gets_that_charge(fake, gateway, proxy, sdk, service, reset):
    proxy.cut_next_answer(reset=reset)
    charge = sdk(proxy.url).create(service, {"amount": 1000, "currency": "eur"})
    assert [effect.object["id"] for effect in fake.ledger] == [charge.id]
    assert charge.replayed
    assert proxy.statuses == [200, 200]


def test_nodes_sdk_retries_a_closed_connection_even_when_told_not_to(fake, gateway, proxy):
    proxy.cut_next_answer()
    charge = NodeSdk(proxy.url, retries=0).create("charges", TEN_EUROS)
    assert [effect.object["id"] for effect in fake.ledger] == [charge.id]
    assert charge.replayed


def test_connection_cut_while_the_charge_runs_the_sdk_retries_through_in_flight(fake, gateway, proxy, sdk):
    hold = fake.hold_next()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(sdk(proxy.url).create("charges", TEN_EUROS)))
    caller.start()
    fake.wait_for_effects(1)
    proxy.cut_now()             # the client hangs up; the run goes on
    proxy.wait_for_status(409)  # its retry is told so
    hold.set()
    caller.join(30)
    assert [effect.object["id"] for effect in fake.ledger] == [answers[0].id]
    assert answers[0].replayed


def test_answer_cut_in_its_body_the_same_key_gets_that_charge(fake, gateway, proxy, sdk):
    """The SDKs do not retry once an answer has begun: their caller does, with the key that it chose."""
    client, key = sdk(proxy.url), "order-1742-charge"
    proxy.cut_next_answer(body_bytes=10)
    with pytest.raises(Refused) as cut:
        client.create("charges", TEN_EUROS, key)
    assert cut.value.status is None
    charge = client.create("charges", TEN_EUROS, key)
    assert [effect.object["id"] for effect in fake.ledger] == [charge.id]
    assert charge.replayed


@pytest.mark.parametrize("retries, status", [(0, 502), (2, 409)], ids=["first answer", "after the SDK's retries"])
def test_connection_cut_behind_the_gateway_is_unknown_until_resolved(
        fake, gateway, tmp_path, sdk, retries, status):
    fake.cut_next()
    client = sdk(gateway.url, retries)
    with pytest.raises(Refused) as unknown:
        client.create("charges", TEN_EUROS)
    assert (unknown.value.status, unknown.value.code) == (status, "outcome-unknown")
    assert len(fake.ledger) == 1

    # The operator finds the charge at the provider, and says so.
    charged = fake.ledger[0]
    key, body = charged.key.strip('"'), tmp_path / "charge.json"
    body.write_text(json.dumps(charged.object))
    resolved = gateway.command("resolve", key, "--completed", "--status", "200", "--body-file", str(body))
    assert resolved.returncode == 0, resolved.stderr

    charge = client.create("charges", TEN_EUROS, key)
    assert charge.id == charged.object["id"]
    assert charge.replayed
    assert len(fake.ledger) == 1


def test_unknown_resolved_by_rerun_charges_once_more_and_only_once(fake, gateway, sdk):
    """The operator knows that the first one took no effect; only then is it run again."""
    fake.cut_next()
    client = sdk(gateway.url, retries=0)
    with pytest.raises(Refused):
        client.create("charges", TEN_EUROS)
    key = fake.ledger[0].key.strip('"')
    resolved = gateway.command("resolve", key, "--rerun")
    assert resolved.returncode == 0, resolved.stderr
    first, second = (client.create("charges", TEN_EUROS, key) for _ in range(2))
    assert first.id == second.id
    assert len(fake.ledger) == 2


def test_another_amount_under_the_same_key_is_refused(fake, gateway, sdk):
    client, key = sdk(gateway.url, retries=0), "order-1743-charge"
    client.create("charges", TEN_EUROS, key)
    with pytest.raises(Refused) as refused:
        client.create("charges", {**TEN_EUROS, "amount": 1}, key)
    assert (refused.value.status, refused.value.code) == (422, "key-reused")
    assert len(fake.ledger) == 1


def test_a_service_that_is_not_there_is_an_error_and_no_charge(fake, gateway, sdk):
    """An answer that the gateway makes itself never passes for the object that was asked for."""
    fake.close()
    with pytest.raises(Refused) as unreachable:
        sdk(gateway.url, retries=0).create("charges", TEN_EUROS)
    assert (unreachable.value.status, unreachable.value.code) == (502, "upstream-unreachable")


def test_the_services_own_refusal_is_replayed(fake, gateway, sdk):
    """A 400 says something about the request: it is final, and the SDK reads it the same both times."""
    client = sdk(gateway.url)
    refusals = []
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            client.create("charges", {"currency": "eur"}, "order-1744-charge")
        refusals.append(refused.value)
    assert [refused.param for refused in refusals] == ["amount", "amount"]
    assert [refused.replayed for refused in refusals] == [False, True]


def test_two_accounts_may_use_one_key(fake, gateway, sdk):
    """The key is unique within its caller: another account's answer is never replayed."""
    mine, theirs = (
        sdk(gateway.url, secret=secret).create("charges", TEN_EUROS, "order-1745-charge")
        for secret in ("sk_test_mine", "sk_test_theirs")
    )
    assert mine.id != theirs.id
    assert len(fake.ledger) == 2
