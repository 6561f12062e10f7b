# SPDX-License-Identifier: Apache-2.0
"""The child process that analyses images: one job at a time, over the socket on stdin.

A job is a packet of JSON with the image's descriptor; the answer is a packet of JSON, with a
descriptor of more JSON where that is long. A crash or a hang here costs one image its
summary, and the controller nothing.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tessera import protocol, sass
from tessera.placement import parse_rules, unmatched_rules
from tessera.placement.devices import Worker
from tessera.protocol import packets
from tessera.sass.disassembly import nvdisasm_version
from tessera.service.cubin_cache import cache_folders, environment_of, find_cubin
from tessera.service.extraction import Extraction, NotDescribedError, extract, kind_of
from tessera.service.machine_code import analyze_machine_code, without_summary

DEFAULT_ANALYSIS = "tessera.analysis"
Analyze = Callable[[str], Mapping[str, Any]]


def analyze_image(
    data: bytes, path: str, capabilities: list[int], analyze: Analyze, name: str = ""
) -> dict[str, Any]:
    """What is to be stored about an image and its kernels, as JSON.

    Of machine code only the kernel of that name is looked at: a library's image has hundreds.
    """
    begin = time.perf_counter()
    result: dict[str, Any] = {
        "kind": kind_of(data), "reason": "", "kernels": [], "partial": False
    }  # fmt: skip
    try:
        found = extract(data, path, capabilities)
        result["kernels"] = _analyze_texts(found, analyze)
        if not result["kernels"]:
            result["reason"] = "the PTX of this image has no kernel"
    except NotDescribedError as error:
        result["partial"] = bool(name)
        result["kernels"], result["reason"] = _from_machine_code(data, capabilities, name, error)
    except MemoryError:
        result["reason"] = "the analysis ran out of memory"
    result["milliseconds"] = (time.perf_counter() - begin) * 1e3
    return result


def _from_machine_code(
    data: bytes, capabilities: list[int], name: str, no_text: NotDescribedError
) -> tuple[list[dict[str, Any]], str]:
    """Kernels as their machine code has them, or why there is nothing to be known."""
    try:
        return analyze_machine_code(data, capabilities, name), ""
    except NotDescribedError as error:
        return [], f"{no_text}; {error}"
    except MemoryError:
        return [], f"{no_text}; the analysis of its machine code ran out of memory"


def _analyze_texts(found: Extraction, analyze: Analyze) -> list[dict[str, Any]]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for text in found.texts:
        for kernel in _analyze_text(text.text, analyze):
            by_name.setdefault(kernel["name"], []).append(kernel)
    return [_agree(versions, len(found.texts)) for versions in by_name.values()]


def _analyze_text(text: bytes, analyze: Analyze) -> list[dict[str, Any]]:
    from tessera.native import ptx

    module = ptx.parse(text)
    errors = module.errors
    try:
        summaries = analyze(text.decode("utf-8", "replace"))
    except Exception as error:  # an analysis that fails is a fact about the image
        where = f"{errors[0]}; " if errors else ""
        raise NotDescribedError(f"analysis error: {where}{type(error).__name__}: {error}") from None
    if not summaries and errors:
        raise NotDescribedError(f"the PTX cannot be read: {errors[0]}")
    broken = {entry.name: entry.line for entry in module.entries if entry.is_broken}
    return [
        _broken(name, broken[name], errors) if name in broken else _kernel(name, summary)
        for name, summary in summaries.items()
    ]


def _broken(name: str, line: int, errors: Sequence[Any]) -> dict[str, Any]:
    """A kernel with a part that was not understood, whatever the analysis made of the rest."""
    mine = [error for error in errors if error.line >= line] or list(errors)
    where = f" at {mine[0]}" if mine else ""
    return without_summary(name, f"analysis error: its PTX cannot be read{where}")


def _kernel(name: str, summary: Any) -> dict[str, Any]:
    try:
        blob = summary.to_blob()
        header = protocol.read_summary_header(blob)
        described = summary.to_dict()
    except Exception as error:  # likewise
        return without_summary(name, f"analysis error: {type(error).__name__}: {error}")
    if len(blob) + protocol.sizeof("ts_kernel_info") > protocol.MAX_MESSAGE // 2:
        return without_summary(name, f"its access summary is too large ({len(blob)} bytes)")
    unknown = header.properties & protocol.KERNEL_UNKNOWN
    return without_summary(name, "") | {
        "status": "ready",
        "summary": described,
        "blob": base64.b64encode(blob).decode("ascii"),
        "properties": header.properties,
        "minimum": header.minimum_architecture,
        "only": header.only_architecture,
        "grade": "unknown" if unknown else "ptx",
    }


def _agree(versions: list[dict[str, Any]], texts: int) -> dict[str, Any]:
    """One answer for a kernel that several texts describe: they have to say the same."""
    first = versions[0]
    failed = [version for version in versions if version["status"] != "ready"]
    if failed:
        return failed[0]
    if len(versions) < texts:
        return without_summary(first["name"], "not every PTX text of the image has this kernel")
    if any(_essence(version) != _essence(first) for version in versions):
        return without_summary(
            first["name"], "the PTX texts of the image differ in what this kernel accesses"
        )
    return first


def _essence(kernel: dict[str, Any]) -> Any:
    """The summary without line numbers and architectures, which may differ."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: stripped(part)
                for key, part in value.items()
                if key not in {"line", "minimum_architecture", "only_architecture"}
            }
        return [stripped(part) for part in value] if isinstance(value, list) else value

    return stripped(kernel["summary"]), kernel["properties"]


