# SPDX-License-Identifier: Apache-2.0
"""Does the simulator of tessera.planning agree with the real system on simulated devices?

Two kernels in a row, one bound by arithmetic, one by memory, with several requests in flight
(streams). The real system is the controller, a worker and the library, on the simulated driver
whose clock is paced in real time and whose devices run one kernel at a time; the other is the
event-driven simulator with the times that the driver reports. Prints both rates.

    python tools/pipeline_agreement.py

Devices are slow on purpose (a catalogue of their own), so that the host's time, which no
simulated device has, is small beside theirs. What is left of it shows where nothing hides it:
with one request in flight and a change of the device in it, two processes wake each other up,
one after the other. So that hand-off is measured, with kernels that have next to nothing to
do, and the simulator is given it as latency of the link.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "control"), str(ROOT / "tools")]

import numpy as np  # noqa: E402
import sim_env  # noqa: E402

THREADS, SWEEPS = 8192, 32
BLOCKS = THREADS // 128
ROUNDS = 10
SCALE = 16.0  # real seconds of a simulated one: the host's own time counts a sixteenth
SOURCE = """
extern "C" __global__ void arith(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < 256; ++k) v = v * 0.999f + 0.5f;
  y[i] = v;
}
extern "C" __global__ void sweep(const float* y, const float* w, float* z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = y[i];
#pragma unroll
  for (int k = 0; k < SWEEPS; ++k) s += w[k * THREADS + i];
  z[i] = s;
}
"""
LINK = {"kind": "slow", "bandwidth": 10e6, "latency_us": 100.0}
RATES = {"Slow Compute": (0.2e9, 15e6), "Slow Memory": (0.06e9, 60e6)}  # operations, bytes


def catalogue(path: Path) -> None:
    """Two slow devices in the catalogue's form."""
    plain = json.loads((ROOT / "native/sim/devices/catalogue.json").read_text())["devices"]["A100"]
    devices = {}
    for name, (flops, bandwidth) in RATES.items():
        devices[name.replace(" ", "")] = plain | {
            "name": name,
            "multiprocessors": 1,
            "memory_bandwidth": bandwidth,
            "flops": dict.fromkeys(plain["flops"], flops),
            "peer_link": LINK,
            "host_link": LINK | {"bandwidth": 1e9, "latency_us": 2.0},
        }
    path.write_text(json.dumps({"about": "slow", "devices": devices}))


def checked(result: tuple[Any, ...]) -> Any:
    """What a driver call gives. Raises RuntimeError when it failed."""
    if int(result[0]):
        raise RuntimeError(f"CUDA driver call failed: {result[0]!r}")
    return result[1] if len(result) > 1 else None


def ptx() -> bytes:
    """The two kernels."""
    from cuda.bindings import nvrtc

    made = checked(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"k.cu", 0, [], []))
    options = [b"-arch=compute_80", f"-DTHREADS={THREADS}".encode(), f"-DSWEEPS={SWEEPS}".encode()]
    checked(nvrtc.nvrtcCompileProgram(made, len(options), options))
    text = b" " * checked(nvrtc.nvrtcGetPTXSize(made))
    checked(nvrtc.nvrtcGetPTX(made, text))
    return text


