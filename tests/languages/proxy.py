"""Stands between a program and PostgreSQL, and cuts one connection at its COMMIT."""

import socket
import threading

BEFORE, AFTER = "before the server hears it", "after the server did it"


class Proxy:
    def __init__(self, address, cut):
        self._server, self._cut = address, cut
        self._is_cut = threading.Lock()  # taken by the one connection that is cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def did_cut(self):
        return self._is_cut.locked()

    def close(self):
        # Wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            Pair(client, socket.create_connection(self._server), self._cut, self._is_cut).start()


class Pair:
    """One connection. Each direction has a thread; the first to end takes the other with it."""

    def __init__(self, client, server, cut, is_cut):
        self._client, self._server, self._cut, self._is_cut = client, server, cut, is_cut
        self._committing = threading.Event()

    def start(self):
        for run in (self._up, self._down):
            threading.Thread(target=run, daemon=True).start()

    def _up(self):
        self._pump(self._client, self._server, self._may_ask)

    def _down(self):
        self._pump(self._server, self._client, self._may_answer)

    def _may_ask(self, said):
        # The driver sends it alone: as a statement of its own, whatever the protocol.
        if b"commit\0" not in said.lower():
            return True
        if self._cut == BEFORE and self._is_cut.acquire(blocking=False):
            return False
        self._committing.set()
        return True

    def _may_answer(self, said):
        is_done = self._committing.is_set() and b"COMMIT\0" in said
        return not (is_done and self._cut == AFTER and self._is_cut.acquire(blocking=False))

    def _pump(self, source, target, may_pass):
        try:
            while (said := source.recv(65536)) and may_pass(said):
                target.sendall(said)
        except OSError:
            pass
        for end in (self._client, self._server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
