"""Fills a store with completed keys in bulk, by what its database does best.

1. Semel makes one completed key; the others are copies of it, each with a key, an attempt and a place of its own. So they
   are what Semel writes, whatever columns that has.
2. Keys are hashes of numbers: they lie as scattered as those of clients do.
3. In pieces, so that no statement and no log grows without bound.
"""

import subprocess
import sys

PIECE = 500_000

# Where the copies' ids begin in PostgreSQL, far behind those that Semel gives. MariaDB gives them itself.
IDS_FROM = 1_000_000_000

POSTGRES_COLUMNS = """
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum),
        string_agg(CASE attname WHEN 'id' THEN '{ids} + n' WHEN 'key' THEN 'md5(n::text)'
            WHEN 'attempt' THEN 'md5(n::text)::uuid' ELSE 'one.' || quote_ident(attname) END, ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = 'semel.records'::regclass AND attnum > 0 AND NOT attisdropped
"""
POSTGRES = """
    INSERT INTO semel.records ({columns}) OVERRIDING SYSTEM VALUE SELECT {values}
    FROM (SELECT * FROM semel.records WHERE state = 3 ORDER BY id LIMIT 1) one, generate_series({first}, {last}) n;
    INSERT INTO semel.outcomes SELECT {ids} + n, bytes
    FROM (SELECT bytes FROM semel.outcomes ORDER BY record LIMIT 1) one, generate_series({first}, {last}) n;
"""

MARIADB_COLUMNS = """
    SELECT GROUP_CONCAT(CONCAT('`', column_name, '`') ORDER BY ordinal_position),
        GROUP_CONCAT(CASE column_name WHEN 'key' THEN 'MD5(seq)'
            WHEN 'attempt' THEN 'UNHEX(MD5(seq))' ELSE CONCAT('one.`', column_name, '`') END ORDER BY ordinal_position)
    FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'semel_records' AND column_name <> 'id'
"""
MARIADB = """
    INSERT INTO semel_records ({columns}) SELECT {values}
    FROM (SELECT * FROM semel_records WHERE state = 3 ORDER BY id LIMIT 1) one JOIN seq_{first}_to_{last};
"""

# KEYS: none, since this is no cluster. ARGV: a name of a record, first number, last number.
REDIS = """
    local value, expires = redis.call('GET', ARGV[1]), redis.call('PEXPIRETIME', ARGV[1])
    local _, _, scope = string.find(ARGV[1], '%z(.*)$')
    local due = redis.call('ZSCORE', '{semel:0}:due', string.sub(ARGV[1], 13))
    for number = tonumber(ARGV[2]), tonumber(ARGV[3]) do
        local id = string.sub(redis.sha1hex(number), 1, 32) .. '\\0' .. scope
        redis.call('SET', '{semel:0}:r:' .. id, value, 'PXAT', expires)
        redis.call('ZADD', '{semel:0}:due', due, id)
        redis.call('ZADD', '{semel:0}:index', 0, id)
    end
"""
REDIS_CALL = 500
REDIS_BYTES = 1_300  # of memory, each


def fill(kind, url, first, last):
    """Adds the keys of these numbers, the last one included."""
    if kind == "redis":
        there_is_memory(last - first + 1)
        return redis(url, first, last)
    pieces = [(at, min(at + PIECE - 1, last)) for at in range(first, last + 1, PIECE)]
    return {"postgres": postgres, "mariadb": mariadb}[kind](url, pieces)


def postgres(url, pieces):
    def run(statements):
        return said(["psql", "-qAtX", "-F", "\t", "-v", "ON_ERROR_STOP=1", url], statements)
    columns, values = run(POSTGRES_COLUMNS.format(ids=IDS_FROM)).strip().split("\t")
    for first, last in pieces:
        run(POSTGRES.format(columns=columns, values=values, ids=IDS_FROM, first=first, last=last))
    # What is left for later would be paid for by whoever is measured next.
    run("VACUUM ANALYZE; CHECKPOINT;")


def mariadb(url, pieces):
    def run(statements):
        return said(client(url), "SET SESSION group_concat_max_len = 100000;" + statements)
    columns, values = run(MARIADB_COLUMNS).strip().split("\t")
    for first, last in pieces:
        run(MARIADB.format(columns=columns, values=values, first=first, last=last))
    # For an export all pages of a table are written.
    run("ANALYZE TABLE semel_records; FLUSH TABLES semel_records FOR EXPORT; UNLOCK TABLES;")


def client(url):
    from urllib.parse import urlsplit
    place = urlsplit(url)
    return ["mariadb", "--no-defaults", "--protocol=tcp", "--batch", "--skip-column-names", "--host", place.hostname, "--port",
            str(place.port), "--user", place.username, "--password=" + place.password, place.path.lstrip("/")]


def redis(url, first, last):
    name = said(["redis-cli", "--no-raw", "-u", url, "--scan", "--pattern", "{semel:0}:r:*"], "").splitlines()
    if not name:
        sys.exit("bench: no record to copy")
    record = name[0].strip('"').encode().decode("unicode_escape").encode("latin-1")
    calls = (resp([b"EVAL", REDIS.encode(), b"0", record, b"%d" % at, b"%d" % min(at + REDIS_CALL - 1, last)])
             for at in range(first, last + 1, REDIS_CALL))
    pipe = subprocess.Popen(["redis-cli", "-u", url, "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for call in calls:
        pipe.stdin.write(call)
    told = pipe.communicate()[0].decode()
    if pipe.returncode or "errors: 0" not in told:
        sys.exit("bench: redis-cli: " + told)


def resp(command):
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)


def there_is_memory(records):
    with open("/proc/meminfo") as told:
        free = next(int(line.split()[1]) for line in told if line.startswith("MemAvailable:")) * 1024
    if free < records * REDIS_BYTES:
        sys.exit("bench: %d records more need about %.1f GB of memory in Redis, and there are %.1f; see --records" % (
            records, records * REDIS_BYTES / 1e9, free / 1e9))


def said(command, statements):
    done = subprocess.run(command, input=statements, capture_output=True, text=True)
    if done.returncode:
        sys.exit("bench: %s: %s" % (command[0], done.stderr or done.stdout))
    return done.stdout
