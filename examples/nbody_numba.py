# SPDX-License-Identifier: Apache-2.0
"""Stars pull on each other: an n-body simulation in numba-cuda.

The force kernel reads the bodies tile by tile through shared memory; a second
kernel moves them. Checked against NumPy, and by the conservation of momentum.

    python examples/nbody_numba.py --bodies 256 --steps 5
"""

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda, float32

Array = npt.NDArray[Any]

TILE = 64
SOFTENING = np.float32(1e-2)
STEP = np.float32(1e-3)


@cuda.jit
def accelerate(bodies, acceleration):  # type: ignore[no-untyped-def]
    """acceleration[i] = the pull of all bodies on body i; a body is x, y, z, mass."""
    tile = cuda.shared.array((TILE, 4), float32)
    index = cuda.grid(1)
    lane = cuda.threadIdx.x
    count = bodies.shape[0]
    mine = min(index, count - 1)
    x, y, z = bodies[mine, 0], bodies[mine, 1], bodies[mine, 2]
    pull_x, pull_y, pull_z = float32(0.0), float32(0.0), float32(0.0)
    for start in range(0, count, TILE):
        for part in range(4):
            tile[lane, part] = bodies[start + lane, part] if start + lane < count else float32(0.0)
        cuda.syncthreads()
        for other in range(TILE):
            dx, dy, dz = tile[other, 0] - x, tile[other, 1] - y, tile[other, 2] - z
            squared = dx * dx + dy * dy + dz * dz + SOFTENING
            strength = tile[other, 3] / (squared * squared ** float32(0.5))
            pull_x += strength * dx
            pull_y += strength * dy
            pull_z += strength * dz
        cuda.syncthreads()
    if index < count:
        acceleration[index, 0] = pull_x
        acceleration[index, 1] = pull_y
        acceleration[index, 2] = pull_z


@cuda.jit
def move(bodies, velocity, acceleration, step):  # type: ignore[no-untyped-def]
    """One step of the semi-implicit Euler method."""
    index = cuda.grid(1)
    if index < bodies.shape[0]:
        for axis in range(3):
            velocity[index, axis] += acceleration[index, axis] * step
            bodies[index, axis] += velocity[index, axis] * step


def on_device(bodies: Array, velocity: Array, steps: int) -> tuple[Array, Array]:
    """Bodies and velocities after `steps` steps on the GPU."""
    device_bodies, device_velocity = cuda.to_device(bodies), cuda.to_device(velocity)
    acceleration = cuda.device_array(velocity.shape, np.float32)
    blocks = -(-len(bodies) // TILE)
    for _ in range(steps):
        accelerate[blocks, TILE](device_bodies, acceleration)
        move[blocks, TILE](device_bodies, device_velocity, acceleration, STEP)
    return device_bodies.copy_to_host(), device_velocity.copy_to_host()


def on_host(bodies: Array, velocity: Array, steps: int) -> tuple[Array, Array]:
    """The same in NumPy, in double precision."""
    bodies, velocity = bodies.astype(np.float64), velocity.astype(np.float64)
    for _ in range(steps):
        offset = bodies[None, :, :3] - bodies[:, None, :3]
        squared = (offset * offset).sum(axis=-1) + SOFTENING
        strength = bodies[None, :, 3] / squared**1.5
        velocity += (strength[..., None] * offset).sum(axis=1) * STEP
        bodies[:, :3] += velocity * STEP
    return bodies, velocity


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bodies", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args(arguments)

    generator = np.random.default_rng(3)
    bodies = generator.normal(0.0, 1.0, (options.bodies, 4)).astype(np.float32)
    bodies[:, 3] = generator.uniform(0.5, 1.5, options.bodies)
    velocity = generator.normal(0.0, 0.1, (options.bodies, 3)).astype(np.float32)

    moved, speeds = on_device(bodies, velocity, options.steps)
    expected, expected_speeds = on_host(bodies, velocity, options.steps)
    position_error = float(np.abs(moved - expected).max())
    speed_error = float(np.abs(speeds - expected_speeds).max())
    if not (position_error < 1e-5 and speed_error < 1e-3):
        raise SystemExit(f"WRONG: off by {position_error:.2e} in place, {speed_error:.2e} in speed")
    before = (bodies[:, 3:] * velocity).sum(axis=0, dtype=np.float64)
    drift = np.abs((moved[:, 3:] * speeds).sum(axis=0, dtype=np.float64) - before).max()
    print(
        f"{options.bodies} bodies, {options.steps} steps: agrees with NumPy "
        f"(place within {position_error:.1e}, speed within {speed_error:.1e}); "
        f"total momentum drifted by {drift:.1e}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
