# SPDX-License-Identifier: Apache-2.0
"""doctor: what this machine can do, what is missing, and how to mend it."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tessera.cli import render
from tessera.cli.common import FAILURE, folder, settings, store_path
from tessera.settings import SettingsError

OLDEST_DRIVER = 12000  # virtual memory, descriptors and stream flags as they are used here
ARTEFACTS = {
    "libtessera.so": "what is put under programs",
    "tessera-worker": "what runs kernels on other GPUs",
    "libtessera_ptx.so": "what reads PTX",
    "libtessera_access.so": "what evaluates access summaries",
}


@dataclass(frozen=True)
class Check:
    """One thing looked at. `state`: ok, note (nothing is broken) or bad."""

    state: str
    subject: str
    finding: str
    mend: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False,
) -> None:
    """Look at what this machine can do, and how to mend it.

    Makes a context on each GPU for a moment. The exit status is 1 when something is
    broken; notes are about what is only slower or not there.

    \b
    Examples:
      tessera-ctl doctor
      tessera-ctl doctor --json | jq '.[] | select(.state == "bad")'
    """
    checks = [check for examine in EXAMINATIONS for check in examine()]
    if as_json:
        print(json.dumps([asdict(check) for check in checks]))
    else:
        _print(checks)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(FAILURE)


def _print(checks: list[Check]) -> None:
    out = render.console()
    styles = {"ok": "green", "note": "yellow", "bad": "red"}
    grid = Table.grid(padding=(0, 2, 0, 0))
    for check in checks:
        finding = render.one_line(check.finding, 800)
        grid.add_row(Text(check.state, styles[check.state]), check.subject, Text(finding))
        if check.mend:
            grid.add_row("", "", Text(f"→ {check.mend}", "dim"))
    render.show(out, grid)
    bad = sum(check.state == "bad" for check in checks)
    notes = sum(check.state == "note" for check in checks)
    summary = f"{render.count(bad, 'thing')} to mend" if bad else "All is well"
    if notes:
        summary += f", {render.count(notes, 'note')}"
    out.print(f"{summary}.")


def _settings() -> Iterator[Check]:
    wrong = []
    for identifier in ("timeout_ms", "analysis_wait_ms", "worker_memory_mib"):
        try:
            settings().integer(identifier)
        except SettingsError as error:
            wrong.append(str(error))
    for text in wrong:
        yield Check("bad", "settings", text, "unset it, or give it a number")
    if not wrong and settings().flag("disable"):
        yield Check(
            "note", "settings", "TESSERA_DISABLE is set: programs pass Tessera by", "unset it"
        )


def _artefacts() -> Iterator[Check]:
    from tessera.native import NativeError, library_path

    missing = []
    for name, purpose in ARTEFACTS.items():
        try:
            path = library_path(name)
            if not os.access(path, os.R_OK):
                missing.append(Check("bad", name, f"{path} cannot be read", "mend its permissions"))
        except NativeError as error:
            text, _, advice = str(error).partition("; ")
            missing.append(Check("bad", name, f"{text} ({purpose})", advice))
    yield from missing
    if not missing:
        yield Check("ok", "native parts", str(library_path("libtessera.so").parent))


def _driver() -> Iterator[Check]:
    from tessera.cluster.devices import DevicesError, Machine, find_devices

    try:
        machine: Machine = find_devices(deep=True)
    except DevicesError as error:
        yield Check("bad", "driver", error.problem, error.remedy)
        return
    version = f"CUDA {machine.version // 1000}.{machine.version % 1000 // 10}"
    if machine.version < OLDEST_DRIVER:
        mend = "update the driver to CUDA 12 or newer"
        yield Check("bad", "driver", f"{machine.driver}, {version}: too old", mend)
    else:
        yield Check("ok", "driver", f"{machine.driver}, {version}")
    if not machine.devices:
        yield Check("bad", "devices", "the driver shows none", "is CUDA_VISIBLE_DEVICES empty?")
    for device in machine.devices:
        problems = machine.checks.get(device.ordinal, {})
        yield from _device(f"device {device.ordinal}", device.name, problems)
    if len(machine.devices) == 1:
        yield Check(
            "note", "workers", "there is one GPU, so there are no workers",
            "to try one on the same GPU: tessera-ctl up --device 0, under MPS",
        )  # fmt: skip


_DEVICE_PROBLEMS = {
    "context": "no context can be made on it: is it in exclusive mode, or full?",
    "addresses": "its virtual addresses cannot be chosen: nothing can be moved to or from it",
    "export": "its memory cannot be passed to another process: in a container, allow memfd and "
    "SCM_RIGHTS; under WSL this does not work",
    "flags": "streams cannot wait for flags in host memory: in a container, raise memlock",
}


def _device(subject: str, name: str, problems: dict[str, str]) -> Iterator[Check]:
    bad = {key: text for key, text in problems.items() if text}
    for key, text in bad.items():
        yield Check("bad", subject, f"{name}: {text}", _DEVICE_PROBLEMS[key])
    if not bad:
        yield Check("ok", subject, f"{name}: addresses, exported memory and stream flags work")


def _mps() -> Iterator[Check]:
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    if (pipe / "control").exists():
        yield Check("ok", "MPS", f"a control daemon has its pipes in {pipe}")
    else:
        yield Check(
            "note", "MPS", "not running",
            "only for a worker on the program's own GPU: nvidia-cuda-mps-control -d",
        )  # fmt: skip


def _limits() -> Iterator[Check]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        mend = "raise it: ulimit -Hn 65536, or in /etc/security/limits.conf"
        yield Check("note", "descriptors", f"{hard} at most: few programs at once", mend)
    memlock, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if memlock != resource.RLIM_INFINITY and memlock < 64 << 20:
        yield Check(
            "note", "memlock", f"{render.size(memlock)}: enough on one host",
            "for transport between hosts later: ulimit -l unlimited",
        )  # fmt: skip
    else:
        yield Check("ok", "memlock", "unlimited" if memlock < 0 else render.size(memlock))


def _kernel() -> Iterator[Check]:
    """What the operating system has to offer: descriptors for processes, sealed memory."""
    missing = []
    for name, action in (
        ("pidfd_open", _try_pidfd),
        ("memfd with seals", _try_memfd),
        ("SOCK_SEQPACKET", _try_socket),
    ):
        try:
            action()
        except OSError as error:
            missing.append(f"{name}: {error.strerror}")
    if missing:
        mend = "Linux 5.4 or newer is needed; in a container, its seccomp profile has to allow them"
        yield Check("bad", "operating system", "; ".join(missing), mend)
    else:
        yield Check("ok", "operating system", f"Linux {os.uname().release}")


def _try_pidfd() -> None:
    fd = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(fd, 0)
    finally:
        os.close(fd)


def _try_memfd() -> None:
    from tessera.protocol.tables import PlacementTable

    PlacementTable().close()


def _try_socket() -> None:
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
        end.close()


def _tracing() -> Iterator[Check]:
    """Reading another process's environment tells which run a program belongs to."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    value = scope.read_text().strip() if scope.exists() else "0"
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        Path(f"/proc/{child}/environ").read_bytes()
        yield Check("ok", "processes", f"readable through /proc (ptrace_scope {value})")
    except OSError as error:
        yield Check(
            "note", "processes", f"not readable through /proc: {error.strerror}",
            "tessera-ctl run cannot tell whose programs are whose: mount /proc without hidepid",
        )  # fmt: skip
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _folder() -> Iterator[Check]:
    from tessera.service import runtime

    try:
        runtime.prepare(folder())
        probe = folder() / f"probe-{os.getpid()}"
        try:
            probe.write_text("x")
        finally:
            probe.unlink(missing_ok=True)
        yield Check("ok", "runtime folder", str(folder()))
    except runtime.RuntimeFolderError as error:
        mend = "set TESSERA_RUNTIME_DIR to a folder of yours"
        yield Check("bad", "runtime folder", str(error).split(": set ", maxsplit=1)[0], mend)
    except OSError as error:
        mend = "make room there, or set TESSERA_RUNTIME_DIR to another folder of yours"
        yield Check("bad", "runtime folder", f"{folder()}: {error.strerror}", mend)


