"""The embedded PostgreSQL with real processes: sharing, stopping, and every way of dying."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest

from config.local import embedded_keeper
from config.local.embedded_files import Layout, layout

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0
# Says its URL, then lives until its standard input is closed.
USER = """
import sys
from pathlib import Path
from config.local.embedded import ensure_running
print(ensure_running(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class User:
    """A process that uses the server, as every manage.py command does."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(root)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def url(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a server that was set up and stopped, to be copied: initdb takes longer than most tests here.

    Without fsync, or a server that was killed would first sync its 1,300 files, which takes minutes on a busy disk.
    """
    made = layout(tmp_path_factory.mktemp("made") / "var")
    user = User(made.root)
    with psycopg.connect(user.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
    user.end()
    wait_for(lambda: not processes_of(made), made)
    return made.data


@pytest.fixture
def place(tmp_path: Path, cluster: Path) -> Iterator[Layout]:
    here = layout(tmp_path / "var")
    copy(cluster, here)
    yield here
    wait_for(lambda: not processes_of(here), here)


def copy(cluster: Path, place: Layout) -> None:
    place.root.mkdir(mode=0o700, parents=True)
    subprocess.run(["cp", "-a", cluster, place.data], check=True)  # with its owner


@pytest.fixture
def empty_place(tmp_path: Path) -> Iterator[Layout]:
    here = layout(tmp_path / "empty" / "var")
    yield here
    wait_for(lambda: not processes_of(here), here)


@pytest.fixture
def start() -> Iterator[Callable[[Layout], User]]:
    users: list[User] = []

    def one(place: Layout) -> User:
        users.append(User(place.root))
        return users[-1]

    yield one
    for user in users:
        if user.process.poll() is None:
            user.kill()


def wait_for(condition: Callable[[], object], place: Layout) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {processes_of(place)}\n{end_of_log(place)}"
        time.sleep(0.05)


def end_of_log(place: Layout) -> str:
    return place.log.read_text()[-3000:] if place.log.exists() else "no log"


def processes_of(place: Layout) -> list[psutil.Process]:
    return [*servers_of(place), *keepers_of(place)]


def servers_of(place: Layout) -> list[psutil.Process]:
    return list(embedded_keeper._processes_on(place.data))


def keepers_of(place: Layout) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-2:] == ["config.local.embedded_keeper", str(place.root)]:
                found.append(process)
    return found


def postmaster_pid(place: Layout) -> int:
    return int(place.pid_file.read_text().splitlines()[0])


def ask(url: str, query: str = "SELECT 1") -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]


def answers(url: str) -> bool:
    try:
        return ask(url) == 1
    except psycopg.Error:
        return False


def kill_everything(place: Layout) -> None:
    # The keeper stands still meanwhile: it would bring the server back, and its end would shut the server down cleanly.
    keepers = keepers_of(place)
    for keeper in keepers:
        keeper.suspend()
    for process in (*servers_of(place), *keepers):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def test_two_processes_share_one_server_which_stops_after_the_last(place, start):
    first, second = start(place), start(place)
    assert first.url == second.url != ""
    pid = postmaster_pid(place)
    assert len(keepers_of(place)) == 1

    first.end()
    time.sleep(embedded_keeper.GRACE_SECONDS + 0.5)
    assert postmaster_pid(place) == pid

    second.end()
    wait_for(lambda: not processes_of(place), place)
    assert not place.pid_file.exists()


def test_what_was_written_is_there_after_a_restart(place, start):
    first = start(place)
    with psycopg.connect(first.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS word")
    first.kill()
    wait_for(lambda: not processes_of(place), place)
    assert ask(start(place).url, "SELECT word FROM note") == "kept"


def test_users_that_come_and_go_always_find_a_server(place, start):
    for pause in (0.0, 0.9, 1.0, 1.1, 1.2, 1.3):
        user = start(place)
        assert ask(user.url) == 1
        user.end()
        time.sleep(pause)  # around the grace: some arrive while the server is being stopped


def test_a_killed_server_comes_back_while_it_has_users(place, start):
    url = start(place).url
    pid = postmaster_pid(place)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: answers(url), place)
    assert postmaster_pid(place) != pid


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_is_ended_again_and_again_still_comes_back(place, start, sign):
    """The keeper gave up after four deaths within three seconds each, although the server could run. One that ends in
    order takes its pid file along."""
    url = start(place).url
    for _ in range(5):
        wait_for(lambda: answers(url), place)
        server = psutil.Process(postmaster_pid(place))
        server.send_signal(sign)
        server.wait(PATIENCE)
    wait_for(lambda: answers(url), place)


def test_a_killed_keeper_is_replaced_by_the_next_user(place, start):
    start(place).url  # noqa: B018 - reading it waits for the server
    keepers_of(place)[0].kill()
    assert ask(start(place).url) == 1
    assert len(keepers_of(place)) == 1


def test_a_killed_keeper_leaves_no_server_behind(place, start):
    user = start(place)
    assert user.url
    keepers_of(place)[0].kill()
    wait_for(lambda: not servers_of(place), place)


def test_everything_killed_at_once_recovers(place, start):
    user = start(place)
    with psycopg.connect(user.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS word")
    kill_everything(place)
    user.kill()
    assert place.pid_file.exists()
    assert ask(start(place).url, "SELECT word FROM note") == "kept"


def test_a_stale_pid_file_may_name_an_unrelated_process(place, start):
    user = start(place)
    assert user.url
    kill_everything(place)
    user.kill()
    # Same user as the server: exactly the case in which PostgreSQL itself refuses to start.
    owner = place.data.stat().st_uid
    stranger = subprocess.Popen(["sleep", "300"], user=owner if os.geteuid() == 0 else None)
    try:
        for path in (place.pid_file, place.socket.with_name(place.socket.name + ".lock")):
            lines = path.read_text().splitlines()
            path.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        assert ask(start(place).url) == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_log_is_for_one_user_only_and_the_folder_above_is_left_alone(empty_place, start):
    place = empty_place
    place.root.mkdir(parents=True)
    place.root.chmod(0o755)
    place.log.touch(0o644)
    assert ask(start(place).url) == 1
    assert oct(place.log.stat().st_mode & 0o777) == "0o600"
    assert oct(place.root.stat().st_mode & 0o777) == "0o755"


def test_an_interrupted_set_up_is_done_again(empty_place, start):
    place = empty_place
    place.new_data.mkdir(parents=True)
    (place.new_data / "half").write_text("written")
    assert ask(start(place).url) == 1
    assert not place.new_data.exists()


def test_a_broken_data_directory_is_one_clear_error(empty_place):
    place = empty_place
    place.data.mkdir(parents=True, mode=0o700)
    (place.data / "PG_VERSION").write_text("9.6\n")
    code = "from config.local import embedded as e\nimport pathlib, sys\n"
    code += "try:\n e.ensure_running(pathlib.Path(sys.argv[1]))\nexcept e.EmbeddedError as p:\n print(p)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(place.root)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("The embedded PostgreSQL does not start.")


@pytest.mark.parametrize("length", [85, 95, 150])
def test_a_long_path_does_not_break_the_socket(tmp_path, cluster, length):
    root = tmp_path / ("d" * (length - len(str(tmp_path)) - 5)) / "var"
    assert len(str(root)) == length
    copy(cluster, layout(root))
    user = User(root)
    url = user.url
    try:
        socket_dir = parse_qs(urlsplit(url).query)["host"][0]
        assert len(f"{socket_dir}/.s.PGSQL.5432") < 108
        assert ask(url) == 1
    finally:
        user.end()
    wait_for(lambda: not processes_of(layout(root)), layout(root))
    assert Path(socket_dir).exists() == (Path(socket_dir) == layout(root).data)
