# SPDX-License-Identifier: Apache-2.0
"""Print what pyproject.toml asks for, one requirement a line.

The Makefile installs from this list, so that the requirements of building,
running, testing and linting are written down once. Needs only the standard library.

    python3 tools/requirements.py build run examples test dev
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(groups: list[str]) -> list[str]:
    """Requirements of `groups`: "build", "run" or the name of an extra.

    Raises KeyError for a name that is none of these.
    """
    document = tomllib.loads(PYPROJECT.read_text())
    project = document["project"]
    known: dict[str, list[str]] = {
        "build": document["build-system"]["requires"],
        "run": project["dependencies"],
        **project["optional-dependencies"],
    }
    return sorted({line for group in groups for line in known[group]})


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
