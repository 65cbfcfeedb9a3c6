"""What a key in the caller's own transaction costs. Run through `./bench same-transaction`.

1. Four transactions, each with the same client library, on one durable PostgreSQL: the business alone (a payment from one of
   10,000 accounts and its receipt), the same with a table of keys by hand, the same with Semel, and Semel's answer to a
   duplicate. See the example `transaction` of semel-store.
2. They take turns, in a new order each round, and only ratios within a round are compared.
3. Every turn begins with no receipts, warm connections, vacuumed accounts and a checkpoint, and is void unless afterwards there is one receipt
   for each payment, and no money missing: then the bench fails.
"""

import argparse
import json
import subprocess
import sys

import stores

TRANSACTION = stores.ROOT / "target/release/examples/transaction"
FILE = stores.OUT / "same-transaction.json"
LIBRARIES = ("tokio-postgres", "sqlx")
CALLERS = (1, 16, 64)
TURNS = {"alone": "the business alone", "by-hand": "by hand", "semel": "Semel", "duplicates": "Semel, duplicates"}
# What, beside what, at least so much of it: for each library and each number of callers.
BARS = (
    ("semel", "by-hand", {"tokio-postgres": 0.95, "sqlx": 0.95}),
    ("semel", "alone", {"tokio-postgres": 0.8, "sqlx": 0.65}),
    ("duplicates", "alone", {"tokio-postgres": 2.0, "sqlx": 2.0}),
)
FIGURES = ("rate", "p50_us", "p99_us", "max_us", "client_cpu_us")


def main():
    options = arguments()
    stores.build("sqlx-postgres", ("transaction",))
    results = {"rounds": options.rounds, "seconds": options.seconds, "libraries": {}, "bars": []}
    with stores.running("postgres") as (url, keeper):
        settings = said_settings(url)
        results["settings"] = settings
        print("PostgreSQL: %s" % ", ".join("%s = %s" % one for one in settings.items()), flush=True)
        for library in options.only:
            results["libraries"][library] = {
                str(callers): side_by_side(url, keeper, library, callers, options) for callers in CALLERS}
    judge(results)
    stores.OUT.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(results, indent=2) + "\n")
    print(FILE.relative_to(stores.ROOT))


def arguments():
    parser = argparse.ArgumentParser(prog="./bench same-transaction", allow_abbrev=False, add_help=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", type=libraries, default=LIBRARIES)
    return parser.parse_args()


def libraries(text):
    wanted = tuple(text.split(","))
    for library in wanted:
        if library not in LIBRARIES:
            raise argparse.ArgumentTypeError("no library '%s'; there are: %s" % (library, ", ".join(LIBRARIES)))
    return wanted


def said_settings(url):
    """What makes a commit durable, as the server itself says it."""
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "default_transaction_isolation")
    return {name: stores.output(["psql", "-Atq", url, "-c", "SHOW " + name]).strip() for name in names}


# --- the turns -----------------------------------------------------------------------------------------------------


def side_by_side(url, keeper, library, callers, options):
    rounds = []
    for number in range(options.rounds):
        order = list(TURNS)
        order = order[number % len(order):] + order[:number % len(order)]
        rounds.append({what: turn(url, keeper, library, what, callers, options.seconds) for what in order})
    print("\n%s, %d %s" % (library, callers, "caller" if callers == 1 else "callers"))
    found = {what: row(rounds, what) for what in TURNS}
    for what, mine in found.items():
        print("  %-18s %7.0f/s (%.0f to %.0f)  of alone %.2f (%.2f to %.2f)  of by hand %.2f (%.2f to %.2f)  "
              "p50 %.2f ms  p99 %.2f ms  CPU server %.0f, client %.0f µs" % (
                  TURNS[what], *stores.spread(mine["rate"]), *stores.spread(mine["of alone"]),
                  *stores.spread(mine["of by-hand"]), mine["p50_us"]["median"] / 1e3, mine["p99_us"]["median"] / 1e3,
                  mine["server_cpu_us"]["median"], mine["client_cpu_us"]["median"]), flush=True)
    return found


def row(rounds, what):
    """Ratios are taken within each round, and only then summed up."""
    return {
        **{figure: stores.summary(one[what][figure] for one in rounds) for figure in rounds[0][what]},
        **{"of " + base: stores.summary(one[what]["rate"] / one[base]["rate"] for one in rounds)
           for base in ("alone", "by-hand")},
    }


def turn(url, keeper, library, what, callers, seconds):
    command = [str(word) for word in (TRANSACTION, url, library, what, callers, seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        wait_for("begun", running, command)
        before = stores.tree_seconds(keeper.pid)
        wait_for("ended", running, command)
        used = stores.tree_seconds(keeper.pid) - before
        figures = dict(zip(FIGURES, map(float, running.stdout.readline().split())))
    if running.returncode or len(figures) != len(FIGURES):
        sys.exit("bench: %s failed" % " ".join(command[2:]))
    return {**figures, "server_cpu_us": used / (figures["rate"] * seconds) * 1e6}


def wait_for(word, running, command):
    line = running.stdout.readline().strip()
    if line != word:
        running.wait()
        sys.exit("bench: %s failed before it had %s" % (" ".join(command[2:]), word))


def judge(results):
    print("\nBars, by the medians")
    for library, by_callers in results["libraries"].items():
        for callers, found in by_callers.items():
            for what, base, bars in BARS:
                stores.verdict(results, "%s, %s callers: %s, of %s" % (library, callers, TURNS[what], TURNS[base]),
                               found[what]["of " + base]["median"], ">=", bars[library])


if __name__ == "__main__":
    main()
