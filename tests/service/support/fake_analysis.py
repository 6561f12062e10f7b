# SPDX-License-Identifier: Apache-2.0
"""Stands in for tessera.analysis: comments in the PTX say how an analysis goes.

`// properties N` is the properties of the kernel that follows, `// sleep S` takes that long,
`// crash` ends the process, `// raise` fails.
"""

import os
import re
import time
from typing import Any

from tessera import protocol
from tessera.native import ptx

ANALYSIS_VERSION = int(os.environ.get("FAKE_ANALYSIS_VERSION", "1"))


class Summary:
    def __init__(self, name: str, properties: int, target: int) -> None:
        self.name, self.properties, self.target = name, properties, target

    def to_blob(self) -> bytes:
        return protocol.pack_summary_header(self.properties, self.target)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "properties": self.properties, "line": 1}


def analyze_module(text: str) -> dict[str, Summary]:
    if "// crash" in text:
        os.abort()
    if "// raise" in text:
        raise ValueError("told to fail at 3:14")
    for seconds in re.findall(r"// sleep ([\d.]+)", text):
        time.sleep(float(seconds))
    if log := os.environ.get("FAKE_ANALYSIS_LOG"):
        with open(log, "a") as file:  # noqa: PTH123
            file.write("analysed\n")
    module = ptx.parse(text)
    target = int(re.sub(r"\D", "", module.target) or 0)
    properties = dict(re.findall(r"// properties (\d+)\n\.visible \.entry (\w+)", text))
    by_name = {name: int(number) for number, name in properties.items()}
    return {e.name: Summary(e.name, by_name.get(e.name, 0), target) for e in module.entries}
