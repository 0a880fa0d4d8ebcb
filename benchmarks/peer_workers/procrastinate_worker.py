"""procrastinate: an async task per message, enqueued in bulk, workers with 50 at once."""

# mypy: ignore-errors
import asyncio
import os
import sys

import book
import procrastinate

# libpq reads PGHOST, PGUSER and PGDATABASE by itself. All processes together stay below what the server allows.
CONNECTIONS = 120 // int(os.environ["PROCESSES"])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo="", max_size=CONNECTIONS))


@app.task(name="deliver", retry=3)
async def deliver(number: int) -> None:
    book.send(number)


async def main(what: str, jobs: int) -> None:
    async with app.open_async():
        if what == "enqueue":
            await app.schema_manager.apply_schema_async()
            for first in range(0, jobs, 1000):
                await deliver.batch_defer_async(*({"number": n} for n in range(first, min(first + 1000, jobs))))
        else:
            await app.run_worker_async(concurrency=50, wait=True, delete_jobs="always", fetch_job_polling_interval=0.5)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
