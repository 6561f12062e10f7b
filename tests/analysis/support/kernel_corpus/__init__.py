# SPDX-License-Identifier: Apache-2.0
"""Kernels of every pattern that the analysis knows, random launches of them, and the oracle."""