class Driver:
    """The few driver calls that the program makes, straight from the library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        """Raises RuntimeError when the call fails."""
        if code := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed: {code}")

    def made(self, name: str, *arguments: Any) -> ctypes.c_uint64:
        """A call that gives a handle or an address through its first argument."""
        result = ctypes.c_uint64()
        self.call(name, ctypes.byref(result), *arguments)
        return result


def program(slots: int, rounds: int, blocks: int) -> None:
    """The program itself, which knows nothing of Tessera; prints its rate as JSON."""
    driver = Driver()
    driver.call("cuInit", 0)
    driver.call("cuCtxSetCurrent", driver.made("cuDevicePrimaryCtxRetain", 0))
    module = driver.made("cuModuleLoadData", ptx())
    kernels = [driver.made("cuModuleGetFunction", module, name) for name in (b"arith", b"sweep")]

    def filled(count: int) -> ctypes.c_uint64:
        pointer = driver.made("cuMemAlloc_v2", ctypes.c_size_t(4 * count))
        driver.call("cuMemsetD32_v2", pointer, 0x3F800000, ctypes.c_size_t(count))
        return pointer

    weights = filled(THREADS * SWEEPS)
    requests = [[filled(THREADS) for _ in range(3)] for _ in range(slots)]
    streams = [driver.made("cuStreamCreate", 1) for _ in range(slots)]

    def launch(kernel: Any, stream: Any, *pointers: ctypes.c_uint64) -> None:
        addresses = (ctypes.c_void_p * len(pointers))(*map(ctypes.addressof, pointers))
        driver.call("cuLaunchKernel", kernel, blocks, 1, 1, 128, 1, 1, 0, stream, addresses, None)

    def go(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            for stream, (x, y, z) in zip(streams, requests, strict=True):
                launch(kernels[0], stream, x, y)
                launch(kernels[1], stream, y, weights, z)
        for stream in streams:
            driver.call("cuStreamSynchronize", stream)
        return time.perf_counter() - begun

    go(3)
    seconds = go(rounds)
    result = np.zeros(THREADS, np.float32)
    target = ctypes.c_void_p(result.ctypes.data)
    driver.call("cuMemcpyDtoH_v2", target, requests[0][2], ctypes.c_size_t(result.nbytes))
    print(json.dumps({"rate": slots * rounds / seconds, "sum": float(result.sum())}))


class System:
    """A controller with a worker on simulated devices, in a folder of its own."""

    def __init__(self, folder: Path, scale: float) -> None:
        catalogue(folder / "catalogue.json")
        keys = ",".join(name.replace(" ", "") for name in RATES)
        self.environment = {
            **os.environ,
            **sim_env.changes(os.environ, keys),
            "PYTHONPATH": str(ROOT / "control"),
            "TESSERA_SIM_CATALOGUE": str(folder / "catalogue.json"),
            "TESSERA_SIM_CLOCK": f"paced:{scale:g},exclusive",
            "TESSERA_RUNTIME_DIR": str(folder / "run"),
            "TESSERA_STORE": str(folder / "store.db"),
        }

    def call(self, *arguments: str) -> str:
        """What a command prints. Raises RuntimeError."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def control(self, *arguments: str) -> str:
        return self.call("-m", "tessera.cli.main", *arguments)

    def measure(self, slots: int, rounds: int, blocks: int = BLOCKS) -> dict[str, Any]:
        """The program under Tessera: its rate, and the sum of a result."""
        me = str(Path(__file__).resolve())
        text = self.control(
            "run", "--", sys.executable, me, "--program", str(slots), "--rounds", str(rounds),
            "--blocks", str(blocks),
        )  # fmt: skip
        return dict(json.loads(next(line for line in text.splitlines() if line.startswith("{"))))


def times_of(system: System) -> dict[str, dict[int, float]]:
    """Seconds of each kernel on each device: the least mean that any program's counters give.

    The library times a kernel with events around it, which count the wait for the GPU too when
    other streams are on it: the program with one request in flight tells the time itself.
    """
    os.environ["TESSERA_RUNTIME_DIR"] = system.environment["TESSERA_RUNTIME_DIR"]
    from tessera.service.client import request

    folder = Path(system.environment["TESSERA_RUNTIME_DIR"])
    names = {one["id"]: one["name"] for one in request(folder, "kernels", all=False)["kernels"]}
    least: dict[str, dict[int, float]] = {}
    for one in request(folder, "history")["programs"]:
        for kernel in one["counters"]["kernels"]:
            for device, count in kernel["timed"].items():
                mean = kernel["time_ns"][device] * 1e-9 / count
                entry = least.setdefault(names[kernel["id"]], {})
                entry[int(device)] = min(mean, entry.get(int(device), mean))
    return least


def handoff_of(
    system: System, times: dict[str, dict[int, float]], plan: dict[str, int], scale: float
) -> float:
    """Real seconds that a request loses to the host at a change of the device and back: what it
    takes with kernels of one block, less what these take.
    """
    small = {
        name: {device: seconds / BLOCKS for device, seconds in by.items()}
        for name, by in times.items()
    }
    seconds = [1 / system.measure(1, 40, 1)["rate"] for _ in range(3)]
    return max(0.0, sorted(seconds)[1] - scale / predicted(small, plan, 1, 40, 0.0, 4 * 128))


