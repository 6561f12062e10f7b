# SPDX-License-Identifier: Apache-2.0
"""Rules as users write them, and what they make of kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tessera import protocol
from tessera.placement import (
    ConditionError,
    Kernel,
    Rules,
    Worker,
    class_name,
    class_values,
    make_policy,
    parse_condition,
    parse_rules,
    place,
    policy_for_rules,
    quantities_of,
    unmatched_rules,
)
from tessera.placement.conditions import NAMES
from tessera.placement.rules import MAX_TEXT
from tessera.protocol.classes import ARGUMENT, Quantity
from tessera.protocol.tables import MAX_CHOICES, MAX_TERMS, PLACED_BY_CLASS, SharedTable
from tessera.service.placer import Placer
from tessera.store import RulesRecord

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
        ("k grid>>64 -> 1", "'grid>>64': '>64' is no number"),
        ("k grid>=many -> 1", "'many' is no number"),
        ("k grid>=-1 -> 1", "-1 is not from 0 to"),
        ("k width>=64 -> 1", "there is no 'width': grid, grid.x"),
        ("k grid.w>=64 -> 1", "there is no 'grid.w'"),
        ("k arg48=1 -> 1", "there is no 'arg48'"),
        ("k >=64 -> 1", "'>=64' is no condition: QUANTITY>=NUMBER, such as grid>=64"),
        ("k grid>=64 grid<64 -> 1", "no launch has such a grid: grid>=64 grid<64"),
        ("k grid<0 -> 1", "'grid<0': no number is"),
        ("k grid>=8x1x1 -> 1", "sizes are given as grid=8x4x1"),
        ("k grid=8x1x1x1 -> 1", "sizes are given as"),
        ("k grid=8x1 block=8x8 m=1 n=1 k=1 grid>0 block>0 shared>0 arg0=1 -> 1", "13 quantities"),
        ("grid >= 64 -> 1", "'>=' is no condition"),
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


GRID = {Quantity.GRID_X: 64, Quantity.GRID_Y: 2, Quantity.GRID_Z: 1}
LAUNCH = {**GRID, Quantity.BLOCK_X: 256, Quantity.BLOCK_Y: 1, Quantity.BLOCK_Z: 1}
LAUNCH |= {Quantity.SHARED: 0, ARGUMENT + 2: 77}


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        ("grid>=128", True),
        ("grid>128", False),
        ("grid=128", True),
        ("grid==0x80", True),
        ("grid<=127", False),
        ("grid<129 block=256", True),
        ("grid.x>=64 grid.y<2", False),
        ("grid=64x2", True),
        ("grid=64x2x2", False),
        ("block=256x1x1 shared=0", True),
        ("arg2>=77 arg2<78", True),
        ("arg3>=0", False),
        ("m>=1", False),
        ("", True),
    ],
)
def test_conditions_hold_for_some_launches(words: str, holds: bool) -> None:
    condition = parse_condition(words.split())
    assert condition.holds(quantities_of(LAUNCH.items())) == holds
    assert bool(condition) == bool(words)


@given(st.data())
def test_a_condition_reads_as_it_is_written(data: st.DataObject) -> None:
    name = st.sampled_from([*NAMES, "arg0", "arg47"])
    operator = st.sampled_from(["=", "<", "<=", ">", ">="])
    word = st.tuples(name, operator, st.integers(1, 1 << 20)).map(lambda w: f"{w[0]}{w[1]}{w[2]}")
    words = data.draw(st.lists(word, max_size=MAX_TERMS))
    try:
        condition = parse_condition(words)
    except ConditionError as error:
        assert "no launch has such" in str(error)
        return
    assert parse_condition(str(condition).split()) == condition


def test_a_launch_class_is_named_by_the_condition_that_it_alone_fulfils() -> None:
    name = class_name(LAUNCH.items())
    assert name == "grid=64x2x1 block=256x1x1 arg2=77"
    assert dict(class_values(name)) == LAUNCH
    assert parse_condition(name.split()).holds(quantities_of(LAUNCH.items()))
    call = [(Quantity.CALL_M, 4096), (Quantity.CALL_N, 8), (Quantity.CALL_K, 1)]
    assert class_name(call) == "m=4096 n=8 k=1"
    assert dict(class_values("m=4096 n=8 k=1")) == dict(call)


def test_the_words_of_a_rule_come_in_any_order_and_expressions_keep_theirs() -> None:
    text = "grid>=64 gemm* image:ab block=256 -> 1\ngrid<4 -> 1\nre:a b (?=c) grid>2 -> 1\n"
    rules = parse_rules(text, ONE)
    assert rules.errors == ()
    assert [str(rule) for rule in rules.rules] == [
        "gemm* image:ab grid>=64 block=256 -> 1",
        "* grid<=3 -> 1",
        "re:a b (?=c) grid>=3 -> 1",
    ]


def placed(text: str, kernel: Kernel, **launch: int) -> int:
    """The device of a launch, its quantities by name."""
    rules = parse_rules(text, WORKERS)
    assert rules.errors == ()
    values = {NAMES[name]: value for name, value in launch.items()}
    return place(kernel, make_policy("manual", rules), WORKERS).of_launch(values).device


def test_the_last_rule_that_fits_a_launch_wins() -> None:
    text = "* -> 2\ngemm grid>=64 -> 1\ngemm grid>=512 -> home\nother grid>=1 -> home\n"
    gemm = Kernel(0, "gemm", "ab")
    assert placed(text, gemm, grid=8) == 2
    assert placed(text, gemm, grid=64) == 1
    assert placed(text, gemm, grid=512) == 0
    assert placed(text + "gemm -> home", gemm, grid=64) == 0
    assert placed(text, Kernel(1, "act", "ab"), grid=64) == 2


def test_a_launch_stays_home_where_its_kernel_cannot_run_and_says_why() -> None:
    rules = parse_rules("k grid>=2 -> 3\nk grid>=8 -> 2\n", WORKERS)
    policy = make_policy("manual", rules)
    only = Kernel(0, "k", "ab", only_architecture=89, minimum_architecture=89)
    placement = place(only, policy, WORKERS)
    assert [one.reason for one in (*placement.apart, placement)] == [
        "needs sm_89 and no other, worker 2 is sm_90",
        "worker 3 is down",
        "no rule fits",
    ]
    assert all(one.device == 0 for one in placement.apart)
    assert [one.wanted for one in placement.apart] == [2, 3]


def test_the_table_has_choices_of_kernels_that_are_placed_apart() -> None:
    placer = Placer()
    placer.set_workers(WORKERS)
    placer.kernels = {i: Kernel(i, name, "ab") for i, name in enumerate(["gemm", "act", "norm"])}
    prints = protocol.constant("TS_KERNEL_PRINTS")
    placer.kernels[3] = Kernel(3, "gemm_prints", "ab", properties=prints)
    text = "gemm* grid>=64 -> 1\nact -> 2\nnorm grid>=4 -> home\n"
    placer.set_rules(RulesRecord(1, text), "manual")
    seen = SharedTable(placer.table.fd, "ts_placement_table", "TS_PLACEMENT_MAGIC")
    try:
        assert seen.record["device"][0][:4].tolist() == [PLACED_BY_CLASS, 2, 0, 0]
        assert seen.get("n_choices") == 1
        choice = seen.record["choices"][0][0]
        assert (choice["kernel_id"], choice["device"], choice["n_terms"]) == (0, 1, 1)
        assert choice["terms"][0].tolist()[::2] == (Quantity.BLOCKS, 64)
        assert seen.get("sequence") % 2 == 0
        before = seen.get("sequence")
        placer.set_rules(RulesRecord(2, text + "# the same"), "manual")
        assert seen.get("sequence") == before
        placer.set_rules(RulesRecord(3, "* -> 1"), "manual")
        assert seen.record["device"][0][:4].tolist() == [1, 1, 1, 0]
        assert (seen.get("n_choices"), seen.get("sequence")) == (0, before + 2)
    finally:
        placer.table.close()


def test_choices_that_find_no_room_are_named() -> None:
    placer = Placer()
    placer.set_workers(WORKERS)
    kernels = 20
    placer.kernels = {i: Kernel(i, f"k{i}", "ab") for i in range(kernels)}
    lines = [f"* grid={size} -> 1" for size in range(MAX_CHOICES // kernels + 1)]
    placer.set_rules(RulesRecord(1, "\n".join(lines)), "manual")
    try:
        assert "launches of 1 kernels are not told apart" in placer.problem
        assert placer.table.device(kernels - 1) == 0
        placer.set_rules(RulesRecord(2, "\n".join(lines[1:])), "manual")
        assert placer.problem == ""
    finally:
        placer.table.close()
