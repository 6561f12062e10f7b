# SPDX-License-Identifier: Apache-2.0
"""tessera-ctl as users meet it: output, exit status, errors."""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_program import SUPPORT, FakeMachine, native_folder, ptx
from tessera.cli.main import app

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


@pytest.fixture
def cli(machine: FakeMachine) -> Iterator[Cli]:
    command = Cli(machine)
    yield command
    command("down", "--force")


@pytest.fixture
def running(cli: Cli) -> Cli:
    cli("up").ok()
    return cli


def test_up_status_down(cli: Cli) -> None:
    out = cli("up").ok()
    assert re.search(r"device 1 +NVIDIA L40S +worker 1, up", out)
    assert "device 0  NVIDIA A100  home" in out
    again = cli("up").ok()
    assert "was running already" in again
    assert cli("up", "-d", "1").code == 0  # the same devices, said otherwise
    other = cli("up", "--device", "0")
    assert other.code == 1
    assert "it has workers on device 1; asked for are device 0" in other.err
    assert "tessera-ctl down ends it" in other.err
    status = cli("status").ok()
    assert "No program is using the controller." in status
    assert json.loads(cli("status", "--json").ok())["workers"][0]["state"] == "up"
    assert "has stopped" in cli("down").ok()
    gone = cli("down")
    assert (gone.code, gone.out) == (3, "")
    assert gone.err.startswith("tessera-ctl: no controller runs in ")


def test_up_beside_a_controller_that_is_not_the_one_asked_for(running: Cli, tmp_path: Path) -> None:
    """What differs is said, nothing is changed, and the exit status tells."""
    one_gpu = str(FakeMachine(tmp_path, 1).environment["TESSERA_DRIVER"])
    driver = running("up", TESSERA_DRIVER=one_gpu)
    assert (driver.code, driver.out) == (1, "")
    assert "not as asked" in driver.err
    assert (
        "its GPUs are 0 NVIDIA A100, 1 NVIDIA L40S; those of this shell are 0 NVIDIA A100\n"
        in driver.err
    )
    assert re.search(rf"TESSERA_DRIVER is '\S+' there, '{one_gpu}' here", driver.err)
    missing = running("up", TESSERA_DRIVER="/nowhere/libcuda.so.1")
    assert missing.code == 1
    assert "those of this shell are not known (no driver: " in missing.err
    store = running("up", TESSERA_STORE=str(tmp_path / "other.db"))
    assert store.code == 1
    assert f"its store is {running.machine.store}, here it is {tmp_path}/other.db" in store.err
    setting = running("up", TESSERA_WORKER_MEMORY_MIB="64")
    assert setting.code == 1
    assert "TESSERA_WORKER_MEMORY_MIB is not set there, '64' here" in setting.err
    none = running("up", "--no-workers")
    assert none.code == 1
    assert "it has workers on device 1; asked for are no device" in none.err
    # The same driver by another name is the same.
    copy = tmp_path / "link.so"
    copy.symlink_to(running.environment["TESSERA_DRIVER"])
    assert "was running already" in running("up", LD_LIBRARY_PATH=str(tmp_path)).ok()
    note = running("run", "-q", "--", "/bin/true", TESSERA_DRIVER=one_gpu)
    assert note.code == 0
    assert "the controller was started otherwise: its GPUs are" in note.err


def test_up_alone_asks_for_all_devices(cli: Cli) -> None:
    cli("up", "--no-workers").ok()
    result = cli("up")
    assert result.code == 1
    assert "it has workers on no device; asked for are device 1, all but the first" in result.err
    assert cli("run", "-q", "--", "/bin/true").code == 0  # takes the controller that there is


@pytest.mark.parametrize(
    "words", [("status",), ("status", "--json"), ("status", "--watch"), ("down",)]
)
def test_without_a_controller_the_exit_status_is_3(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli(*words)
    assert (result.code, result.out) == (3, "")
    assert 1 <= len(result.err.splitlines()) <= 2


def test_up_on_one_gpu_says_how_to_try_a_worker(machine: FakeMachine) -> None:
    machine.environment["TESSERA_DRIVER"] = str(
        FakeMachine(machine.folder.parent, 1).environment["TESSERA_DRIVER"]
    )
    cli = Cli(machine)
    try:
        out = cli("up").ok()
        assert "tessera-ctl up --device 0" in out
        assert "nvidia-cuda-mps-control -d" in out
        cli("down").ok()
        assert "home; worker 1, up" in cli("up", "--device", "0").ok()
    finally:
        cli("down", "--force")


def test_up_with_a_device_that_is_not_there(cli: Cli) -> None:
    result = cli("up", "-d", "7")
    assert result.code == 1
    assert "there is no device 7: the driver shows 2, numbered from 0" in result.err


def test_up_with_workers_that_fail(cli: Cli) -> None:
    result = cli("up", FAKE_WORKER="dies")
    assert result.code == 1
    assert "worker 1 is failed: it does not start: it ended with 1: no device" in result.err


def test_up_in_the_foreground_logs_to_stderr_and_ends_with_ctrl_c(cli: Cli) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "up", "--foreground"],
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "worker 1: NVIDIA L40S" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert "controller stopped" in process.stderr.read()
    process.stderr.close()


