# SPDX-License-Identifier: Apache-2.0
"""What the Triton examples share: arrays on the device, and kernels."""
