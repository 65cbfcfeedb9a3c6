"""What docs/any-language.md says of errors, rights, ends and poolers, as an application's role meets it."""

import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors

from database import EXAMPLES
from programs import LANGUAGES
from pooler import Pooler

CLAIM = "SELECT * FROM semel.{}('s', %s, %s, semel.fingerprint('x'), {})"


@pytest.fixture
def application(database):
    with psycopg.connect(database.programs_url(), autocommit=True, row_factory=psycopg.rows.namedtuple_row) as connection:
        yield connection


def claim(connection, key="k", attempt=None, how="claim", more="twin => 'wait'"):
    return connection.execute(CLAIM.format(how, more), [key, attempt or uuid.uuid4()]).fetchone()


def end(connection, call, fence, attempt, *more):
    connection.execute("SELECT semel.%s('s', 'k', %%s, %%s%s)" % (call, ", %s" * len(more)), [fence, attempt, *more])


def lapse(database):
    """As if its lease had ended a minute ago."""
    with database.owner() as owner:
        owner.execute("UPDATE semel.records SET open_at = open_at - 90000 WHERE state = 1")


def test_a_commit_without_an_end_is_refused(application):
    for begin in (application.transaction, None):
        with pytest.raises(psycopg.Error) as refused:
            if begin:
                with begin():
                    assert claim(application, how="once").claim == "acquired"
            else:
                claim(application, how="once")  # in autocommit, the statement is the transaction
        assert refused.value.sqlstate == "SM003"
    assert application.execute("SELECT count(*) FROM semel.records").fetchone() == (0,)


@pytest.mark.parametrize("call, more", [("complete", [b"done"]), ("release", []), ("park", []), ("bury", [])])
def test_every_end_ends_it_and_may_be_repeated(application, call, more):
    attempt = uuid.uuid4()
    with application.transaction():
        fence = claim(application, attempt=attempt, how="once").fence
        end(application, call, fence, attempt, *more)
        end(application, call, fence, attempt, *more)
    after = claim(application)
    assert after.claim == {"complete": "completed", "release": "acquired", "park": "unknown", "bury": "dead"}[call]


def test_a_lost_lease_and_a_second_end_are_errors(application):
    attempt = uuid.uuid4()
    fence = claim(application, attempt=attempt).fence
    for wrong_fence, wrong_attempt in ((fence + 1, attempt), (fence, uuid.uuid4())):
        for call, more in (("complete", [b"x"]), ("release", []), ("park", []), ("bury", []), ("renew", [])):
            with pytest.raises(psycopg.Error) as refused:
                end(application, call, wrong_fence, wrong_attempt, *more)
            assert refused.value.sqlstate == "SM001", call
    end(application, "complete", fence, attempt, b"x")
    with pytest.raises(psycopg.Error) as refused:
        end(application, "complete", fence, attempt, b"y")
    assert refused.value.sqlstate == "SM002"


@pytest.mark.parametrize("scope, key, fingerprint, twin", [
    (None, "k", b"x" * 32, "wait"), ("s", "", b"x" * 32, "wait"), ("s", "k" * 256, b"x" * 32, "wait"),
    ("s", "a\nb", b"x" * 32, "wait"), ("s", "k", b"x", "wait"), ("s", "k", None, "wait"), ("s", "k", b"x" * 32, "perhaps")])
def test_a_wrong_parameter_is_said(application, scope, key, fingerprint, twin):
    with pytest.raises(errors.InvalidParameterValue):
        application.execute("SELECT semel.once(%s, %s, %s, %s, %s)", [scope, key, uuid.uuid4(), fingerprint, twin])


def test_a_duplicate_leaves_the_transaction_as_it_was(application):
    attempt = uuid.uuid4()
    fence = claim(application, attempt=attempt).fence
    with application.transaction():
        application.execute("INSERT INTO payments (account, cents) VALUES ('alice', 1)")
        assert claim(application, how="once").claim == "in-flight"
    end(application, "complete", fence, attempt, b"x")
    with application.transaction():
        application.execute("INSERT INTO payments (account, cents) VALUES ('alice', 2)")
        assert claim(application, how="once").claim == "completed"


