"""Celery with Redis: late acknowledgement, so that a killed worker's tasks come back."""

# mypy: ignore-errors
import os
import sys

import book
from celery import Celery, group

app = Celery("celery_worker", broker=os.environ["REDIS_URL"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    broker_transport_options={"visibility_timeout": 10},
)


@app.task(name="deliver")
def deliver(number: int) -> None:
    book.send(number)


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        group(deliver.s(n) for n in range(int(sys.argv[2]))).apply_async()
    else:
        processes = f"--concurrency={os.environ['PROCESSES']}"
        app.worker_main(["worker", "--loglevel=ERROR", processes, "--without-gossip", "--without-mingle"])
