# SPDX-License-Identifier: Apache-2.0
"""Builds the samples of a checkout of NVIDIA's cuda-samples that need no graphics and no MPI.

All of them are one CMake project, so that the compiler is looked at once. Samples that
cannot be configured here (a library is missing) are left out and named; the others are
built, as many as there is time for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

# What a sample asks CMake for, or includes, that a machine without a screen does not have.
NEEDS_MORE = re.compile(
    r"find_package\((?:GLUT|OpenGL|MPI|Vulkan|EGL|FreeImage|X11|GLEW)|\bEGL\b|\bD3D|NVSCI", re.I
)
ARCHITECTURES = re.compile(r"set\(CMAKE_CUDA_ARCHITECTURES [^)]*\)")
NOT_COPIED = {".doc", ".docx", ".pdf", ".png", ".jpg", ".dll", ".lib"}
ROUNDS = 12  # of configuring; each leaves out at least one sample more


@dataclass
class Sample:
    """One run of one sample: its program and arguments, and the folder to run it in."""

    name: str
    folder: Path
    command: list[str]
    gpus: int = 1


@dataclass
class Built:
    samples: list[Sample]
    left_out: dict[str, str]  # sample: why it was not built
    libraries: Path  # a folder that programs need in LD_LIBRARY_PATH


def build(
    checkout: Path, folder: Path, only: list[str], arch: str, jobs: int, until: float
) -> Built:
    """Builds into `folder`, which may hold an earlier build; ends about when time is `until`."""
    left_out: dict[str, str] = {}
    chosen = sorted(wanted(checkout, only, left_out))
    source, binary = folder / "source", folder / "build"
    copy_tree(checkout, source, chosen, arch)
    libraries = link_libraries(folder / "lib")
    log = folder / "build.log"
    with log.open("w") as out:
        chosen = configure(source, binary, chosen, arch, libraries, left_out, out)
        compile_all(binary, jobs, until, out)
    built = [path for path in chosen if (binary / path / path.name).exists()]
    said = log.read_text()
    for path in chosen:
        if path not in built:
            left_out[path.name] = why_not_built(path, said)
    return Built(runs(binary, built, settings(checkout)), left_out, libraries)


def find_built(folder: Path, only: list[str]) -> Built:
    """The samples of an earlier build, or whatever has its layout: GROUP/NAME/NAME."""
    binary = next((p for p in (folder / "build", folder) if (p / "Samples").is_dir()), folder)
    found = [
        path.relative_to(binary)
        for path in sorted(binary.glob("Samples/*/*"))
        if (path / path.name).is_file() and (not only or path.name in only)
    ]
    return Built(runs(binary, found, settings(folder)), {}, folder / "lib")


def settings(folder: Path) -> dict[str, dict[str, object]]:
    """Arguments of samples, and how many GPUs they need: as their own test script has it."""
    places = (folder / "test_args.json", folder / "source/test_args.json")
    file = next((place for place in places if place.exists()), None)
    return dict(json.loads(file.read_text())) if file else {}


def runs(binary: Path, built: list[Path], options: dict[str, dict[str, object]]) -> list[Sample]:
    found = []
    for path in built:
        of = options.get(path.name, {})
        if of.get("skip"):
            continue
        all_runs = of.get("runs") or [{"args": of.get("args", [])}]
        assert isinstance(all_runs, list)
        for number, one in enumerate(all_runs, 1):
            name = path.name if len(all_runs) == 1 else f"{path.name} ({number})"
            command = [f"./{path.name}", *one.get("args", [])]
            gpus = of.get("min_gpus", 1)
            found.append(Sample(name, binary / path, command, int(str(gpus))))
    return found


def wanted(checkout: Path, only: list[str], left_out: dict[str, str]) -> Iterator[Path]:
    """Folders of samples, relative to the checkout, without those that need more than a GPU."""
    for file in checkout.glob("Samples/*/*/CMakeLists.txt"):
        folder = file.parent
        if only and folder.name not in only:
            continue
        if NEEDS_MORE.search(file.read_text(errors="replace")):
            left_out[folder.name] = "needs graphics, MPI or another library that is no part of CUDA"
        elif folder.parent.name[:2] not in ("7_", "8_"):
            yield folder.relative_to(checkout)


def copy_tree(checkout: Path, target: Path, chosen: list[Path], arch: str) -> None:
    """The checkout stays as it is: each sample names nine architectures, here it gets one."""

    def unwanted(folder: str, names: list[str]) -> set[str]:
        del folder
        return {name for name in names if Path(name).suffix in NOT_COPIED or name == "doc"}

    for part in (Path("Common"), Path("cmake"), *chosen):
        if (checkout / part).is_dir():
            shutil.copytree(checkout / part, target / part, ignore=unwanted, dirs_exist_ok=True)
    for path in chosen:
        file = target / path / "CMakeLists.txt"
        text = file.read_text(errors="replace")
        text = ARCHITECTURES.sub(f"set(CMAKE_CUDA_ARCHITECTURES {arch})", text)
        # Kernels in files of their own: with their PTX, which is what all other samples have.
        text = text.replace("code=sm_${arch}", "code=[sm_${arch},compute_${arch}]")
        file.write_text(text)
    if (checkout / "test_args.json").exists():
        shutil.copy(checkout / "test_args.json", target)


def configure(
    source: Path,
    binary: Path,
    chosen: list[Path],
    arch: str,
    libraries: Path,
    left_out: dict[str, str],
    out: TextIO,
) -> list[Path]:
    """Configures; as long as that fails, without the samples that it fails for."""
    includes = " ".join(f"-isystem {folder}" for folder in extra_includes())
    command = ["cmake", "-S", str(source), "-B", str(binary), "-DCMAKE_BUILD_TYPE=Release"]
    command += [f"-DCMAKE_LIBRARY_PATH={libraries}", f"-DCMAKE_CUDA_ARCHITECTURES={arch}"]
    command += [f"-DCMAKE_CXX_FLAGS={includes}", f"-DCMAKE_CUDA_FLAGS={includes}"]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    for _ in range(ROUNDS):
        lines = [
            "cmake_minimum_required(VERSION 3.20)",
            "project(samples LANGUAGES C CXX CUDA)",
            *(f"add_subdirectory({path})" for path in chosen),
        ]
        (source / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, file=out, flush=True)
        if done.returncode == 0:
            return chosen
        bad = {path for path in chosen if re.search(rf"{path}\b(?!_)", failures_of(done.stderr))}
        if not bad:
            sys.exit(f"The samples cannot be configured:\n{done.stderr[-2000:]}")
        for path in bad:
            left_out[path.name] = why_not_configured(path, done.stderr)
        chosen = [path for path in chosen if path not in bad]
    sys.exit(f"The samples could not be configured in {ROUNDS} rounds:\n{done.stderr[-2000:]}")


def failures_of(text: str) -> str:
    """CMake's output without its warnings."""
    parts = re.split(r"(?m)^(?=CMake (?:Error|Warning|Deprecation))", text)
    return "".join(part for part in parts if part.startswith("CMake Error"))


