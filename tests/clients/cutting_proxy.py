"""A TCP proxy that loses answers: placed between a client and the gateway, it cuts when told."""

import re
import socket
import threading

from sockets import close_at_once

STATUS_LINE = re.compile(rb"^HTTP/1\.1 (\d{3})")


class CuttingProxy:
    """Passes bytes both ways.

    `statuses` lists the status of every HTTP/1.1 answer that arrived from behind in clear text, cut or not;
    `connections` counts those that were made to here. What is TLS or HTTP/2 can be cut only as a whole.
    """

    def __init__(self, target_url):
        scheme, target = target_url.split("://")
        host, port = target.split(":")
        self._target = (host, int(port))
        self.statuses: list[int] = []
        self.connections = 0
        self._changed = threading.Condition()
        self._cut = None  # (status or None, bytes of the body to let through, reset)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "%s://127.0.0.1:%d" % (scheme, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_answer(self, body_bytes=None, reset=False, status=None):
        """The next answer, or the next of that status, is lost. With `body_bytes` its head and that much of its body
        still get through."""
        with self._changed:
            self._cut = (status, body_bytes, reset)

    def cut_now(self):
        """Ends every connection at once; new ones are served."""
        with self._changed:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                close_at_once(end)

    def wait_for_status(self, status, timeout=20):
        with self._changed:
            if not self._changed.wait_for(lambda: status in self.statuses, timeout):
                raise AssertionError("no %d within %d s; seen: %s" % (status, timeout, self.statuses))

    def close(self):
        # shutdown first: close alone does not wake the thread that waits in accept.
        close_at_once(self._listener)
        self._listener.close()
        self.cut_now()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                close_at_once(client, reset=True)
                continue
            with self._changed:
                self._pairs.append((client, server))
                self.connections += 1
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source, sink, answers):
        try:
            while data := source.recv(65536):
                cut = self._note_answer(data) if answers else None
                if cut is None:
                    sink.sendall(data)
                    continue
                _, body_bytes, reset = cut
                if body_bytes is not None:
                    sink.sendall(_start_of_answer(source, data, body_bytes))
                close_at_once(sink, reset)
                break
        except OSError:
            pass
        close_at_once(source)
        close_at_once(sink)

    def _note_answer(self, data):
        """Counts an answer's first bytes, and hands out the cut that waits for it, if one does.

        Answers here are small and come one at a time, so a read that starts with a status line starts an answer.
        """
        if not (seen := STATUS_LINE.match(data)):
            return None
        with self._changed:
            status = int(seen.group(1))
            self.statuses.append(status)
            self._changed.notify_all()
            if self._cut is None or self._cut[0] not in (None, status):
                return None
            cut, self._cut = self._cut, None
            return cut


def _start_of_answer(source, data, body_bytes):
    """The answer's head and the first `body_bytes` of its body, which may come in several reads."""
    while b"\r\n\r\n" not in data:
        data += _read_more(source)
    end = data.index(b"\r\n\r\n") + 4 + body_bytes
    while len(data) < end:
        data += _read_more(source)
    return data[:end]


def _read_more(source):
    if more := source.recv(65536):
        return more
    raise OSError("the answer ended before the place to cut it")
