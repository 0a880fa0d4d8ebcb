"""`python -m tests.simulation`: see campaign.py, which its workers import as well."""

import sys

from tests.simulation.campaign import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
