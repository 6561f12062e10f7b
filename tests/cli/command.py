# SPDX-License-Identifier: Apache-2.0
"""tessera-ctl in a process of its own, on a machine with fake devices."""

import os
import pty
import select
import subprocess
import sys
import time

from fake_program import SUPPORT, FakeMachine, native_folder

PROGRAM = """
import os, sys, time
sys.path.insert(0, os.environ["SUPPORT"])
from pathlib import Path
from fake_program import FakeProgram, ptx
assert os.environ["LD_PRELOAD"].startswith(os.environ["TESSERA_NATIVE_DIR"] + "/libtessera.so")
program = FakeProgram(Path(os.environ["TESSERA_RUNTIME_DIR"]))
program.hello()
image = ptx("matmul", "softmax")
for name, device, launches in (("matmul", 1, 30), ("softmax", 0, 4)):
    kernel = program.learn(image, name).kernel_id
    program.counters.count(kernel, device, launches)
program.counters.record["workers"][1]["bytes_pulled"] = 3 << 20
print("output of the program", flush=True)
sys.exit(int(sys.argv[1]))
"""


class Cli:
    """Runs tessera-ctl in a process of its own."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        native = native_folder(machine.folder.parent)
        self.environment = machine.environment | {
            "TESSERA_NATIVE_DIR": str(native),
            "SUPPORT": str(SUPPORT),
            "COLUMNS": "80",
        }
        self.environment.pop("EDITOR", None)
        self.environment.pop("VISUAL", None)

    def __call__(self, *words: str, text: str = "", **environment: str) -> "Result":
        return Result(
            subprocess.run(
                [sys.executable, "-m", "tessera.cli.main", *words],
                env=self.environment | environment,
                input=text,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        )

    def program(self, *words: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM, *words]


class Result:
    """How a command went. Whatever it was, there is never a traceback."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        assert "Traceback" not in self.err, self.err

    def ok(self) -> str:
        assert self.code == 0, self.err or self.out
        return self.out


def on_terminal(
    cli: Cli, words: list[str], keys: str, columns: int = 80, **environment: str
) -> tuple[str, int]:
    """What a command shows on a terminal, and its exit status; `keys` answers its question."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(
            cli.environment | environment | {"TERM": "xterm", "COLUMNS": str(columns)}
        )
        os.execv(sys.executable, [sys.executable, "-m", "tessera.cli.main", *words])
    screen, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        screen += part
        if b"? [Y/n] " in part:
            os.write(terminal, keys.encode())
    os.close(terminal)
    return screen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
