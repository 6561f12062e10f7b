# SPDX-License-Identifier: Apache-2.0
"""Rules as users write them, and what they make of kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tessera import protocol
from tessera.placement import (
    Kernel,
    Rules,
    Worker,
    make_policy,
    parse_rules,
    place,
    policy_for_rules,
    unmatched_rules,
)
from tessera.placement.rules import MAX_TEXT

WORKERS = (
    Worker(1, "NVIDIA L40S", 89),
    Worker(2, "NVIDIA H100 PCIe", 90),
    Worker(3, "NVIDIA L40S", 89, up=False),
)
ONE = WORKERS[:1]


def device_of(
    text: str, name: str, image: str = "ab" * 16, workers: tuple[Worker, ...] = ONE
) -> int:
    rules = parse_rules(text, workers)
    assert rules.errors == ()
    return place(Kernel(0, name, image), make_policy("manual", rules), workers).device


@pytest.mark.parametrize(
    ("rule", "fits", "fits_not"),
    [
        ("matmul* -> 1", "matmul_128", "xmatmul"),
        ("matmul -> 1", "matmul", "matmul_128"),
        ("ab[cd]? -> 1", "abcx", "abex"),
        ("re:mul -> 1", "matmul_128", "softmax"),
        ("re:^triton_.*_fused$ -> 1", "triton_x_fused", "my_triton_x_fused"),
        ("re:a -> -> 1", "a -> b", "a"),
        ("* image:abab -> 1", "anything", ""),
        ("image:ABAB -> 1", "anything", ""),
        ("*#2 -> 1 # numbers in names", "kernel#2", "kernel"),
        ("  soft*->1", "softmax", "hard"),
        ("soft* -> gpu1", "softmax", "hard"),
        ("soft* -> L40S", "softmax", "hard"),
        ("soft* -> nvidia l40s", "softmax", "hard"),
    ],
)
def test_patterns(rule: str, fits: str, fits_not: str) -> None:
    assert device_of(rule, fits) == 1
    if fits_not:
        assert device_of(rule, fits_not) == 0


def test_an_image_narrows_a_rule() -> None:
    assert device_of("* image:ff -> 1", "k") == 0
    assert device_of("* image:ff -> 1", "k", image="ff" * 16) == 1


def test_the_last_rule_that_fits_wins() -> None:
    text = "* -> 2\nsoft* -> 1\nsoftmax_backward -> home\n"
    two = WORKERS[:2]
    assert device_of(text, "matmul", workers=two) == 2
    assert device_of(text, "softmax", workers=two) == 1
    assert device_of(text, "softmax_backward", workers=two) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("matmul 1", "no '->'"),
        ("-> 1", "no kernel before"),
        ("matmul ->", "no device after"),
        ("matmul -> gpu7", "no worker 'gpu7' (there are: home, 1 (NVIDIA L40S), 2 "),
        ("matmul -> 0", "'home' is the program's own GPU"),
        ("matmul -> B200", "unknown device 'B200'"),
        ("matmul -> L4", "unknown device 'L4'"),
        ("matmul -> L40S", "fits workers 1 and 3: write the number"),
        ("two words -> 1", "'words' is one word too many"),
        ("re:( -> 1", "no regular expression"),
        ("re:a{2,1} -> 1", "no regular expression"),
        ("k image:xyz -> 1", "hexadecimal"),
        ("k image: -> 1", "hexadecimal"),
        ("k image:ab image:cd -> 1", "more than one image"),
    ],
)
def test_each_wrong_line_is_named(line: str, message: str) -> None:
    rules = parse_rules(f"# comment\n* -> 1\n\n{line}\nother -> 2\n", WORKERS)
    assert [finding.line for finding in rules.errors] == [4]
    assert message in str(rules.errors[0])
    assert [rule.line for rule in rules.rules] == [2, 5]


def test_every_error_is_reported_not_only_the_first() -> None:
    rules = parse_rules("a\nb -> nowhere\nc -> 1\nre:[ -> 1\n", ONE)
    assert [finding.line for finding in rules.errors] == [1, 2, 4]
    assert [finding.line for finding in rules.unknown_devices] == [2]


def test_a_text_that_is_too_long_is_an_error() -> None:
    assert parse_rules("#" * (MAX_TEXT + 1), ONE).errors[0].line == 1


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    rules = parse_rules(text, WORKERS)
    count = text.count("\n") + 1  # as editors number lines
    assert all(1 <= finding.line <= count for finding in rules.errors)
    assert len(rules.rules) + len(rules.errors) <= count


@given(st.text(alphabet="ab*?[]!-.^$\\(", min_size=1, max_size=8), st.text("ab[].^$", max_size=8))
def test_a_glob_means_what_fnmatch_means(pattern: str, name: str) -> None:
    import fnmatch

    rules = parse_rules(f"{pattern} -> 1", ONE)
    if rules.rules and not pattern.startswith("-"):
        assert rules.rules[0].fits(name, "") == fnmatch.fnmatchcase(name, pattern)


def why(kernel: Kernel, text: str = "* -> 1", workers: tuple[Worker, ...] = WORKERS) -> str:
    policy = make_policy("manual", parse_rules(text, workers))
    placement = place(kernel, policy, workers)
    assert placement.device == 0
    return placement.reason


def test_what_cannot_move_stays_home_and_says_why() -> None:
    kernel = Kernel(0, "k", "ab")
    prints = protocol.constant("TS_KERNEL_PRINTS")
    asserts = protocol.constant("TS_KERNEL_ASSERTS")
    assert why(Kernel(0, "k", "ab", has_summary=False, reason="no PTX")) == "no PTX"
    assert why(Kernel(0, "k", "ab", has_summary=False)) == "not analysed yet"
    assert why(Kernel(0, "k", "ab", properties=prints)) == "stays home: prints"
    assert why(kernel, "* -> 3") == "worker 3 is down"
    assert (
        why(Kernel(0, "k", "ab", minimum_architecture=90))
        == "needs sm_90 or newer, worker 1 is sm_89"
    )
    assert "sm_90 and no other" in why(Kernel(0, "k", "ab", only_architecture=90))
    within = Kernel(0, "k", "ab", minimum_architecture=90, only_architecture=9)
    assert why(within) == "needs sm_90 or newer of 9.x, worker 1 is sm_89"
    assert why(kernel, "* -> home") == "rule in line 1"
    assert why(kernel, "other -> 1") == "no rule fits"
    policy = make_policy("manual", parse_rules("* -> 1", WORKERS))
    assert place(Kernel(0, "k", "ab", properties=asserts), policy, WORKERS).device == 1
    moved = place(Kernel(0, "k", "ab", only_architecture=90, minimum_architecture=90),
                  make_policy("manual", parse_rules("* -> 2", WORKERS)), WORKERS)  # fmt: skip
    assert (moved.device, moved.line) == (2, 1)


def test_every_property_that_holds_a_kernel_at_home_does() -> None:
    policy = make_policy("manual", parse_rules("* -> 1", ONE))
    for bit in range(16):
        held = bool(protocol.HOME_ONLY >> bit & 1)
        placement = place(Kernel(0, "k", "ab", properties=1 << bit), policy, ONE)
        assert placement.device == (0 if held else 1)
        assert placement.wanted == 1


def test_the_home_policy_ignores_rules() -> None:
    rules = parse_rules("* -> 1", ONE)
    placement = place(Kernel(0, "k", ""), make_policy("home", rules), ONE)
    assert (placement.device, placement.reason) == (0, "the policy is home")
    placement = place(Kernel(0, "k", ""), make_policy("home", Rules()), ONE)
    assert (placement.device, placement.reason) == (0, "there are no rules")
    with pytest.raises(ValueError, match="unknown policy 'fast'"):
        make_policy("fast", Rules())


def test_rules_that_are_set_have_effect_and_leave_plans_alone() -> None:
    assert policy_for_rules("home", True) == "manual"
    assert policy_for_rules("manual", True) == "manual"
    assert policy_for_rules("manual", False) == "home"
    for planned in ("latency", "throughput", "adaptive"):
        assert policy_for_rules(planned, True) == policy_for_rules(planned, False) == planned


def test_rules_that_fit_nothing_are_named() -> None:
    rules = parse_rules("* -> 1\nsoft* -> 1\nmat* image:cd -> 1\n", ONE)
    known = [("matmul", "ab" * 16)]
    assert [finding.line for finding in unmatched_rules(rules, known)] == [2, 3]
