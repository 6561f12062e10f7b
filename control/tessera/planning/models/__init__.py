# SPDX-License-Identifier: Apache-2.0
"""Launch sequences of known models, made from their configurations by counting.

For each kernel: operations, bytes of device memory, and which ranges it reads and writes.
Kernels are those that serving engines launch, fused as they fuse them; see docs/placement.md.
"""

from tessera.planning.models.catalogue import ARCHITECTURES, MIXES, Mix, workload

__all__ = ["ARCHITECTURES", "MIXES", "Mix", "workload"]
