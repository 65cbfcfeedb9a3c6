"""Debits an account once, however often it is asked: the key, the debit and the receipt commit together.

    DATABASE_URL=postgres://... python payment.py KEY ACCOUNT CENTS

It prints what came of it and the receipt: `run` the first time, `replay` from then on.
"""

import os
import sys
import time
import uuid

import psycopg

# Within what a key is unique. A service with callers of its own puts the caller in.
SCOPE = "payments"

# A serialization failure, a deadlock, a lost connection, and one that the server ended since this process slept.
AGAIN = (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout)

CLAIM = """
    SELECT claim, fence, outcome
    FROM semel.once(%(scope)s, %(key)s, %(attempt)s, semel.fingerprint('debit', %(account)s, %(cents)s::text))
"""
DEBIT = """
    UPDATE accounts SET balance_cents = balance_cents - %(cents)s
    WHERE id = %(account)s AND balance_cents >= %(cents)s RETURNING balance_cents
"""
NOTE = "INSERT INTO payments (account, cents) VALUES (%(account)s, %(cents)s)"
COMPLETE = "SELECT semel.complete(%(scope)s, %(key)s, %(fence)s, %(attempt)s, %(outcome)s)"


def debit(connection, account, cents):
    """The effect, in the caller's transaction. That there is too little money is an answer like any other."""
    asked = {"account": account, "cents": cents}
    row = connection.execute(DEBIT, asked).fetchone()
    if row is None:
        return f"declined: {account} has not {cents}"
    connection.execute(NOTE, asked)
    return f"debited {cents} from {account}, {row[0]} left"


# begin: once
def pay_in(connection, attempt, key, account, cents):
    """One try, in an open transaction. Gives what came of it, and the receipt."""
    asked = {"scope": SCOPE, "key": key, "attempt": attempt, "account": account, "cents": cents}
    claim, fence, outcome = connection.execute(CLAIM, asked).fetchone()
    if claim == "completed":
        return "replay", outcome.decode()
    if claim != "acquired":
        return claim, ""  # mismatch, forgotten, in-flight, unknown or dead: nothing is to be done
    receipt = debit(connection, account, cents)
    connection.execute(COMPLETE, {**asked, "fence": fence, "outcome": receipt.encode()})
    return "run", receipt


def pay(url, key, account, cents):
    attempt = uuid.uuid4()
    for pause in (0.1, 0.2, 0.4, 0.8, None):
        try:
            # Commits at the end of the block; an exception rolls back.
            with psycopg.connect(url) as connection:
                return pay_in(connection, attempt, key, account, cents)
        except AGAIN:
            # Was the connection lost in COMMIT, then it may have happened: the next try is told so.
            if pause is None:
                raise
            time.sleep(pause)
# end: once


if __name__ == "__main__":
    key, account, cents = sys.argv[1:]
    print(*pay(os.environ["DATABASE_URL"], key, account, int(cents)))