def why_not_configured(path: Path, text: str) -> str:
    after = text[text.find(str(path)) :]
    if missing := re.search(r"links to:\s+(\S+)\s+but the target was not found", after):
        return f"{missing[1]} is not installed"
    if missing := re.search(r"following variables.*?\n(\w+)\n\s+linked by", text, re.DOTALL):
        return f"{missing[1]} is not installed"
    return "cannot be configured here"


def compile_all(binary: Path, jobs: int, until: float, out: TextIO) -> None:
    keep_going = ["-k", "0"] if (binary / "build.ninja").exists() else ["-k"]
    command = ["cmake", "--build", str(binary), "-j", str(jobs), "--", *keep_going]
    child = subprocess.Popen(
        command,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        child.wait(max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        print("stopped: out of time", file=out)


def why_not_built(path: Path, said: str) -> str:
    own = re.compile(rf"^FAILED:.*{path}/|^.*{path}/.*(?:error|Error)\b.*$", re.MULTILINE)
    for found in own.finditer(said):
        after = said[found.start() : found.start() + 20000]
        if error := re.search(r"^.*(?:error|undefined reference|cannot find)\b.*$", after, re.M):
            return error[0].strip().replace("|", "/")[-160:]
    return "no time was left to build it" if "stopped: out of time" in said else "did not build"


def link_libraries(folder: Path) -> Path:
    """Libraries that are there only under the names programs load: under those to link with, too.

    CUDA from Python packages has `libcublas.so.13` and no `libcublas.so`; a driver has
    `libcuda.so.1` alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in python_packages("lib/lib*.so*"):
        for name in (file.name, file.name.partition(".so")[0] + ".so"):
            link(folder / name, file)
    for file in driver_libraries():
        link(folder / "libcuda.so", file)
    return folder


def link(name: Path, file: Path) -> None:
    if not name.exists():
        name.symlink_to(file)


def extra_includes() -> list[Path]:
    """Headers of libraries that came as Python packages, when the toolkit has not got them."""
    nvcc = Path(shutil.which("nvcc") or "nvcc").resolve()
    toolkits = (nvcc.parents[1] / "include", Path("/usr/local/cuda/include"))
    if any((toolkit / "cublas_v2.h").exists() for toolkit in toolkits):
        return []
    return sorted({file.parent for file in python_packages("include/cublas_v2.h")})


def python_packages(pattern: str) -> list[Path]:
    return [
        file
        for place in sys.path
        for file in sorted(Path(place).glob(f"nvidia/*/{pattern}"))
        if place
    ]


def driver_libraries() -> Iterator[Path]:
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    for found in re.finditer(r"=> (\S*/libcuda\.so\.1)$", listed, re.MULTILINE):
        yield Path(found[1])
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for place in (*places, "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"):
        if place and (file := Path(place) / "libcuda.so.1").exists():
            yield file.resolve()
