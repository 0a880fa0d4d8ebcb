"""Check, without a network, that what Crier installs is pinned: Python packages by hash, images by tag or digest.

    python .ci/pins.py                  part of `make lint`: every package pinned with hashes and from no other index
    python .ci/pins.py --release        also: every image of deploy/ has a digest
    python .ci/pins.py --pin            write the present digests into deploy/ (asks the registries through docker)

No maintained package ships vulnerability data, so known advisories need a network: `make advisories`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: each one includes the packages of the one before, in the same versions
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-whatsapp.lock")
IMAGES = ("deploy/Dockerfile", "deploy/compose.yaml")

PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)(?: ; [^\\]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
#: an image that is not built here
IMAGE = re.compile(
    r"^(?:FROM|\s*image:) +(?P<name>[^\s@]+?)(?P<digest>@sha256:[0-9a-f]{64})?(?: AS \w+)?$", re.MULTILINE
)
BUILT_HERE = re.compile(r"crier(-\w+)?")


def lock_problems(text: str) -> list[str]:
    """Return a sentence for each entry of a lock file that is not pinned by version and hash."""
    # A backslash continues an entry on the next line.
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines() if entry.split("#")[0].strip()]
    problems = []
    names = set()
    for words in entries:
        hashes = [word for word in words if HASH.fullmatch(word)]
        rest = " ".join(word for word in words if not HASH.fullmatch(word))
        pinned = PINNED.fullmatch(rest)
        if pinned is None:
            problems.append(f"{rest[:100]!r} is not a package with one version (no options, addresses or files).")
            continue
        name = pinned[1].lower()
        if not hashes:
            problems.append(f"{name} has no hash.")
        if name in names:
            problems.append(f"{name} is there twice.")
        names.add(name)
    return problems or ([] if names else ["There are no packages."])


def versions(text: str) -> dict[str, str]:
    return {name.lower(): version for name, version in re.findall(rf"^{PINNED.pattern}", text, re.MULTILINE)}


def difference(smaller: dict[str, str], larger: dict[str, str]) -> list[str]:
    """Return a sentence for each package that a larger lock file lacks or has in another version."""
    return [
        f"{name} is {larger.get(name, 'missing')} here and {version} there."
        for name, version in smaller.items()
        if larger.get(name) != version
    ]


def image_problems(text: str, release: bool) -> list[str]:
    problems = []
    for found in IMAGE.finditer(text):
        name, digest = found["name"], found["digest"]
        if BUILT_HERE.fullmatch(name):
            continue
        if ":" not in name or name.endswith(":latest"):
            problems.append(f"{name} has no tag that stays the same version.")
        if release and not digest:
            problems.append(f"{name} has no digest: run `make images`.")
    return problems


def pin(text: str) -> str:
    """Return the text with the digest that each image's tag has now."""

    def pinned(found: re.Match[str]) -> str:
        name: str = found["name"]
        if BUILT_HERE.fullmatch(name):
            return found[0]
        command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", name]
        digest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return found[0].replace(name + (found["digest"] or ""), f"{name}@{digest}")

    return IMAGE.sub(pinned, text)


def problems(release: bool) -> Iterable[str]:
    locks = {path: (ROOT / path).read_text() for path in LOCKS}
    for path, text in locks.items():
        yield from (f"{path}: {problem}" for problem in lock_problems(text))
    for path in LOCKS[1:]:
        found = difference(versions(locks[LOCKS[0]]), versions(locks[path]))
        yield from (f"{path}, compared with {LOCKS[0]}: {problem}" for problem in found)
    for path in IMAGES:
        yield from (f"{path}: {problem}" for problem in image_problems((ROOT / path).read_text(), release))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that packages and images are pinned.")
    parser.add_argument("--release", action="store_true", help="images need a digest, too")
    parser.add_argument("--pin", action="store_true", help="write the present digests of images (needs docker)")
    given = parser.parse_args()
    if given.pin:
        for path in IMAGES:
            (ROOT / path).write_text(pin((ROOT / path).read_text()))
    found = list(problems(given.release or given.pin))
    sys.stdout.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
