"""The job that the chaos tests of map_async kill: every record is looked up in a service.

Run as `python lookup_program.py FOLDER port=PORT [retries=N]`; the folder has `in/` with JSON files and gets everything else.
"""

from __future__ import annotations

import asyncio
import sys

from tidewheel import Job, RunOptions, idempotency_key
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files


def build(folder: str, port: int, retries: int) -> Job:
    async def look_up(name: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET /{name} HTTP/1.1\r\nIdempotency-Key: {idempotency_key()}\r\n\r\n".encode())
            status = (await reader.readuntil(b"\r\n")).split()[1]
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.split()[1]))
        finally:
            writer.close()
        if status == b"503":
            raise ConnectionError("busy")
        return body.decode()

    job = Job("chaos", state=f"file://{folder}/state", n_shards=8)
    source = files(f"{folder}/in", format="json", schema="user string, amount long", max_files_per_trigger=1)
    found = job.source("in", source).map_async(
        "look-up",
        look_up,
        on=lambda row: f"{row.user}.{row.amount}",
        combine=lambda row, found: {"user": row.user, "amount": row.amount, "found": found},
        timeout="500 ms",
        retries=retries,
        ordered=False,
    )
    numbered = found.key_by("by-user", lambda row: row["user"]).stateful_map(
        "number", lambda user, row, n: ({**row, "n": n + 1}, n + 1), default=0
    )
    numbered.sink("out", file_sink(f"{folder}/out", format="json"), key=False)
    return job


def main() -> int:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    build(folder, int(options["port"]), int(options.get("retries", 8))).run(
        until="end",
        parallelism=2,
        options=RunOptions(master="local[2]", local=f"{folder}/local", conf={"spark.driver.memory": "1g"}),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
