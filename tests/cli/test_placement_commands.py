# SPDX-License-Identifier: Apache-2.0
"""placement show, set, edit, clear, policy."""

import json
import re
import stat
import sys
from pathlib import Path

from cli.command import Cli, on_terminal


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


def test_rules_that_cannot_be_saved_are_in_force_and_said_to_be_lost(cli: Cli) -> None:
    cli.environment["TESSERA_STORE"] = "/proc/store.db"
    assert "the store is kept in memory" in cli("up").ok()
    result = cli("placement", "set", "* -> 1")
    assert result.ok().startswith("The rules are in force.")
    assert "not saved, and lost when the controller ends: /proc/store.db" in result.err
    assert cli("placement", "show").ok() == "# policy: manual\n* -> 1\n"


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