def try_rules(job: Mapping[str, Any]) -> dict[str, Any]:
    """Rules that fit no known kernel. Done here, for an expression may take for ever."""
    workers = [Worker(**worker) for worker in job["workers"]]
    rules = parse_rules(job["text"], workers)
    kernels = [(name, image) for name, image in job["kernels"]]
    return {"unmatched": [[f.line, f.message] for f in unmatched_rules(rules, kernels)]}


def _answer(job: dict[str, Any], packet: packets.Packet, analyze: Analyze) -> dict[str, Any]:
    if job["kind"] == "rules":
        fd = packet.fds[0]
        return try_rules(json.loads(packets.read_file(fd, job["size"])))
    try:
        data = packets.read_file(packet.fds[0], job["size"])
    except (ValueError, IndexError) as error:
        return {
            "kind": "", "kernels": [], "reason": f"the image {error}", "milliseconds": 0.0,
            "partial": False,
        }  # fmt: skip
    path = job["path"] or _cached_path(data, int(job.get("pid", 0)))
    return analyze_image(data, path, job["capabilities"], analyze, job.get("name", ""))


def _cached_path(data: bytes, pid: int) -> str:
    """Where the program's compilers keep this cubin, or nothing."""
    from tessera.native import ptx

    if ptx.open_image(data).kind != ptx.ImageKind.ELF:
        return ""
    found = find_cubin(data, cache_folders(environment_of(pid), os.getuid()))
    return str(found) if found else ""


def serve(sock: socket.socket, analyze: Analyze, version: int) -> None:
    """Answers jobs until the controller closes the connection."""
    packets.send(sock, json.dumps({"version": version}).encode())
    while (packet := packets.receive(sock)) is not None:
        try:
            answer = _answer(json.loads(packet.data), packet, analyze)
        finally:
            packet.close()
        data = json.dumps(answer).encode()
        fd = packets.memory_file("tessera-analysis", data)
        packets.send(sock, json.dumps({"size": len(data)}).encode(), [fd])
        packets.close_fds([fd])


def version_of(module: ModuleType) -> int:
    """What a summary's analysis is known by: ANALYSIS_VERSION, or else the analysis's own text.

    So no summary outlives a change of what made it, not even one that nobody thought of.
    """
    declared = getattr(module, "ANALYSIS_VERSION", None)
    if declared is not None:
        return int(declared)
    sum_ = zlib.crc32(nvdisasm_version().encode())
    for folder in (*getattr(module, "__path__", []), *sass.__path__):
        for path in sorted(Path(folder).glob("*.py")):
            sum_ = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), sum_))
    return sum_ & 0x7FFFFFFF or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--analysis", default=DEFAULT_ANALYSIS, help="module with analyze_module")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to answer
    module = importlib.import_module(options.analysis)
    sock = socket.socket(fileno=sys.stdin.fileno())
    try:
        serve(sock, module.analyze_module, version_of(module))
    except (ConnectionError, BrokenPipeError):
        sys.exit(0)  # the controller has gone


if __name__ == "__main__":
    main()