def test_what_refuses_is_told_at_once_and_what_waits_is_bounded_by_the_lock_timeout(database, application):
    with psycopg.connect(database.programs_url()) as first:
        claim(first, how="once")
        told = claim(application, how="once", more="twin => 'refuse'")
        assert (told.claim, told.retry_after_ms) == ("in-flight", 1000)
        with pytest.raises(errors.LockNotAvailable), application.transaction():
            application.execute("SET LOCAL lock_timeout = '10ms'")
            claim(application, how="once")
        first.rollback()
    assert claim(application).claim == "acquired"


def test_a_first_one_that_sleeps_is_ended_by_the_idle_timeout(database, application):
    with psycopg.connect(database.programs_url()) as first:
        first.execute("SET idle_in_transaction_session_timeout = '100ms'")
        claim(first, how="once")
        with application.transaction():
            fence = claim(application, attempt=(attempt := uuid.uuid4()), how="once").fence  # waits until then
            end(application, "complete", fence, attempt, b"x")
        with pytest.raises(errors.IdleInTransactionSessionTimeout):
            first.execute("SELECT 1")


def test_keys_claimed_crosswise_deadlock_and_one_is_told(database):
    with ThreadPoolExecutor(1) as other, psycopg.connect(database.programs_url()) as one, \
            psycopg.connect(database.programs_url()) as two:
        claim(one, "a", how="once")
        claim(two, "b", how="once")
        crossing = other.submit(claim, two, "a", how="once")
        database.wait_until_blocked(1)
        ends = []
        for ask in (lambda: claim(one, "b", how="once"), crossing.result):
            try:
                ask()
            except errors.DeadlockDetected as error:
                ends.append(error.sqlstate)
                (two if ask == crossing.result else one).rollback()
        assert ends == ["40P01"]
        one.rollback()
        two.rollback()


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel)[1:], ids=lambda level: level.name)
def test_a_duplicate_aborts_nothing_at_read_committed_and_is_40001_above(database, application, level):
    with psycopg.connect(database.programs_url(), row_factory=psycopg.rows.namedtuple_row) as late:
        late.isolation_level = level
        late.execute("SELECT 1 FROM semel.migrations")  # its snapshot
        attempt = uuid.uuid4()
        end(application, "complete", claim(application, attempt=attempt).fence, attempt, b"x")
        if level == psycopg.IsolationLevel.READ_COMMITTED:
            assert claim(late, how="once").claim == "completed"
            return
        with pytest.raises(errors.SerializationFailure):
            claim(late, how="once")
        late.rollback()
        assert claim(late, how="once").claim == "completed"


def test_the_same_attempt_gets_its_lease_again_and_another_does_not(application):
    attempt = uuid.uuid4()
    first = claim(application, attempt=attempt)
    again = claim(application, attempt=attempt)
    assert (again.claim, again.fence, again.attempts) == ("acquired", first.fence, 1)
    other = claim(application)
    assert other.claim == "in-flight"
    assert 0 < other.retry_after_ms <= 30_000


def test_one_that_died_under_a_lease_is_unknown_until_somebody_says(database, application):
    died = claim(application).fence
    lapse(database)
    assert (claim(application).claim, claim(application).cause) == ("unknown", "lapsed")
    settler = uuid.uuid4()
    settles = "SELECT claim, fence FROM semel.claim_to_settle('s', 'k', %s, %s)"
    assert application.execute(settles, [uuid.uuid4(), died + 1]).fetchone().claim == "moved"
    taken = application.execute(settles, [settler, died]).fetchone()
    assert taken.claim == "acquired"
    end(application, "complete", taken.fence, settler, b"found out")
    assert claim(application).outcome == b"found out"


