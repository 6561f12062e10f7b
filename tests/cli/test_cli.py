# SPDX-License-Identifier: Apache-2.0
"""tessera-ctl as users meet it: screens, help, and the commands that look."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.command import Cli, on_terminal
from fake_program import ptx
from tessera.cli.main import app


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
    # Which shell it is run from cannot be told in a test.
    out = cli("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").ok()
    assert "_TESSERA_CTL_COMPLETE" in out
    completed = cli(
        _TESSERA_CTL_COMPLETE="complete_bash", COMP_WORDS="tessera-ctl st", COMP_CWORD="1"
    )
    assert "status" in completed.out


def test_version(cli: Cli) -> None:
    from tessera import __version__

    assert cli("--version").ok() == f"tessera {__version__}\n"
