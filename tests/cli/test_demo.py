# SPDX-License-Identifier: Apache-2.0
"""The demonstration shows what Tessera says of the program."""

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

TOOLS = Path(__file__).resolve().parents[2] / "tools"
NATIVE = Path(os.environ.get("TESSERA_NATIVE_DIR", "/nowhere"))
SAID = "tessera: the program uses cuFuture, which this build does not know"
PROGRAM = f"""
import pathlib, sys
pathlib.Path(sys.argv[2]).write_bytes(b"vectors")
print("a line of output")
print({SAID!r}, file=sys.stderr)
print("the program's own warning", file=sys.stderr)
"""

pytestmark = pytest.mark.skipif(
    not (NATIVE / "sim" / "libcuda.so.1").exists(), reason="the native parts are not built"
)


def test_what_tessera_says_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import demo

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(demo, "PROGRAM", program)
    monkeypatch.setattr(demo, "TESSERA_CTL", ("sh", "-c", "echo note: of tessera-ctl >&2"))
    screen = io.StringIO()
    one = demo.Demo(tmp_path, Console(file=screen, width=200))
    run = one.embed("moved")
    assert (run.printed, run.vectors, run.said) == ("a line of output\n", b"vectors", [SAID])
    one.show(run.said)
    one.control("up")
    assert f"{SAID}\n" in screen.getvalue()
    assert "note: of tessera-ctl\n" in screen.getvalue()
    assert sys.modules.pop("demo") is demo
