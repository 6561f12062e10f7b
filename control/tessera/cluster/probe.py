# SPDX-License-Identifier: Apache-2.0
"""A short-lived process that asks the driver what there is: `python -m tessera.cluster.probe`.

The controller and tessera-ctl never initialise CUDA themselves. Prints one JSON object:
`error`, or `driver`, `library`, `version` and `devices`; with --deep also `checks`, which
tries what Tessera needs of each device. What the driver prints itself goes to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tessera.native.driver import DeviceInfo, Driver, DriverError
from tessera.settings import Settings

TRIED_BASE, TRIED_SIZE = 0x200000000000, 1 << 40  # a program's slot of addresses


def _attempt(action: Callable[[], None]) -> str:
    try:
        action()
    except DriverError as error:
        return str(error)
    return ""


def _checks(driver: Driver, device: DeviceInfo) -> dict[str, str]:
    """What does not work on one device: empty texts for what does."""
    failed = _attempt(lambda: driver.use(device.ordinal))
    if failed:
        return {"context": failed}
    return {
        "context": "",
        "addresses": _attempt(lambda: driver.try_reserve(TRIED_BASE, TRIED_SIZE)),
        "export": _attempt(lambda: driver.try_export(device.ordinal)),
        "flags": _attempt(driver.try_stream_flags),
    }


def _file_of(name: str) -> str:
    """Where the loader found the library; the name itself when that cannot be told."""
    wanted = Path(name).name
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return name
    paths = [line.split(maxsplit=5)[5] for line in lines if line.count("/")]
    # A name is a link to the file of one version: libcuda.so.1 to libcuda.so.580.65.
    stem = wanted.split(".so")[0] + ".so"
    return next((path for path in paths if Path(path).name.startswith(stem)), name)


def probe(path: str, deep: bool) -> dict[str, Any]:
    """What the driver at `path` shows."""
    try:
        driver = Driver(path)
        devices = driver.devices()
        version = driver.version()
    except DriverError as error:
        return {"error": str(error)}
    result: dict[str, Any] = {
        "driver": driver.path,
        "library": _file_of(driver.path),
        "version": version,
        "devices": [dataclasses.asdict(device) for device in devices],
    }
    if deep:
        result["checks"] = {str(d.ordinal): _checks(driver, d) for d in devices}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", action="store_true")
    options = parser.parse_args()
    settings = Settings.from_environment()
    print(json.dumps(probe(settings.text("driver"), options.deep)), flush=True)


if __name__ == "__main__":
    main()
