"""The Stripe SDK, with its own keys and its own retries, through the gateway.

The card is charged by a fake that recognises no key: what it charged twice, the gateway let through twice.
"""

import json
import threading

import pytest
import stripe

TEN_EUROS = {"amount": 1000, "currency": "eur", "source": "tok_visa"}
REPLAYED = "Idempotent-Replayed"


def sdk(url, retries=5):
    return stripe.StripeClient("sk_test_semel", base_addresses={"api": url}, max_network_retries=retries)


def headers_of(answer):
    return answer.last_response.headers


def test_a_charge_and_a_refund_pass_through(fake, gateway):
    client = sdk(gateway.url)
    charge = client.v1.charges.create(params=TEN_EUROS)
    client.v1.refunds.create(params={"charge": charge.id, "amount": 1000})
    assert [effect.object["object"] for effect in fake.ledger] == ["charge", "refund"]
    assert REPLAYED not in headers_of(charge)
    assert [listed.id for listed in client.v1.charges.list().data] == [charge.id]


def test_two_calls_without_a_cut_are_two_charges(fake, gateway):
    client = sdk(gateway.url)
    first, second = (client.v1.charges.create(params=TEN_EUROS) for _ in range(2))
    assert first.id != second.id
    assert len(fake.ledger) == 2


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("service", ["charges", "payment_intents"])
def test_answer_lost_before_the_client_the_sdks_retry_gets_that_charge(fake, gateway, proxy, service, reset):
    proxy.cut_next_answer(reset=reset)
    charge = getattr(sdk(proxy.url).v1, service).create(params={"amount": 1000, "currency": "eur"})
    assert [effect.object["id"] for effect in fake.ledger] == [charge.id]
    assert headers_of(charge)[REPLAYED] == "true"
    assert proxy.statuses == [200, 200]


def test_connection_cut_while_the_charge_runs_the_sdk_retries_through_in_flight(fake, gateway, proxy):
    hold = fake.hold_next()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(sdk(proxy.url).v1.charges.create(params=TEN_EUROS)))
    caller.start()
    fake.wait_for_effects(1)
    proxy.cut_now()             # the client hangs up; the run goes on
    proxy.wait_for_status(409)  # its retry is told so
    hold.set()
    caller.join(30)
    assert [effect.object["id"] for effect in fake.ledger] == [answers[0].id]
    assert headers_of(answers[0])[REPLAYED] == "true"


def test_answer_cut_in_its_body_the_same_key_gets_that_charge(fake, gateway, proxy):
    """The SDK does not retry once an answer has begun: its caller does, with the key that it chose."""
    client = sdk(proxy.url)
    proxy.cut_next_answer(body_bytes=10)
    options = {"idempotency_key": "order-1742-charge"}
    with pytest.raises(stripe.APIConnectionError):
        client.v1.charges.create(params=TEN_EUROS, options=options)
    charge = client.v1.charges.create(params=TEN_EUROS, options=options)
    assert [effect.object["id"] for effect in fake.ledger] == [charge.id]
    assert headers_of(charge)[REPLAYED] == "true"


@pytest.mark.parametrize("retries, status", [(0, 502), (2, 409)], ids=["first answer", "after the SDK's retries"])
def test_connection_cut_behind_the_gateway_is_unknown_until_resolved(fake, gateway, tmp_path, retries, status):
    fake.cut_next()
    client = sdk(gateway.url, retries)
    with pytest.raises(stripe.APIError) as unknown:
        client.v1.charges.create(params=TEN_EUROS)
    assert unknown.value.http_status == status
    problem = json.loads(unknown.value.http_body)
    assert (problem["code"], problem["effect"]) == ("outcome-unknown", "unknown")
    assert len(fake.ledger) == 1

    # The operator finds the charge at the provider, and says so.
    charged = fake.ledger[0]
    key, body = charged.key.strip('"'), tmp_path / "charge.json"
    body.write_text(json.dumps(charged.object))
    resolved = gateway.command("resolve", key, "--completed", "--status", "200", "--body-file", str(body))
    assert resolved.returncode == 0, resolved.stderr

    charge = client.v1.charges.create(params=TEN_EUROS, options={"idempotency_key": key})
    assert charge.id == charged.object["id"]
    assert headers_of(charge)[REPLAYED] == "true"
    assert len(fake.ledger) == 1


def test_unknown_resolved_by_rerun_charges_once_more_and_only_once(fake, gateway):
    """The operator knows that the first one took no effect; only then is it run again."""
    fake.cut_next()
    client = sdk(gateway.url, retries=0)
    with pytest.raises(stripe.APIError):
        client.v1.charges.create(params=TEN_EUROS)
    key = fake.ledger[0].key.strip('"')
    resolved = gateway.command("resolve", key, "--rerun")
    assert resolved.returncode == 0, resolved.stderr
    first, second = (client.v1.charges.create(params=TEN_EUROS, options={"idempotency_key": key}) for _ in range(2))
    assert first.id == second.id
    assert len(fake.ledger) == 2


def test_another_amount_under_the_same_key_is_refused(fake, gateway):
    client = sdk(gateway.url, retries=0)
    options = {"idempotency_key": "order-1743-charge"}
    client.v1.charges.create(params=TEN_EUROS, options=options)
    with pytest.raises(stripe.APIError) as refused:
        client.v1.charges.create(params={**TEN_EUROS, "amount": 1}, options=options)
    assert refused.value.http_status == 422
    assert json.loads(refused.value.http_body)["code"] == "key-reused"
    assert len(fake.ledger) == 1


def test_the_services_own_refusal_is_replayed(fake, gateway):
    """A 400 says something about the request: it is final, and the SDK reads it the same both times."""
    client = sdk(gateway.url)
    options = {"idempotency_key": "order-1744-charge"}
    refusals = []
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            client.v1.charges.create(params={"currency": "eur"}, options=options)
        refusals.append(refused.value)
    assert [refused.param for refused in refusals] == ["amount", "amount"]
    assert [refused.headers.get(REPLAYED) for refused in refusals] == [None, "true"]


def test_two_accounts_may_use_one_key(fake, gateway):
    """The key is unique within its caller: another account's answer is never replayed."""
    options = {"idempotency_key": "order-1745-charge"}
    mine, theirs = (
        stripe.StripeClient(secret, base_addresses={"api": gateway.url}).v1.charges.create(
            params=TEN_EUROS, options=options)
        for secret in ("sk_test_mine", "sk_test_theirs")
    )
    assert mine.id != theirs.id
    assert len(fake.ledger) == 2
