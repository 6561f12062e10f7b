# SPDX-License-Identifier: Apache-2.0
"""The controller: the process that programs ask, that owns the store, and that starts workers."""
