"""Each program: twice, at once, with another amount, killed at every step, and with every answer of a COMMIT lost.

The ledger must come out exact: what is gone from the account is the sum of the distinct operations.
"""

import random
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from database import BALANCE, BLOCKED, ROLE
from programs import LANGUAGES, ended
from proxy import AFTER, BEFORE

ISOLATION = ["read committed", "repeatable read", "serializable"]


def isolate(database, level):
    """From the next connection on."""
    with database.owner() as owner:
        owner.execute("ALTER ROLE %s IN DATABASE %s SET default_transaction_isolation = '%s'" % (ROLE, database.name, level))


def test_a_second_run_gets_the_receipt_of_the_first(database, language):
    url = database.programs_url()
    what, receipt = language.pay(url, "k", 100)
    assert (what, receipt) == ("run", "debited 100 from alice, %d left" % (BALANCE - 100))
    assert language.pay(url, "k", 100) == ("replay", receipt)
    assert database.ledger() == (BALANCE - 100, 1, 100)


def test_a_receipt_is_the_same_in_every_language(database):
    url = database.programs_url()
    for payer in LANGUAGES:
        what, receipt = payer.pay(url, payer.name, 100)
        assert what == "run"
        for other in LANGUAGES:
            assert other.pay(url, payer.name, 100) == ("replay", receipt)
    assert database.ledger()[1] == len(LANGUAGES)


def test_another_amount_under_the_same_key_is_refused(database, language):
    url = database.programs_url()
    language.pay(url, "k", 100)
    assert language.pay(url, "k", 101) == ("mismatch", "")
    assert database.ledger() == (BALANCE - 100, 1, 100)


def test_a_declined_payment_stays_declined(database, language):
    url = database.programs_url()
    declined = "declined: alice has not %d" % (BALANCE + 1)
    assert language.pay(url, "k", BALANCE + 1) == ("run", declined)
    with database.owner() as owner:
        owner.execute("UPDATE accounts SET balance_cents = balance_cents + 1")
    assert language.pay(url, "k", BALANCE + 1) == ("replay", declined)


def test_a_forgotten_receipt_is_no_reason_to_run_again(database, language):
    url = database.programs_url()
    language.pay(url, "k", 100)
    with database.owner() as owner:
        owner.execute("UPDATE semel.records SET replay_until = 1")
    assert language.pay(url, "k", 100) == ("forgotten", "")
    assert database.ledger()[1] == 1


@pytest.mark.parametrize("level", ISOLATION)
def test_of_several_at_once_one_runs(database, language, level):
    isolate(database, level)
    with database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED["after the debit"])
        asked = [language.start(database.programs_url(), "k", 100) for _ in range(3)]
        database.wait_until_blocked(3)  # one in its debit, the others for it
    answers = [ended(process) for process in asked]
    assert sorted(what for what, _ in answers) == ["replay", "replay", "run"]
    assert len({receipt for _, receipt in answers}) == 1
    assert database.ledger() == (BALANCE - 100, 1, 100)


@pytest.mark.parametrize("place", BLOCKED)
def test_one_that_is_killed_leaves_all_or_nothing(slow_database, language, place):
    database, url = slow_database, slow_database.programs_url()
    with database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED[place])
        first = language.start(url, "k", 100)
        database.wait_until_blocked(1)
        second = language.start(url, "k", 100)
        database.wait_until_blocked(2)
        first.kill()
        first.communicate()
        assert database.ledger() == (BALANCE, 0, 0), "nobody sees half of it"
    # A COMMIT that the server has heard is carried out.
    assert ended(second)[0] == ("replay" if place == "in COMMIT" else "run")
    assert database.ledger() == (BALANCE - 100, 1, 100)


@pytest.mark.parametrize("place", BLOCKED)
def test_one_whose_connection_the_server_ends_repeats_it(slow_database, language, place):
    database = slow_database
    with database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED[place])
        process = language.start(database.programs_url(), "k", 100)
        ended_one, = database.wait_until_blocked(1)
        assert database.ask("SELECT pg_terminate_backend(%s, 60000)", ended_one) == (True,)
    assert ended(process)[0] == "run"
    assert database.ledger() == (BALANCE - 100, 1, 100)


def test_one_that_sleeps_and_wakes_finds_what_another_did(database, language):
    with database.owner() as owner:
        owner.execute("ALTER ROLE %s IN DATABASE %s SET idle_in_transaction_session_timeout = '3s'" % (ROLE, database.name))
    with database.owner(autocommit=False) as blocker:
        blocker.execute(BLOCKED["before the debit"])
        first = language.start(database.programs_url(), "k", 100)
        pid, = database.wait_until_blocked(1)
        first.send_signal(signal.SIGSTOP)
    # Its debit is done, and it is not there to go on.
    second = language.start(database.programs_url(), "k", 100)
    database.wait_until_gone(pid)
    what, receipt = ended(second)
    assert what == "run"
    first.send_signal(signal.SIGCONT)
    assert ended(first) == ("replay", receipt)
    assert database.ledger() == (BALANCE - 100, 1, 100)


@pytest.mark.parametrize("proxy", [BEFORE, AFTER], indirect=True)
def test_a_commit_without_an_answer_is_asked_about(database, language, proxy, request):
    what, receipt = language.pay(database.programs_url(proxy.address), "k", 100)
    assert proxy.did_cut()
    assert what == ("replay" if request.node.callspec.params["proxy"] == AFTER else "run")
    assert receipt == "debited 100 from alice, %d left" % (BALANCE - 100)
    assert database.ledger() == (BALANCE - 100, 1, 100)


def test_after_random_kills_the_ledger_is_exact(database):
    seed = int(os.environ.get("SEMEL_SEED", time.time_ns() % 1_000_000))
    print("SEMEL_SEED=%d" % seed)
    chance, url = random.Random(seed), database.programs_url()
    cents = {"k%d" % number: chance.randint(1, 500) for number in range(20)}
    # Three in ten come again, in another language as likely as not; every third is killed somewhere.
    asked = list(cents) + chance.choices(list(cents), k=9)
    chance.shuffle(asked)
    plan = [(key, chance.choice(LANGUAGES), chance.uniform(0, 1.5) if chance.random() < 0.33 else None) for key in asked]

    def one(key, language, killed_after):
        process = language.start(url, key, cents[key])
        if killed_after is None:
            return ended(process)
        time.sleep(killed_after)  # anywhere: the ledger says whether it was right
        process.kill()
        process.communicate()
        return None

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda each: one(*each), plan))
        settled = list(workers.map(lambda key: chance.choice(LANGUAGES).pay(url, key, cents[key]), cents))
    assert {what for what, _ in settled} <= {"run", "replay"}
    assert database.ledger() == (BALANCE - sum(cents.values()), len(cents), sum(cents.values()))
