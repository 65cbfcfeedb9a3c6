"""What both fakes need of a socket."""

import socket
import struct


def close_at_once(sock, reset=False):
    """Ends the connection now, in both directions, although other threads still hold it.

    With `reset` the other end sees a reset, as from a machine that died; otherwise an orderly end.
    """
    try:
        if reset:
            # Taken away from the other thread first, whose own close would send an orderly end before the reset.
            sock = socket.socket(fileno=sock.detach())
            # Linger of zero seconds: close sends RST instead of FIN.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Wakes a thread that waits in recv: the reset goes out when the last one lets go.
            sock.shutdown(socket.SHUT_RD)
            sock.close()
        else:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # ended already
