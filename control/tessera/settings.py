# SPDX-License-Identifier: Apache-2.0
"""The settings that Tessera reads from the environment.

The one list of them is `settings.def`, which C++ includes as it stands. This module
parses the same lines, so that a setting has one name, default and help text everywhere.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r'^TESSERA_SETTING\(\s*(\w+)\s*,\s*"(\w+)"\s*,\s*(\w+)\s*,\s*"([^"]*)"\s*,\s*"((?:[^"\\]|\\.)*)"\s*\)'
)
_KINDS = ("text", "path", "flag", "integer")
_TRUE = ("1", "true", "yes")


class SettingsError(Exception):
    """A setting has a value that cannot be used; the message says which and what is wanted."""


@dataclass(frozen=True)
class Setting:
    """One line of settings.def."""

    identifier: str
    environment: str
    kind: str
    default: str
    help: str


def header_path(relative: str) -> Path:
    """The path of a seam file, such as `tessera/protocol/control.h`: installed, or in the sources.

    Raises FileNotFoundError when neither place has it.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_native" / "include" / relative
    if installed.is_file():
        return installed
    room = relative.split("/")[1]
    source = package.parent.parent / "native" / room / "include" / relative
    if source.is_file():
        return source
    raise FileNotFoundError(
        f"{relative} is in neither {installed} nor {source}: "
        "this installation of Tessera is incomplete"
    )


def parse_definitions(text: str) -> tuple[Setting, ...]:
    """The settings in the text of settings.def. Raises ValueError naming the line that is wrong."""
    settings = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("TESSERA_SETTING("):
            continue
        match = _LINE.match(line)
        if match is None or match[3] not in _KINDS:
            raise ValueError(f"settings.def:{number}: not a setting: {line.strip()}")
        settings.append(Setting(match[1], match[2], match[3], match[4], match[5]))
    return tuple(settings)


@functools.cache
def definitions() -> tuple[Setting, ...]:
    """Every setting, in the order of settings.def."""
    return parse_definitions(header_path("tessera/protocol/settings.def").read_text("utf-8"))


def definition(identifier: str) -> Setting:
    """The setting of that identifier. Raises KeyError when there is none."""
    for setting in definitions():
        if setting.identifier == identifier:
            return setting
    raise KeyError(identifier)


@dataclass(frozen=True)
class Settings:
    """The values of all settings, by identifier, as they were in one environment."""

    values: Mapping[str, str]
    environment: Mapping[str, str]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """An empty variable counts as not set, as it does in C++."""
        source = dict(os.environ if environment is None else environment)
        values = {s.identifier: source.get(s.environment) or s.default for s in definitions()}
        return cls(values, source)

    def text(self, identifier: str) -> str:
        return self.values[identifier]

    def flag(self, identifier: str) -> bool:
        return self.values[identifier] in _TRUE

    def integer(self, identifier: str) -> int:
        """Raises SettingsError when the value is not a whole number."""
        value = self.values[identifier]
        try:
            return int(value)
        except ValueError:
            name = definition(identifier).environment
            raise SettingsError(f"{name} is {value!r}: a whole number is wanted") from None

    def runtime_folder(self) -> Path:
        """`runtime_dir` with its default applied; the folder need not exist."""
        value = self.values["runtime_dir"]
        if value:
            return Path(value)
        user_runtime = self.environment.get("XDG_RUNTIME_DIR")
        if user_runtime:
            return Path(user_runtime) / "tessera"
        return Path(f"/tmp/tessera-{os.getuid()}")

    def store_path(self) -> Path:
        """`store` with its default applied; the file need not exist."""
        value = self.values["store"]
        if value:
            return Path(value)
        data = self.environment.get("XDG_DATA_HOME")
        if data:
            return Path(data) / "tessera" / "store.db"
        home = self.environment.get("HOME")
        data_home = (Path(home) if home else Path.home()) / ".local" / "share"
        return data_home / "tessera" / "store.db"