def test_rerun_takes_it_over_and_says_that_there_is_doubt(database, application):
    died = claim(application)
    lapse(database)
    again = claim(application, more="rerun => true")
    assert (again.claim, again.was, again.doubt, again.attempts) == ("acquired", "lapsed", True, 2)
    assert again.fence > died.fence
    lapse(database)
    assert claim(application, more="rerun => true, attempts_max => 2").claim == "dead"


def test_the_end_of_time_is_for_ever(database, application):
    attempt = uuid.uuid4()
    fence = claim(application, attempt=attempt).fence
    end(application, "complete", fence, attempt, b"x", 2**63 - 1, 2**63 - 1)
    assert database.ask("SELECT replay_until = forget_at AND forget_at = 9223372036854775807 FROM semel.records") == (True,)


def test_no_two_lists_of_parts_have_one_fingerprint(application):
    lists = [["a", "b"], ["a", None, "b"], ["a", "", "b"], ["a", "b", None], ["a", "b", ""], ["ab"], ["b", "a"], [None], [""]]
    found = {application.execute("SELECT semel.fingerprint(VARIADIC %s::text[])", [parts]).fetchone()[0] for parts in lists}
    assert len(found) == len(lists)


def grants():
    """The lines of rights.sql about the schema semel."""
    return [line for line in (EXAMPLES / "rights.sql").read_text().splitlines() if line.startswith("GRANT") and "semel" in line]


def one_right_less():
    parted = [line.removeprefix("GRANT ").replace(" TO ", " FROM ").split(" ON ", 1) for line in grants()]
    return ["REVOKE %s ON %s" % (right, rest) for rights, rest in parted for right in rights.split(", ")]


def everything(connection):
    """Every function, once, the path that overwrites a forgotten record too."""
    attempt = uuid.uuid4()
    with connection.transaction():
        fence = claim(connection, attempt=attempt, how="once").fence
        end(connection, "renew", fence, attempt)
        end(connection, "complete", fence, attempt, b"x", -1, -1)  # past its time at once
    with connection.transaction():
        again = claim(connection, attempt=attempt, how="once")
        assert (again.claim, again.was) == ("acquired", "new")
        end(connection, "release", again.fence, attempt)
    connection.execute("SELECT * FROM semel.find('s', 'k')").fetchall()
    connection.execute("SELECT max(number) FROM semel.migrations").fetchone()


def test_the_rights_are_enough(application):
    everything(application)


@pytest.mark.parametrize("revoke", one_right_less())
def test_no_right_is_too_much(database, application, revoke):
    with database.owner() as owner:
        owner.execute(revoke)
    with pytest.raises(errors.InsufficientPrivilege):
        everything(application)


def test_a_mail_is_sent_under_a_lease(database):
    for sent in (True, False):
        done = subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", EXAMPLES / "lease.sql", database.programs_url()],
                              capture_output=True, text=True)
        # The second time there is no fence: it was sent.
        assert (done.returncode == 0) == sent, done.stderr
    assert database.ask("SELECT convert_from(outcome, 'UTF8') FROM semel.find('mails', 'order-77')") == ("sent",)


def test_a_pooler_in_transaction_mode_changes_nothing(database):
    languages = [language.behind_a_pooler() for language in LANGUAGES]
    with Pooler(database) as pooler:
        url = database.programs_url(pooler.address)
        for payer in languages:
            what, receipt = payer.pay(url, payer.name, 100)
            assert what == "run"
            for other in languages:
                assert other.pay(url, payer.name, 100) == ("replay", receipt)
        with psycopg.connect(url, prepare_threshold=None, autocommit=True) as connection:
            for number in range(10):
                with pytest.raises(psycopg.Error) as refused:
                    connection.execute("SELECT semel.once('s', %s, gen_random_uuid(), semel.fingerprint('x'))", [str(number)])
                assert refused.value.sqlstate == "SM003"
    assert database.ledger()[1] == len(LANGUAGES)
