"""PgBouncer in transaction mode before a database, with two connections to it."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from database import PASSWORD, ROLE

INI = """
[databases]
{name} = host={host} port={port} pool_size=2
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
"""


class Pooler:
    def __init__(self, database):
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = probe.getsockname()
        users = folder / "users.txt"
        users.write_text('"%s" "%s"\n' % (ROLE, PASSWORD))
        host, port = database.address
        settings = folder / "pgbouncer.ini"
        settings.write_text(INI.format(name=database.name, host=host, port=port, listen=self.address[1], users=users))
        program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
        assert program, "pgbouncer is missing: ./test setup installs it"
        command = [program, settings]
        if os.getuid() == 0:
            # It refuses to be root, and must read its files as somebody else.
            folder.chmod(0o755)
            command += ["-u", "postgres"]
        self._log = (folder / "pgbouncer.log").open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def __enter__(self):
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(self.address, 1).close()
                return self
            except OSError:
                assert self._process.poll() is None and time.monotonic() < deadline, "pgbouncer did not start"
                time.sleep(0.02)  # between two looks, not instead of one

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
        self._folder.cleanup()
