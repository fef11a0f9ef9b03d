"""Print what pyproject.toml asks for: the build, the run-time and the named extras.

Run before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(extras: list[str]) -> list[str]:
    """Return the requirement lines, with extras of the project itself written out."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = data["project"]
    optional = project["optional-dependencies"]
    own = re.compile(rf"{re.escape(project['name'])}\[([^]]*)\]$")
    lines = [*data["build-system"]["requires"], *project["dependencies"]]
    pending = list(extras)
    seen: set[str] = set()
    while pending:
        extra = pending.pop(0)
        if extra in seen:
            continue
        seen.add(extra)
        if extra not in optional:
            sys.exit(f"pyproject.toml has no extra {extra!r}; it has {', '.join(optional)}")
        for line in optional[extra]:
            match = own.match(line)
            if match:
                pending += [name.strip() for name in match[1].split(",")]
            else:
                lines.append(line)
    return list(dict.fromkeys(lines))


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(sys.argv[1:])) + "\n")
