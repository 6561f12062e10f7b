# SPDX-License-Identifier: Apache-2.0
"""Which device each kernel runs on: the user's rules, and what decides where there are none."""

from tessera.placement.conditions import (
    Condition,
    ConditionError,
    class_name,
    class_values,
    parse_condition,
    quantities_of,
)
from tessera.placement.devices import Worker, device_names
from tessera.placement.policy import (
    POLICIES,
    Decision,
    Kernel,
    Plans,
    Policy,
    make_policy,
    policy_for_rules,
)
from tessera.placement.resolve import Placement, place, unmatched_rules
from tessera.placement.rules import HELP, Finding, Rule, Rules, parse_rules

__all__ = [
    "HELP",
    "POLICIES",
    "Condition",
    "ConditionError",
    "Decision",
    "Finding",
    "Kernel",
    "Placement",
    "Plans",
    "Policy",
    "Rule",
    "Rules",
    "Worker",
    "class_name",
    "class_values",
    "device_names",
    "make_policy",
    "parse_condition",
    "parse_rules",
    "place",
    "policy_for_rules",
    "quantities_of",
    "unmatched_rules",
]
