# SPDX-License-Identifier: Apache-2.0
"""Tessera: one CUDA program on several unlike GPUs, kernel by kernel."""

__version__ = "0.1.0"