def test_two_ups_at_once_start_one_controller(cli: Cli) -> None:
    command = [sys.executable, "-m", "tessera.cli.main", "up"]
    both = [
        subprocess.Popen(command, env=cli.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0, 0]
    pids = {re.search(r"process (\d+)", output)[1] for output in outputs}  # type: ignore[index]
    assert len(pids) == 1


def test_run_reports_on_stderr_and_passes_on_the_exit_status(running: Cli) -> None:
    result = running("run", "--", *running.program("5"))
    assert result.code == 5
    assert result.out == "output of the program\n"
    assert re.search(r"launches +home 4, worker 1 30", result.err)
    assert re.search(r"moved +3 MiB to workers, 0 B back home", result.err)
    assert re.search(r"^softmax +home +4 .* the policy is home$", result.err, re.MULTILINE)
    assert "exit status 5" in result.err
    kernels = running("kernels").ok()
    assert re.search(r"0 +matmul +[0-9a-f]{8} +home +the policy is home", kernels)


def test_run_writes_its_report_as_json(running: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = running("run", "--quiet", "--report", str(file), "--", *running.program("5"))
    assert (result.code, result.err) == (5, "")
    report = json.loads(file.read_text())
    assert report["exit_status"] == 5
    assert report["launches"] == {"home": 4, "workers": {"1": 30}}
    assert report["bytes_to_workers"] == 3 << 20
    assert {kernel["name"] for kernel in report["kernels"]} >= {"matmul", "softmax"}
    nowhere = running(
        "run", "--report", str(tmp_path / "no" / "where"), "--", *running.program("0")
    )
    assert nowhere.code != 0
    assert "the report cannot be written" in nowhere.err


def test_run_starts_a_controller_for_itself_and_stops_it(cli: Cli) -> None:
    result = cli("run", *cli.program("0"))
    assert (result.code, result.out) == (0, "output of the program\n")
    assert "launches" in result.err
    assert cli("status").code == 3
    quiet = cli("run", "--quiet", "--", *cli.program("0"))
    assert (quiet.code, quiet.err) == (0, "")


def test_run_of_a_program_without_cuda(running: Cli) -> None:
    result = running("run", "--", "/bin/true")
    assert result.code == 0
    assert "No process of it used CUDA" in result.err


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["/nowhere/program"], 127, "there is no such program"),
        (["/dev/null"], 126, "Permission denied"),
        (["sh", "-c", "kill -9 $$"], 137, "exit status 137"),
        (["sh", "-c", "exit 3"], 3, "exit status 3"),
    ],
)
def test_run_exit_statuses(running: Cli, command: list[str], code: int, message: str) -> None:
    result = running("run", "--", *command)
    assert result.code == code
    assert message in result.err


def test_run_passes_signals_on(running: Cli) -> None:
    script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "run", "--", "sh", "-c", script],
        env=running.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == "got it\n"
    assert process.wait(20) == 9
    process.stdout.close()