def predicted(
    times: dict[str, dict[int, float]],
    plan: dict[str, int],
    slots: int,
    rounds: int,
    handoff: float,
    size: int = 4 * THREADS,
) -> float:
    """Requests a second by the event-driven simulator, for as many requests, so that the begin
    and the end of the pipeline count as they do in the real system. `handoff`: simulated seconds.
    """
    from tessera.planning.costs import CostModel, Sample
    from tessera.planning.launches import Job, Launch, Range, Workload
    from tessera.planning.machine import Device, Link, Machine
    from tessera.planning.problem import Options, build
    from tessera.planning.simulator import Flight, Simulation, compile_job

    devices = tuple(Device(name, name, 80, 1e12, rates[1]) for name, rates in RATES.items())
    latency = float(LINK["latency_us"]) * 1e-6 + handoff  # type: ignore[arg-type]
    link = Link(float(LINK["bandwidth"]), latency)  # type: ignore[arg-type]
    machine = Machine(devices, {(0, 1): link, (1, 0): link})
    costs = CostModel(enough=1)
    for name, by in times.items():
        costs.learn(Sample(name, devices[device].key, 1, seconds) for device, seconds in by.items())
    x, y, z = (Range(i << 20, (i << 20) + size) for i in range(3))
    launches = (Launch("arith", "arith", (x,), (y,)), Launch("sweep", "sweep", (y,), (z,)))
    workload = Workload("pipeline", (Job("request", launches),))
    problem = build(workload, machine, costs, Options())
    assignment = np.array([plan[node.name] for node in problem.nodes])
    flight = Flight(compile_job(problem, assignment), slots)
    one = Simulation(problem, [flight], prefetch=False, fair=False, record=0.0)
    one.run(slots * rounds)
    return slots * rounds / one.finished[-1][0]


PLACEMENTS = {"home": {"arith": 0, "sweep": 0}, "split": {"arith": 0, "sweep": 1}}
Seen = list[tuple[str, int, float]]  # placement, requests in flight, requests a second


def place(system: System, plan: dict[str, int]) -> None:
    system.control(
        "placement", "set", *(f"{name} -> {device or 'home'}" for name, device in plan.items())
    )


def run(scale: float, rounds: int) -> tuple[Seen, dict[str, dict[int, float]], float]:
    """What the real system reaches, its kernels' times, and its hand-off in real seconds.

    Raises RuntimeError when results differ between placements.
    """
    seen: Seen = []
    sums = set()
    with tempfile.TemporaryDirectory() as name:
        system = System(Path(name), scale)
        system.control("up")
        try:
            for label, plan in PLACEMENTS.items():
                place(system, plan)
                for slots in (1, 2, 3):
                    found = system.measure(slots, rounds)
                    seen.append((label, slots, scale * found["rate"]))
                    sums.add(found["sum"])
            times = times_of(system)
            handoff = handoff_of(system, times, PLACEMENTS["split"], scale)
        finally:
            system.control("down", "--force")
    if len(sums) != 1:
        raise RuntimeError("results differ between placements")
    return seen, times, handoff


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--program", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--scale", type=float, default=SCALE, help="real seconds of a simulated one"
    )
    arguments = parser.parse_args()
    if arguments.program:
        program(arguments.program, arguments.rounds, arguments.blocks)
        return
    seen, times, handoff = run(arguments.scale, arguments.rounds)
    for kernel, by in times.items():
        print(kernel, ", ".join(f"{1e3 * one:.2f} ms on {d or 'home'}" for d, one in by.items()))
    print(f"hand-off {1e3 * handoff:.2f} real ms, {1e3 * handoff / arguments.scale:.2f} simulated")
    print("placement  in flight  real system  simulator  difference  without the hand-off")
    for label, slots, real in seen:
        plan = PLACEMENTS[label]
        model = predicted(times, plan, slots, arguments.rounds, handoff / arguments.scale)
        bare = predicted(times, plan, slots, arguments.rounds, 0.0)
        print(f"{label:9}  {slots:9}  {real:11.2f}  {model:9.2f}  {real / model - 1:+9.1%}"
              f"  {real / bare - 1:+9.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
