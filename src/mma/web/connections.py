"""Connections with limits: a client that dawdles loses its own connection and nobody else's."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 128
MAX_HEADERS = 16_384  # bytes of a request before its body
HEADER_SECONDS = 10.0
LINGER_SECONDS = 30.0  # to read what was sent after the server wants to close


class Connection(H11Protocol):
    """One connection: its request must arrive in time, and the oldest silent one makes room for a new one."""

    max_connections, header_seconds, linger_seconds = MAX_CONNECTIONS, HEADER_SECONDS, LINGER_SECONDS
    deadline: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: whoever connects says soon what it wants."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.arm()
        if len(self.connections) > self.max_connections:
            self.make_room()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; the clock runs while the head of a request is incomplete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.arm()
        else:
            self.disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.disarm()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection nobody uses; cut it when the client does not even read what is left."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.linger_seconds, self.transport.abort)

    def arm(self) -> None:
        """Start the clock, unless it runs."""
        if self.deadline is None:
            self.deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def disarm(self) -> None:
        """Stop the clock."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def make_room(self) -> None:
        """Cut the oldest connection that never sent a whole request; when each one did, the new one goes."""
        silent = [
            each
            for each in self.connections
            if isinstance(each, Connection) and each.cycle is None and each is not self
        ]
        min(silent, key=lambda each: each.since, default=self).transport.abort()
