"""What it costs to apply each message once, from RabbitMQ into PostgreSQL. Run through `./bench consumer`.

1. Consumers side by side, on one RabbitMQ and one durable PostgreSQL (synchronous_commit = on), with the same prefetch: a
   plain client (an UPDATE of one of 10,000 accounts in a transaction, then the acknowledgement), the same with an inbox by
   hand, Semel's inbox one by one, and Semel's inbox in batches. See the example `consumer` of semel-messaging.
2. They take turns, in a new order each round, and only ratios within a round are compared.
3. Each turn finds its messages in the queue before the clock starts, and is void unless afterwards the accounts have what
   the messages say: then the bench fails.
"""

import argparse
import json
import subprocess
import sys

import picture
import stores

CONSUMER = stores.ROOT / "target/release/examples/consumer"
FILE = stores.OUT / "consumer.json"
PICTURE = stores.OUT / "consumer.svg"
TURNS = {
    "plain": "plain client",
    "by-hand": "inbox by hand",
    "semel": "Semel, one by one",
    "savepoints": "Semel, savepoints",
    "batches": "Semel, set-wise",
}
# What, at least so much of the inbox by hand.
BARS = (("semel", 0.9), ("batches", 3.0))
FIGURES = ("rate", "consumer_cpu_us")


def main():
    options = arguments()
    build()
    with stores.running("postgres") as (database, keeper), stores.running("rabbitmq") as (broker, rabbit):
        results = {"rounds": options.rounds, "messages": options.messages, "prefetch": options.prefetch, "bars": [],
                   "settings": said_settings(database)}
        print("PostgreSQL: %s" % ", ".join("%s = %s" % one for one in results["settings"].items()), flush=True)
        place = (broker, database, {"postgres": keeper.pid, "rabbitmq": rabbit.pid})
        results["consumers"] = side_by_side(place, options)
    judge(results)
    stores.OUT.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(results, indent=2) + "\n")
    PICTURE.write_text(picture.bars([
        {"table": "one message, one effect", "connections": options.prefetch, "name": TURNS[what], "rate": found["rate"],
         "ratio": found["of by-hand"]} for what, found in results["consumers"].items()]))
    print("%s, %s" % (FILE.relative_to(stores.ROOT), PICTURE.relative_to(stores.ROOT)))


def arguments():
    parser = argparse.ArgumentParser(prog="./bench consumer", allow_abbrev=False, add_help=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--prefetch", type=int, default=256)
    return parser.parse_args()


def build():
    for command in (
        ("build", "--release", "-p", "semel-messaging", "--features", "amqp", "--example", "consumer"),
        ("build", "-p", "semel-testbed", "--example", "serve"),
    ):
        if subprocess.run(["cargo", *command], cwd=stores.ROOT).returncode:
            sys.exit("bench: the build failed")


def said_settings(url):
    """What makes a commit durable, as the server itself says it."""
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "default_transaction_isolation")
    return {name: stores.output(["psql", "-Atq", url, "-c", "SHOW " + name]).strip() for name in names}


# --- the turns -----------------------------------------------------------------------------------------------------


def side_by_side(place, options):
    rounds = []
    for number in range(options.rounds):
        order = list(TURNS)
        order = order[number % len(order):] + order[:number % len(order)]
        rounds.append({what: turn(place, what, options) for what in order})
    print("\nprefetch %d" % options.prefetch)
    found = {what: row(rounds, what) for what in TURNS}
    for what, mine in found.items():
        print("  %-18s %6.0f/s (%.0f to %.0f)  of by hand %.2f (%.2f to %.2f)  CPU for each: consumer %.0f, "
              "PostgreSQL %.0f, RabbitMQ %.0f µs" % (
                  TURNS[what], *stores.spread(mine["rate"]), *stores.spread(mine["of by-hand"]),
                  mine["consumer_cpu_us"]["median"], mine["postgres_cpu_us"]["median"],
                  mine["rabbitmq_cpu_us"]["median"]), flush=True)
    return found


def row(rounds, what):
    """Ratios are taken within each round, and only then summed up."""
    return {
        **{figure: stores.summary(one[what][figure] for one in rounds) for figure in rounds[0][what]},
        "of by-hand": stores.summary(one[what]["rate"] / one["by-hand"]["rate"] for one in rounds),
    }


def turn(place, what, options):
    broker, database, servers = place
    command = [str(word) for word in (CONSUMER, broker, database, what, options.messages, options.prefetch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        wait_for("begun", running, what)
        before = {name: stores.tree_seconds(pid) for name, pid in servers.items()}
        wait_for("ended", running, what)
        used = {name: stores.tree_seconds(pid) - before[name] for name, pid in servers.items()}
        figures = dict(zip(FIGURES, map(float, running.stdout.readline().split())))
    if running.returncode or len(figures) != len(FIGURES):
        sys.exit("bench: %s failed" % what)
    return {**figures, **{name + "_cpu_us": seconds / options.messages * 1e6 for name, seconds in used.items()}}


def wait_for(word, running, what):
    line = running.stdout.readline().strip()
    if line != word:
        running.wait()
        sys.exit("bench: %s failed before it had %s" % (what, word))


def judge(results):
    print("\nBars, by the medians")
    for what, bar in BARS:
        stores.verdict(results, "%s, of %s" % (TURNS[what], TURNS["by-hand"]),
                       results["consumers"][what]["of by-hand"]["median"], ">=", bar)


if __name__ == "__main__":
    main()
