# SPDX-License-Identifier: Apache-2.0
"""Starting and watching workers."""
