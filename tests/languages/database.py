"""A PostgreSQL of the tests' own, a database in it for each test, and the role that the programs log in as."""

import itertools
import os
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/any-language"
SEMEL = os.environ.get("SEMEL", str(ROOT / "target/release/semel"))
SERVE = ["cargo", "run", "--quiet", "-p", "semel-testbed", "--example", "serve", "--", "postgres"]

ROLE, PASSWORD = "payments_app", "payments-test"
BALANCE = 100_000

# What the program reads its own settings from must not reach it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "PG"))}


class Server:
    """The server at SEMEL_TEST_POSTGRES, or one that testbed/ starts and that ends with this object."""

    def __init__(self):
        self._process = None
        self.url = os.environ.get("SEMEL_TEST_POSTGRES")
        if not self.url:
            self._process = subprocess.Popen(
                SERVE, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.url = self._process.stdout.readline().strip()
            assert self.url, "PostgreSQL did not start: ./test setup installs it"
        self._numbers = itertools.count()
        self._run("DROP ROLE IF EXISTS %s" % ROLE, "CREATE ROLE %s LOGIN PASSWORD '%s'" % (ROLE, PASSWORD))

    def database(self):
        name = "languages_%d_%d" % (os.getpid(), next(self._numbers))
        self._run("CREATE DATABASE %s" % name)
        return Database(urlsplit(self.url)._replace(path="/" + name))

    def drop(self, database):
        self._run("DROP DATABASE %s WITH (FORCE)" % database.name)

    def _run(self, *statements):
        with psycopg.connect(self.url, autocommit=True) as owner:
            for statement in statements:
                owner.execute(statement)

    def close(self):
        self._run("DROP ROLE %s" % ROLE)
        if self._process:
            self._process.stdin.close()
            self._process.wait(30)
            self._process.stdout.close()


class Database:
    def __init__(self, url):
        self.url, self.name = url.geturl(), url.path[1:]
        self.address = (url.hostname, url.port or 5432)

    def fill(self):
        self.migrate()
        with self.owner() as owner:
            for file in ("schema.sql", "rights.sql"):
                owner.execute((EXAMPLES / file).read_text())
            owner.execute("INSERT INTO accounts VALUES ('alice', %d, sha256('alice-token'))" % BALANCE)

    def migrate(self):
        done = subprocess.run([SEMEL, "migrate", "--store", self.url], env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def owner(self, autocommit=True):
        # The owner may be named semel, and the schema of that name would come first.
        return psycopg.connect(self.url, autocommit=autocommit, options="-c search_path=public")

    def programs_url(self, address=None):
        """As the programs log in; at another address, where a proxy stands in front."""
        host, port = address or self.address
        return "postgres://%s:%s@%s:%d/%s" % (ROLE, PASSWORD, host, port, self.name)

    def ask(self, statement, *values):
        with self.owner() as owner:
            return owner.execute(statement, values).fetchone()

    def ledger(self):
        """What alice has left, how many payments there are, and their sum. They must agree, always."""
        balance, count, cents = self.ask(
            "SELECT balance_cents, count(p.id), coalesce(sum(p.cents), 0)::bigint"
            " FROM accounts AS a LEFT JOIN payments AS p ON p.account = a.id WHERE a.id = 'alice' GROUP BY 1")
        assert balance + cents == BALANCE
        return balance, count, cents

    def wait_until_blocked(self, count):
        """Until so many connections of the programs wait for a lock; gives their process ids."""
        deadline = time.monotonic() + 60
        with self.owner() as owner:
            while True:
                waiting = owner.execute(
                    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND usename = %s AND wait_event_type = 'Lock'"
                    " ORDER BY query_start", (self.name, ROLE)).fetchall()
                if len(waiting) >= count:
                    return [pid for pid, in waiting]
                assert time.monotonic() < deadline, "%d of %d programs wait for a lock" % (len(waiting), count)
                time.sleep(0.02)  # between two looks, not instead of one

    def wait_until_gone(self, pid):
        """Until the server has noticed that the program of this connection died."""
        deadline = time.monotonic() + 60
        with self.owner() as owner:
            while owner.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() is not None:
                assert time.monotonic() < deadline, "the connection of a program that died is still there"
                time.sleep(0.02)  # between two looks, not instead of one


# Where a program can be stopped: what another transaction locks for that.
BLOCKED = {
    "before the debit": "SELECT FROM accounts FOR UPDATE",
    "after the debit": "LOCK TABLE payments IN SHARE MODE",
    "in complete": "LOCK TABLE semel.outcomes IN SHARE MODE",
    "in COMMIT": "SELECT pg_advisory_xact_lock(77)",
}

# A COMMIT that waits: the trigger runs in it.
SLOW_COMMIT = """
    CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow_commit();
"""
