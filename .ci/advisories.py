"""`make advisories`: which of the pinned packages have known advisories. Needs nothing but Python.

Asks osv.dev, which also has PyPI's and GitHub's advisories, for all packages in one request. Exit 0: none known,
1: some are, 2: the lock file cannot be read, 3: osv.dev could not be reached, so nothing is known.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path

QUESTION = "https://api.osv.dev/v1/querybatch"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
TIMEOUT = 20.0


def pinned(lock: str) -> list[tuple[str, str]]:
    return PINNED.findall(lock)


def advisories(packages: list[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The ids of the advisories of each package that has some."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(QUESTION, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        results = json.load(answer)["results"]
    ids = {package: [entry["id"] for entry in result.get("vulns", [])] for package, result in zip(packages, results)}
    return {package: listed for package, listed in ids.items() if listed}


def main(path: str) -> int:
    try:
        packages = pinned(Path(path).read_text())
    except OSError as problem:
        print(f"{path} cannot be read: {problem.strerror}.", file=sys.stderr)
        return 2
    try:
        known = advisories(packages)
    except (OSError, ValueError, KeyError) as problem:
        print(f"{QUESTION} could not be reached ({problem}): nothing is known about the packages in {path}.")
        return 3
    for (name, version), ids in known.items():
        print(f"{name} {version}: {', '.join(f'https://osv.dev/{one}' for one in ids)}")
    print(f"{len(known)} of {len(packages)} packages in {path} have known advisories.")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(max(main(path) for path in sys.argv[1:] or ["requirements.lock"]))