def _store() -> Iterator[Check]:
    from tessera.store import NewerStoreError, Store, StoreError, StoreUnavailableError

    try:
        with Store(store_path()) as store:
            count = len(store.kernels())
        yield Check("ok", "store", f"{store_path()}: {render.count(count, 'kernel')}")
    except StoreUnavailableError as error:
        mend = (
            "set TESSERA_STORE to a file that can be written: without, everything is analysed anew"
        )
        yield Check("note", "store", str(error), mend)
    except NewerStoreError as error:
        text, _, advice = str(error).rpartition(": ")
        yield Check("bad", "store", text, advice)
    except StoreError as error:
        text, _, advice = str(error).partition(". ")
        yield Check("bad", "store", text, advice or "set TESSERA_STORE to another file")


def _controller() -> Iterator[Check]:
    from tessera.service import client, runtime

    pid = runtime.running_pid(folder())
    if pid is None:
        yield Check("note", "controller", "not running", "tessera-ctl up")
        return
    try:
        status = client.request(folder(), "status")["status"]
    except (client.ClientError, client.NotRunningError) as error:
        mend = "tessera-ctl down --force, then tessera-ctl up"
        yield Check("bad", "controller", f"process {pid} does not answer: {error}", mend)
        return
    yield Check(
        "ok", "controller", f"process {pid}, {render.count(len(status['programs']), 'program')}"
    )
    for problem in status["problems"]:
        yield Check("note", "controller", problem, f"its log is {runtime.log_path(folder())}")


def _programs() -> Iterator[Check]:
    """A login shell's environment, sudo and set-uid programs lose LD_PRELOAD without a word."""
    from tessera.cluster.interposed import cuda_processes

    for process in cuda_processes():
        if not process.interposed:
            command = render.command(process.command)
            yield Check(
                "note", "programs", f"process {process.pid} uses CUDA without Tessera: {command}",
                "start it with tessera-ctl run, or with what tessera-ctl env prints",
            )  # fmt: skip


EXAMINATIONS: tuple[Callable[[], Iterator[Check]], ...] = (
    _settings,
    _artefacts,
    _kernel,
    _driver,
    _mps,
    _limits,
    _tracing,
    _folder,
    _store,
    _controller,
    _programs,
)
