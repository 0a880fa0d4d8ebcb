"""What stands for a provider in every peer: a line with the message's number and the time, appended at once."""

import os
import time

_book = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def send(number: int) -> None:
    os.write(_book, f"{number} {time.time()}\n".encode())
