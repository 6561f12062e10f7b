# SPDX-License-Identifier: Apache-2.0
"""A jitted JAX function."""

import os

from common import run

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")


def main() -> list[object]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def step(x, w):
        return jax.nn.softmax(jnp.tanh(x @ w), axis=-1) + jnp.cumsum(x, axis=-1)

    keys = jax.random.split(jax.random.PRNGKey(3), 2)
    x, w = (jax.random.normal(key, (256, 256)) for key in keys)
    for _ in range(3):
        x = step(x, w)
    return [np.asarray(x)]


run(main)