def test_env_prints_what_a_shell_can_evaluate(cli: Cli) -> None:
    out = cli("env", LD_PRELOAD="/usr/lib/other.so").ok()
    native = cli.environment["TESSERA_NATIVE_DIR"]
    assert f"export LD_PRELOAD={native}/libtessera.so:/usr/lib/other.so\n" in out
    shell = subprocess.run(
        ["sh", "-c", f"{out}\necho $TESSERA_RUNTIME_DIR"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == f"{cli.machine.folder}\n"
    (Path(native) / "libtessera.so").unlink()
    missing = cli("env")
    assert missing.code == 1
    assert "libtessera.so does not exist" in missing.err


def test_placement_set_show_clear(running: Cli) -> None:
    assert "The rules are in force." in running("placement", "set", "* -> L40S").ok()
    assert running("placement", "show").ok() == "# policy: manual\n* -> L40S\n"
    running("placement", "set", "--append", "softmax -> home", "re:^x -> 1").ok()
    shown = running("placement", "show").ok()
    assert shown.splitlines()[1:] == ["* -> L40S", "softmax -> home", "re:^x -> 1"]
    running("placement", "set", "--file", "-", text=shown).ok()
    assert running("placement", "show").ok() == f"# policy: manual\n{shown}"
    running("run", "-q", "--", *running.program("0"))
    kernels = {k["name"]: k for k in json.loads(running("kernels", "--json").ok())}
    assert (kernels["matmul"]["device"], kernels["softmax"]["device"]) == (1, 0)
    running("placement", "policy", "home").ok()
    assert running("placement", "policy").ok() == "home\n"
    assert "have no effect" in running("placement", "show").ok()
    assert "every kernel stays home" in running("placement", "clear").ok()


def test_rules_and_policy_do_not_undo_each_other_in_silence(running: Cli) -> None:
    first = running("placement", "set", "* -> 1").ok()
    assert "The policy was home and is now manual" in first
    assert "policy" not in running("placement", "set", "* -> L40S").ok()
    running("placement", "policy", "home").ok()
    again = running("placement", "set", "--append", "softmax -> home").ok()
    assert "The policy was home and is now manual" in again
    assert "placement policy home switches the rules off" in again
    running("placement", "policy", "adaptive").ok()
    planned = running("placement", "set", "* -> 1").ok()
    assert "The policy stays adaptive: where no rule fits, its plan decides." in planned
    assert running("placement", "policy").ok() == "adaptive\n"
    cleared = running("placement", "clear").ok()
    assert "There are no rules any more. The policy stays adaptive" in cleared
    assert running("placement", "policy").ok() == "adaptive\n"
    assert "Rules that are set have effect" in running("placement", "set", "--help").ok()


def test_without_a_controller_the_policy_follows_in_the_same_way(cli: Cli) -> None:
    assert "was home and is now manual" in cli("placement", "set", "* -> 1").ok()
    cli("placement", "policy", "latency").ok()
    assert "stays latency" in cli("placement", "set", "* -> 1").ok()
    assert cli("placement", "policy").ok() == "latency\n"
    cli("placement", "policy", "home").ok()
    assert "was home and is now manual" in cli("placement", "set", "* -> 1").ok()
    assert "was manual and is now home" in cli("placement", "clear").ok()


def test_bad_rules_are_named_line_by_line(running: Cli) -> None:
    result = running("placement", "set", "* -> 1", "a b -> 1", "k -> 9")
    assert result.code == 1
    assert re.search(r"^line 2: 'b' is one word too many", result.err, re.MULTILINE)
    assert re.search(r"^line 3: no worker '9' \(there are: home, 1 ", result.err, re.MULTILINE)
    assert running("placement", "show").ok().startswith("# policy: home\n# There are no rules")
    assert running("placement", "set").code == 2
    assert running("placement", "set", "--file", "/nowhere").code == 1
    assert running("placement", "policy", "fast").code == 2


def test_placement_without_a_controller_edits_the_store(cli: Cli) -> None:
    result = cli("placement", "set", "* -> L40S")
    assert result.ok().startswith("The rules are saved. ")
    assert "devices are checked when one starts" in result.err
    assert cli("placement", "show").ok() == "# policy: manual\n* -> L40S\n"
    assert cli("placement", "set", "nonsense").code == 1
    cli("up").ok()
    assert cli("placement", "show").ok() == "# policy: manual\n* -> L40S\n"
    status = json.loads(cli("status", "--json").ok())
    assert (status["controller"]["policy"], status["problems"]) == ("manual", [])


def test_a_rule_for_a_gpu_that_has_gone_is_a_problem(cli: Cli) -> None:
    cli("placement", "set", "* -> B200").ok()
    out = cli("up").ok()
    assert "rules, line 1: unknown device 'B200'" in out
    assert "has no effect" in cli("placement", "show").err


def editor(folder: Path, script: str) -> str:
    """An editor that runs a shell script with the file as $1."""
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_edit_applies_what_is_right(running: Cli, tmp_path: Path) -> None:
    write = editor(tmp_path, "cp \"$1\" \"$1.seen\"; mv \"$1.seen\" $(dirname $0)/seen; "
                             "sed -i '1i # mine\\n* -> 1' \"$1\"")  # fmt: skip
    assert "in force" in running("placement", "edit", EDITOR=write).ok()
    assert running("placement", "show").ok() == "# policy: manual\n# mine\n* -> 1\n"
    seen = (tmp_path / "seen").read_text()
    assert "the last rule that fits wins" in seen
    assert "1  NVIDIA L40S" in seen
    untouched = editor(tmp_path, "true")
    assert "unchanged" in running("placement", "edit", VISUAL=untouched, EDITOR="false").ok()


def test_edit_keeps_what_is_wrong_and_changes_nothing(running: Cli, tmp_path: Path) -> None:
    running("placement", "set", "* -> 1").ok()
    wrong = editor(tmp_path, "echo 'x -> 9' > \"$1\"")
    result = running("placement", "edit", EDITOR=wrong)
    assert result.code == 1
    assert "line 1: no worker '9'" in result.err
    kept = re.search(r"what you typed is in (\S+)", result.err)
    assert kept is not None
    assert Path(kept[1]).read_text() == "x -> 9\n"
    Path(kept[1]).unlink()
    assert "* -> 1" in running("placement", "show").ok()
    failing = running("placement", "edit", EDITOR="false")
    assert failing.code == 1
    assert "false ended with 1" in failing.err
    none = running("placement", "edit", EDITOR="/nowhere/editor")
    assert none.code == 1
    assert "set $EDITOR" in none.err


def test_edit_notices_that_somebody_else_was_faster(running: Cli, tmp_path: Path) -> None:
    control = f"{sys.executable} -m tessera.cli.main placement set 'other -> 1'"
    slow = editor(tmp_path, f"{control}; echo 'mine -> 1' > \"$1\"")
    result = running("placement", "edit", EDITOR=slow)
    assert result.code == 1
    assert "changed meanwhile" in result.err
    assert "other -> 1" in running("placement", "show").ok()


def test_edit_offers_to_edit_again(running: Cli, tmp_path: Path) -> None:
    """On a terminal: first a bad file, then a good one."""
    flip = editor(tmp_path, f"if [ -e {tmp_path}/once ]; then echo '* -> 1' > \"$1\"; "
                            f"else touch {tmp_path}/once; echo 'bad' > \"$1\"; fi")  # fmt: skip
    screen, code = on_terminal(running, ["placement", "edit"], "\n", EDITOR=flip)
    assert "line 1: no '->' in 'bad'" in screen
    assert "Edit again? [Y/n]" in screen
    assert "in force" in screen
    assert code == 0


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


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_screens_fit_the_terminal(running: Cli, columns: int) -> None:
    running("placement", "set", "mat* -> 1").ok()
    running("run", "-q", "--", *running.program("0"))
    for words in (["status"], ["kernels"], ["devices"], ["show", "matmul"], ["doctor"]):
        screen, code = on_terminal(running, words, "", columns)
        assert code == (1 if words == ["doctor"] else 0)  # the fake driver can do little
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "")
        longest = max(len(line) for line in plain.splitlines())
        assert longest <= columns, plain


def test_pipes_get_plain_text(running: Cli) -> None:
    running("run", "-q", "--", *running.program("0"))
    for words in (["status"], ["kernels"], ["devices"], ["doctor"], ["--help"], ["up", "--help"]):
        out = running(*words).out
        assert out
        assert "\x1b" not in out
        assert not re.search("[─│╭╰━]", out)
        assert all(line == line.rstrip() for line in out.splitlines())


def test_a_reader_that_leaves_early_is_no_error(running: Cli) -> None:
    command = f"{sys.executable} -m tessera.cli.main status --watch --interval 0.1 | head -1"
    result = subprocess.run(
        ["sh", "-c", command], env=running.environment, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert result.stdout.startswith("Tessera ")
    assert result.stderr == ""


def test_show_finds_kernels_by_number_name_and_part(running: Cli) -> None:
    running("run", "-q", "--", *running.program("0"))
    for word in ("0", "matmul", "mat*", "matm", "tmul"):
        out = running("show", word).ok()
        assert re.search(r"^Kernel +matmul$", out, re.MULTILINE)
        assert "Runs on" in out
    assert json.loads(running("show", "--json", "softmax").ok())["kernel"]["id"] == 1
    several = running("show", "*m*")
    assert several.code == 1
    assert "fits 2 kernels: 0 (matmul), 1 (softmax)" in several.err
    assert "no kernel 'nothing'" in running("show", "nothing").err
    running("down").ok()
    assert "matmul" in running("show", "0").ok()  # from the store
    kernels = running("kernels").ok()
    assert re.search(r"matmul .* home +no controller runs$", kernels, re.MULTILINE)


def test_a_full_disk_is_named(cli: Cli, tmp_path: Path) -> None:
    """A limit on the size of files stands in for it: no file grows beyond nothing."""
    limited = f"ulimit -f 0; exec {sys.executable} -m tessera.cli.main up"
    result = subprocess.run(
        ["sh", "-c", f"trap '' XFSZ; {limited}"], env=cli.environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "controller.lock cannot be written (File too large)" in result.stderr
    assert "TESSERA_RUNTIME_DIR" in result.stderr
    cli("up").ok()


def test_rules_that_cannot_be_saved_are_in_force_and_said_to_be_lost(cli: Cli) -> None:
    cli.environment["TESSERA_STORE"] = "/proc/store.db"
    assert "the store is kept in memory" in cli("up").ok()
    result = cli("placement", "set", "* -> 1")
    assert result.ok().startswith("The rules are in force.")
    assert "not saved, and lost when the controller ends: /proc/store.db" in result.err
    assert cli("placement", "show").ok() == "# policy: manual\n* -> 1\n"


def test_kernels_before_any_program(cli: Cli) -> None:
    assert cli("kernels").ok() == "No kernels are known.\n"
    assert "run a program first" in cli("show", "x").err
    assert cli("kernels", "--json").ok() == "[]\n"


def test_devices(cli: Cli) -> None:
    out = cli("devices").ok()
    assert re.search(r"^ +1 +NVIDIA L40S +8\.9 +2 GiB +GPU-0", out, re.MULTILINE)
    assert [d["name"] for d in json.loads(cli("devices", "--json").ok())] == [
        "NVIDIA A100",
        "NVIDIA L40S",
    ]
    missing = cli("devices", TESSERA_DRIVER="/nowhere/libcuda.so.1")
    assert missing.code == 1
    assert "no driver" in missing.err
    assert "install NVIDIA's driver" in missing.err


def test_what_a_driver_says_about_its_failure_is_shown(cli: Cli, tmp_path: Path) -> None:
    source, library = tmp_path / "broken.c", tmp_path / "libcuda.so.1"
    source.write_text("""
        #include <stdio.h>
        int cuInit(unsigned flags) {
          fputs("no such card: FOO\\n", stderr);
          return 100 + 0 * flags;
        }
        int cuGetErrorName(int error, const char** text) {
          *text = "CUDA_ERROR_NO_DEVICE";
          return 0 * error;
        }
    """)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    devices = cli("devices", TESSERA_DRIVER=str(library))
    assert devices.code == 1
    failure = "cuInit failed with CUDA_ERROR_NO_DEVICE; the driver says: no such card: FOO"
    assert failure in devices.err
    assert "CUDA_VISIBLE_DEVICES" in devices.err
    checks = json.loads(cli("doctor", "--json", TESSERA_DRIVER=str(library)).out)
    [driver] = [check for check in checks if check["subject"] == "driver"]
    assert driver["finding"] == failure
    assert "CUDA_VISIBLE_DEVICES" in driver["mend"]
    up = cli("up", TESSERA_DRIVER=str(library))
    assert up.code == 1
    assert failure in up.err


def test_doctor_names_what_is_missing_and_how_to_mend_it(cli: Cli) -> None:
    (Path(cli.environment["TESSERA_NATIVE_DIR"]) / "tessera-worker").unlink()
    checks = json.loads(
        cli("doctor", "--json", TESSERA_DRIVER="/nowhere/libcuda.so.1", TESSERA_STORE="/proc/s").out
    )
    by_subject = {check["subject"]: check for check in checks}
    assert by_subject["driver"]["state"] == "bad"
    assert by_subject["tessera-worker"]["state"] == "bad"
    assert by_subject["store"]["state"] == "note"
    assert by_subject["operating system"]["state"] == "ok"
    assert by_subject["controller"]["mend"] == "tessera-ctl up"
    assert all(check["mend"] for check in checks if check["state"] == "bad")
    plain = cli("doctor", TESSERA_DRIVER="/nowhere/libcuda.so.1")
    assert plain.code == 1
    assert "things to mend" in plain.out


def test_analyze_files_and_folders(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "two.ptx").write_bytes(ptx("a", "b", prefix="// properties 2\n"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.ptx").write_bytes(ptx("c"))
    (tmp_path / "sub" / "notes.txt").write_text("no")
    (tmp_path / "x.cubin").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(300))
    fake = ("--analysis", "fake_analysis")
    out = cli("analyze", str(tmp_path), *fake).ok()
    assert re.search(r"two\.ptx +ptx +2 +1 .* prints", out)
    assert "no PTX in this image: 1 cubin" in out
    assert "3 files, 3 kernels, 2 of them may move." in out
    lines = cli("analyze", "--kernels", str(tmp_path / "two.ptx"), *fake).ok()
    assert re.search(r" a +no +prints$", lines, re.MULTILINE)
    assert re.search(r" b +yes$", lines, re.MULTILINE)
    broken = tmp_path / "broken.ptx"
    broken.write_bytes(b"not PTX at all")
    result = cli("analyze", str(broken), str(tmp_path / "two.ptx"), "--json", *fake)
    assert result.code == 1
    by_file = {Path(entry["file"]).name: entry for entry in json.loads(result.out)}
    assert "neither PTX" in by_file["broken.ptx"]["error"]
    assert len(by_file["two.ptx"]["kernels"]) == 2
    assert cli("analyze", str(tmp_path / "nowhere")).code == 1
    crash = tmp_path / "crash.ptx"
    crash.write_bytes(ptx("k", prefix="// crash\n"))
    assert cli("analyze", str(crash), *fake).code == 1


def test_down_waits_for_programs_unless_forced(running: Cli) -> None:
    script = running.program("0")
    script[2] = script[2].replace("sys.exit(", "time.sleep(60)\nsys.exit(")
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "run", "-q", "--", *script],
        env=running.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "output of the program\n"
    refused = running("down")
    assert refused.code == 1
    assert "nothing was stopped: 1 program on this controller" in refused.err
    pid, named = re.search(r"^  process (\d+): (.*)$", refused.err, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert named == "python train.py"
    assert "tessera-ctl down --wait" in refused.err
    assert running("down", "--wait", "--force").code == 2
    waiting = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "down", "--wait"],
        env=running.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "waiting for:\n"
    assert waiting.stderr.readline() == f"  process {pid}: python train.py\n"
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(20) == 130
    assert "the controller goes on" in waiting.communicate()[1]
    last = subprocess.Popen(
        [sys.executable, "-m", "tessera.cli.main", "down", "--wait"],
        env=running.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(0.5)
    assert last.poll() is None
    os.kill(int(pid), signal.SIGTERM)
    assert "has stopped" in last.communicate(timeout=30)[0]
    assert last.returncode == 0
    process.wait(20)
    process.stdout.close()


@pytest.mark.parametrize(
    "words", [["nonsense"], ["up", "--nonsense"], ["run"], ["show"], ["up", "-d", "x"], ["analyze"]]
)
def test_wrong_usage_is_status_2(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert result.code == 2
    assert "Usage: tessera-ctl" in result.err


def test_every_command_has_help_with_examples(cli: Cli) -> None:
    import typer

    def leaves(command: object, path: list[str]) -> Iterator[tuple[list[str], str]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield path, str(getattr(command, "help", ""))
            return
        for name, child in children.items():
            yield from leaves(child, [*path, name])

    found = list(leaves(typer.main.get_command(app), []))
    assert len(found) >= 15
    for path, _ in [*found, ([], ""), (["placement"], "")]:
        out = cli(*path, "--help", COLUMNS="80").ok()
        assert max(len(line) for line in out.splitlines()) <= 80, out
        assert not re.search(r"<\w|\{[A-Z]|\b(TEXT|INTEGER|FLOAT|PATH)\b", out), out
    for path, text in found:
        assert f"tessera-ctl {' '.join(path)}" in text or path == ["env"], path
        assert re.search("Examples?:", text), path
        assert len(text.split("\n")[0]) < 64, path  # fits the list of commands


def test_completion_is_there(cli: Cli) -> None:
    out = cli("--show-completion", "bash")
    assert "_TESSERA_CTL_COMPLETE" in out.out + out.err or out.code == 0
    completed = cli(
        _TESSERA_CTL_COMPLETE="complete_bash", COMP_WORDS="tessera-ctl st", COMP_CWORD="1"
    )
    assert "status" in completed.out


def test_version(cli: Cli) -> None:
    from tessera import __version__

    assert cli("--version").ok() == f"tessera {__version__}\n"
