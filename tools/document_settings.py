# SPDX-License-Identifier: Apache-2.0
"""Write docs/settings.md from the one list of settings, settings.def.

python tools/document_settings.py            write the page
python tools/document_settings.py --check    exit 1 when the page is not up to date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFINITIONS = ROOT / "native" / "protocol" / "include" / "tessera" / "protocol" / "settings.def"
PAGE = ROOT / "docs" / "settings.md"

SETTING = re.compile(r'^TESSERA_SETTING\(\w+, "(\w+)", (\w+), "([^"]*)", "(.*)"\)$', re.MULTILINE)

HEAD = """\
<!-- Written by tools/document_settings.py from settings.def; do not edit. -->
# Settings

Tessera reads these from the environment of the program, of the controller
(`tessera-ctl up`) and of the workers that it starts. A flag is set by `1`.

| variable | kind | default | meaning |
|---|---|---|---|
"""
TAIL = """
Those of the simulated GPU are in [simulator.md](simulator.md).
`TESSERA_NATIVE_DIR` is for developing Tessera itself: the folder of the native
artefacts, in place of those in the installed package.
"""


def page(definitions: str) -> str:
    """The page for the text of settings.def. Raises ValueError when a line is not understood."""
    rows = SETTING.findall(definitions)
    if len(rows) != len(re.findall(r"^TESSERA_SETTING\(", definitions, re.MULTILINE)):
        raise ValueError("settings.def has a setting that is not on one line, or not quoted")
    lines = [
        f"| `{name}` | {kind} | {f'`{default}`' if default else 'see meaning'} | {meaning} |"
        for name, kind, default, meaning in rows
    ]
    return HEAD + "\n".join(lines) + "\n" + TAIL


def main() -> None:
    text = page(DEFINITIONS.read_text())
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit(
                "docs/settings.md is not up to date: python tools/document_settings.py writes it"
            )
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
