"""A TCP proxy on loopback that can fail in the ways that networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class TcpProxy:
    """Forwards a loopback port to a target until told to misbehave; every thread and socket ends with `close`.

    Args:
        target_host, target_port: where connections go.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._delay_s = 0.0
        self._drop = 0
        self.connections = 0
        self.dropped_replies = 0
        self._listener: socket.socket | None = None
        self._port = 0
        self.restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Where clients connect; the same after `cut` and `restore`."""
        return self._port

    @property
    def url(self) -> str:
        """The Redis URL of the proxy."""
        return f"redis://127.0.0.1:{self._port}/0"

    def cut(self) -> None:
        """Closes every connection and refuses new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            sockets = list(self._sockets)
        for item in [listener, *sockets]:
            if item is not None:
                # A shutdown wakes the thread that waits in accept or recv; a close alone does not.
                with contextlib.suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)
        self._join()
        if listener is not None:
            listener.close()

    def restore(self) -> None:
        """Accepts connections again, on the same port."""
        if self._listener is not None or self._closed.is_set():
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._start(self._accept, listener)

    def delay(self, seconds: float) -> None:
        """Holds everything that passes, in either direction, for this long."""
        self._delay_s = seconds

    def drop_replies(self, count: int = 1) -> None:
        """Instead of passing on the next replies, closes their connections: the commands were carried out unheard."""
        with self._lock:
            self._drop = count

    def close(self) -> None:
        """Ends everything."""
        self._closed.set()
        self.cut()

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, name="tcp-proxy", daemon=True)  # type: ignore[arg-type]
        with self._lock:
            self._threads = [item for item in self._threads if item.is_alive() or item.ident is None]
            self._threads.append(thread)
            thread.start()

    def _join(self) -> None:
        while True:
            with self._lock:
                threads = [item for item in self._threads if item.is_alive()]
            if not threads:
                return
            for thread in threads:
                thread.join(0.1)
            with self._lock:
                stragglers = list(self._sockets)
            for item in stragglers:
                with contextlib.suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self._listener is not listener
            try:
                server = None if refused else socket.create_connection(self._target, timeout=5)
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self.connections += 1
                self._sockets |= {client, server}
            self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(server, client, True), name="tcp-proxy-back", daemon=True)
        back.start()
        self._pump(client, server, False)
        back.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                if self._delay_s:
                    self._closed.wait(self._delay_s)
                if replies and self._drops():
                    break
                sink.sendall(chunk)
        for item in (source, sink):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)

    def _drops(self) -> bool:
        with self._lock:
            if not self._drop:
                return False
            self._drop -= 1
            self.dropped_replies += 1
            return True
