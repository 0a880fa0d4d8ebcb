"""Dovecot, Debian's IMAP server, with a mailbox of its own on a free port of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from tests.channels.mail_server import certificate, free_port, wait_until

DOVECOT = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
PASSWORD = "sesame"

CONFIG = """\
protocols = imap
listen = 127.0.0.1
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
default_login_user = {login_user}
default_internal_user = {internal_user}
default_internal_group = {internal_group}
first_valid_uid = 1
ssl = required
ssl_cert = <{folder}/server.pem
ssl_key = <{folder}/server.pem
auth_mechanisms = plain
mail_location = maildir:{folder}/mail
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={owner} gid={group} home={folder}/mail
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = 0
  }}
  inet_listener imaps {{
    port = {port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
"""


class ImapServer:
    """Mails are put into its mailbox as files; flags are read off their names."""

    def __init__(self) -> None:
        # A short path: sockets have names of at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="crier-imap-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.mailbox = self.folder / "mail"
        for name in ("new", "cur", "tmp"):
            (self.mailbox / name).mkdir(parents=True)
        self.port = free_port()
        self.certificate = certificate(self.folder).rename(self.folder / "server.pem")
        (self.folder / "dovecot.conf").write_text(CONFIG.format(**self._values()))
        self.process: subprocess.Popen[bytes] | None = None

    def _values(self) -> dict[str, object]:
        values = {"folder": self.folder, "port": self.port, "password": PASSWORD}
        if os.geteuid() != 0:
            me, mine = self.folder.owner(), self.folder.group()
            users = {"login_user": me, "internal_user": me, "internal_group": mine}
            return values | users | {"owner": me, "group": mine}
        # It serves nobody's mail as root.
        for path in (self.mailbox, *self.mailbox.iterdir()):
            shutil.chown(path, "nobody", "nogroup")
        users = {"login_user": "dovenull", "internal_user": "dovecot", "internal_group": "dovecot"}
        return values | users | {"owner": "nobody", "group": "nogroup"}

    def put(self, *mails: bytes) -> None:
        for raw in mails:
            # In the order of their names, which is that of their uids.
            path = self.mailbox / "new" / f"{1_800_000_000 + len(self.flags())}.M{len(self.flags())}.test"
            path.write_bytes(raw)
            if os.geteuid() == 0:
                shutil.chown(path, "nobody", "nogroup")

    def flags(self) -> list[str]:
        """Of each mail in its order: F flagged, S seen, as Maildir has them."""
        paths = [*(self.mailbox / "new").iterdir(), *(self.mailbox / "cur").iterdir()]
        return [path.name.partition(":2,")[2] for path in sorted(paths, key=lambda path: path.name.split(".")[0])]

    def start(self) -> None:
        assert DOVECOT is not None
        command = [DOVECOT, "-F", "-c", str(self.folder / "dovecot.conf")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._listens, 60)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Kill it with all who serve a connection: asked to end, it waits for them for seconds."""
        if self.process is None:
            return
        servants = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(20)
        self.process = None
        for servant in servants:
            with suppress(psutil.NoSuchProcess):
                servant.kill()
        wait_until(lambda: all(map(_has_ended, servants)), 20)

    def __enter__(self) -> ImapServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_ended(process: psutil.Process) -> bool:
    """Return whether it is gone, or a zombie that nothing has waited for yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
