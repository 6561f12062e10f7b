# SPDX-License-Identifier: Apache-2.0
"""From what launches cost to a plan: which launch of a program runs on which device."""
