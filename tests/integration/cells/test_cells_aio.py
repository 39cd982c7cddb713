"""The asyncio interface: the same behaviour, without blocking the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.waiting import IN_TIME
from tidewheel import cells
from tidewheel.cells import TicketIssuer, TicketValidator, aio


def test_commands_reads_and_waits(place):
    async def main():
        async with aio.open(place.url) as one, aio.open(place.url) as two:
            writer, reader = await one.writer("x", int), await two.reader("x", int)
            assert reader.is_empty()
            assert reader.is_none()
            version = await writer.write(1)
            assert await reader.when.reaches(version, timeout=IN_TIME) == (version, 1)
            assert reader.read() == reader.get() == 1
            assert reader.is_some()
            assert reader.version() == version
            done = await writer.compare_exchange(1, 2)
            assert done.applied
            assert not (await writer.compare_exchange_at(version, 3)).applied
            assert (await writer.update(lambda value: value + 1)).value == 3
            cleared = await writer.clear()
            assert await reader.refresh() == (cleared, None)
            assert await writer.set(4) == writer.version()
            assert await one.names() == ["x"]
            assert not hasattr(reader, "write")
            assert reader.is_online
            await reader.when.online(timeout=IN_TIME)
            async with await one.reader("x", int) as third:
                assert third.snapshot().value == 4
            with pytest.raises(cells.Closed):
                third.read()

    asyncio.run(main())


def test_a_wait_leaves_the_loop_free_and_takes_no_thread(place):
    async def main():
        async with aio.open(place.url) as connection:
            reader, writer = await connection.reader("x", int), await connection.writer("x", int)
            before = set(threading.enumerate())
            waits = [asyncio.create_task(reader.when.updated(timeout=IN_TIME)) for _ in range(50)]
            await asyncio.sleep(0)
            assert set(threading.enumerate()) <= before
            version = await writer.write(1)
            assert await asyncio.gather(*waits) == [(version, 1)] * 50

    asyncio.run(main())


def test_updated_since_a_version(place):
    async def main():
        async with aio.open(place.url) as connection:
            writer = await connection.writer("x", int)
            first, second = await writer.write(1), await writer.write(2)
            assert await writer.when.updated(since=first) == (second, 2)

    asyncio.run(main())


def test_watch_ends_when_the_cell_is_closed(place):
    async def main():
        async with aio.open(place.url) as connection:
            writer, reader = await connection.writer("x", int), await connection.reader("x", int)

            async def write_some():
                for number in range(1, 4):
                    await writer.write(number)

            writing = asyncio.create_task(write_some())
            seen = []
            async for snapshot in reader.watch(since=0):
                seen.append(snapshot.value)
                if snapshot.value == 3:
                    reader.close()
            await writing
            assert seen == sorted(seen)
            assert seen[-1] == 3

    asyncio.run(main())


def test_timeouts_cancellation_and_closing_leave_nothing_behind():
    async def main():
        async with aio.open("memory:") as connection:
            reader = await connection.reader("x", int)
            with pytest.raises(TimeoutError, match=r"cell default/x .* did not change within 0\.01 s"):
                await reader.when.updated(timeout="0.01 s")
            with pytest.raises(TimeoutError, match="was not offline"):
                await reader.when.offline(timeout="0 s")
            cancelled = asyncio.create_task(reader.when.updated())
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert not reader._cell._callbacks
            waiting = asyncio.create_task(reader.when.updated())
            await asyncio.sleep(0)
            reader.close()
            with pytest.raises(cells.Closed):
                await waiting

    asyncio.run(main())


def test_tickets():
    async def main():
        key = Ed25519PrivateKey.generate()
        async with aio.open("memory:") as connection:
            writer, reader = await connection.writer("x", int), await connection.reader("x", int)
            reader.require_ticket(TicketValidator(key.public_key(), audience="app", algorithm="EdDSA"))
            await writer.write(1)
            assert reader.is_empty()
            issuer = TicketIssuer(key, audience="app", algorithm="EdDSA")
            await writer.present(issuer.issue("me", lifetime="60 s")).write(2)
            assert reader.read() == 2

    asyncio.run(main())


def test_errors_are_the_same():
    async def main():
        with pytest.raises(cells.Offline):
            async with aio.open("etcd://127.0.0.1:1/x", timeout="0.1 s"):
                pass
        connection = aio.open("memory:")
        with pytest.raises(cells.Closed, match="async with"):
            await connection.reader("x", int)

    asyncio.run(main())
