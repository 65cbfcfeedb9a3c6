"""docs/any-language.md: its snippets are parts of the programs, its functions are the schema's, its links lead somewhere."""

import re
import subprocess
import textwrap

import pytest

from database import ENVIRONMENT, ROOT, SEMEL

FILE = ROOT / "docs/any-language.md"
TEXT = FILE.read_text()
SOURCES = {"python", "javascript", "go", "java", "sql"}
BLOCK = re.compile(r"(?:<!-- from: (?P<source>\S+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def test_every_snippet_is_a_part_of_a_program_that_runs():
    seen = set()
    for block in BLOCK.finditer(TEXT):
        if block["language"] in SOURCES:
            assert block["source"], block["code"]
            whole = textwrap.dedent((ROOT / block["source"]).read_text())
            assert block["code"] in whole, "%s has not:\n%s" % (block["source"], block["code"])
            seen.add(block["language"])
    assert seen == SOURCES


def test_the_functions_are_those_of_the_schema(database):
    documented = {}
    interface = next(block["code"] for block in BLOCK.finditer(TEXT) if "OUT claim text" in block["code"])
    for line in interface.strip().split("\n\n"):
        name, arguments = re.fullmatch(r"semel\.(\w+)\((.*)\)", squeezed(line)).groups()
        documented[name] = arguments
    there = {}
    with database.owner() as owner:
        for name, arguments, result in owner.execute(
                "SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc"
                " WHERE pronamespace = 'semel'::regnamespace AND obj_description(oid) NOT LIKE '%Not an interface.'"):
            arguments = re.sub(r"DEFAULT '(\d+)'::bigint", r"DEFAULT \1", arguments)
            arguments = re.sub(r"(DEFAULT (?:'\w*'|NULL))::\w+", r"\1", arguments)
            there[name] = arguments + (") " + result[:-1] if result.startswith("TABLE") else "")
        [(there["answer"],)] = owner.execute(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
            " FROM pg_attribute WHERE attrelid = 'semel.answer'::regclass")
    assert documented == there


def test_its_links_lead_somewhere():
    headings = {re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
                for line in TEXT.splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert (FILE.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("printed", [["--print", "postgres"], ["--print", "--store", "postgres://nobody@192.0.2.1/none"]])
def test_what_migrate_prints_makes_the_schema(empty_database, printed):
    said = subprocess.run([SEMEL, "migrate", *printed], env=ENVIRONMENT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", empty_database.url], input=said.stdout,
                   env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert empty_database.ask("SELECT max(number) >= 3 FROM semel.migrations") == (True,)
    empty_database.migrate()  # and finds nothing left to do
    assert empty_database.ask("SELECT claim FROM semel.claim('s', 'k', gen_random_uuid(), semel.fingerprint('x'))") == ("acquired",)
