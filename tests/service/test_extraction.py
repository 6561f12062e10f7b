# SPDX-License-Identifier: Apache-2.0
"""Which PTX describes what a driver would run: texts, fatbins, and files beside cubins."""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from fake_program import ptx
from tessera.sass.elf import read_cubin
from tessera.service.extraction import NotDescribedError, extract


def cubin(
    kernels: Mapping[str, int], architecture: int = 80, functions: tuple[str, ...] = ()
) -> bytes:
    """A CUDA ELF file with the sections that tell its kernels: name to bytes of parameters."""
    contents: list[tuple[str, bytes]] = [("", b"")]
    for name, size in kernels.items():
        contents.append((f".text.{name}", bytes(16)))
        info = struct.pack("<BBH", 4, 0x2F, 8) + bytes(8) + struct.pack("<BBH", 3, 0x50, 0)
        if size:
            info += struct.pack("<BBHIHH", 4, 0x0A, 8, 0, 0x160, size)
        contents.append((f".nv.info.{name}", info))
    contents += [(f".text.{name}", bytes(16)) for name in functions]
    contents.append((".shstrtab", b""))
    names = b"".join(name.encode() + b"\0" for name, _ in contents)
    contents[-1] = (".shstrtab", names)
    body, headers, at, offset = b"", b"", 0, 64
    for name, data in contents:
        headers += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, offset, len(data), 0, 0, 1, 0)
        body += data
        at += len(name) + 1
        offset += len(data)
    identity = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    flags, count = architecture | architecture << 16, len(contents)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(identity, 2, 190, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, count, count - 1),
    )
    return header + body + headers


def fatbin(*entries: tuple[str, int, bytes]) -> bytes:
    """A container of uncompressed entries: kind, architecture, payload."""
    body = b""
    for kind, architecture, payload in entries:
        padded = payload + bytes(-len(payload) % 8)
        header = bytearray(64)
        struct.pack_into("<HHIQ", header, 0, 1 if kind == "ptx" else 2, 0x101, 64, len(padded))
        struct.pack_into("<I", header, 28, architecture)
        body += bytes(header) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def text(architecture: int, *names: str) -> bytes:
    return ptx(*names).replace(b"sm_80", f"sm_{architecture}".encode())


def reason(data: bytes, path: str = "", capabilities: tuple[int, ...] = ()) -> str:
    with pytest.raises(NotDescribedError) as error:
        extract(data, path, capabilities)
    return str(error.value)


def test_text_describes_itself() -> None:
    found = extract(ptx("a") + b"\0\0")
    assert (found.kind, len(found.texts)) == ("ptx", 1)
    assert found.texts[0].text == ptx("a")
    assert found.texts[0].architecture == 80


def test_a_cubin_is_read() -> None:
    found = read_cubin(cubin({"k": 24, "none": 0}, functions=("helper",)))
    assert found.functions == {"k", "none", "helper"}
    assert found.parameter_sizes == {"k": 24}


@pytest.mark.parametrize("cut", range(0, 700, 37))
def test_a_cubin_cut_short_is_an_error(cut: int) -> None:
    whole = cubin({"k": 24})
    with pytest.raises(ValueError, match="cubin"):
        read_cubin(whole[: min(cut, len(whole) - 1)])


def test_a_fatbin_of_a_cubin_and_its_text() -> None:
    image = fatbin(("elf", 80, cubin({"k": 8})), ("ptx", 80, text(80, "k")))
    for capabilities in ((80,), (86,), (90,), (80, 90), ()):
        found = extract(image, capabilities=capabilities)
        assert [t.architecture for t in found.texts] == [80]
        assert found.kind == "fatbin"


def test_machine_code_without_its_text_is_not_described() -> None:
    image = fatbin(("elf", 90, cubin({"k": 8}, 90)), ("ptx", 80, text(80, "k")))
    assert "sm_90 has no PTX of its own" in reason(image, capabilities=(80, 90))
    assert "sm_90 has no PTX of its own" in reason(image)
    assert [t.architecture for t in extract(image, capabilities=(80, 89)).texts] == [80]
    assert reason(fatbin(("elf", 80, cubin({"k": 8})))) == "no PTX in this image: 1 cubin"


def test_each_device_gets_the_newest_text_that_it_can_run() -> None:
    image = fatbin(
        ("ptx", 70, text(70, "k")), ("ptx", 80, text(80, "k")), ("ptx", 90, text(90, "k"))
    )

    def architectures(*capabilities: int) -> list[int]:
        return [t.architecture for t in extract(image, capabilities=capabilities).texts]

    assert architectures(89) == [80]
    assert architectures(89, 90) == [80, 90]
    assert architectures(75, 120) == [70, 90]
    assert architectures() == [70, 80, 90]
    assert "nothing in this image runs on sm_60" in reason(image, capabilities=(60,))


def test_a_text_that_does_not_fit_its_cubin_is_refused() -> None:
    other_size = fatbin(("elf", 80, cubin({"k": 16})), ("ptx", 80, text(80, "k")))
    assert "8 bytes of parameters in the PTX, 16 in the cubin" in reason(
        other_size, capabilities=(80,)
    )
    missing = fatbin(("elf", 80, cubin({"k": 8, "l": 8})), ("ptx", 80, text(80, "k")))
    assert "lacks kernel l" in reason(missing, capabilities=(80,))
    more = fatbin(("elf", 80, cubin({"k": 8})), ("ptx", 80, text(80, "k", "m")))
    assert "lacks kernel m" in reason(more, capabilities=(80,))


def test_a_damaged_fatbin_is_an_error() -> None:
    image = bytearray(fatbin(("ptx", 80, text(80, "k"))))
    struct.pack_into("<Q", image, 16 + 8, 1 << 40)  # the entry's size
    assert "cannot be read" in reason(bytes(image)) or "no PTX" in reason(bytes(image))


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A cubin with its text beside it."""
    path = tmp_path / "kernel.cubin"
    path.write_bytes(cubin({"k": 8}))
    path.with_suffix(".ptx").write_bytes(text(80, "k"))
    return path


def test_the_text_beside_a_cubin(pair: Path) -> None:
    found = extract(pair.read_bytes(), str(pair))
    assert (found.kind, found.texts[0].text) == ("cubin", text(80, "k"))


def test_a_cubin_from_memory_has_nothing_beside_it(pair: Path) -> None:
    assert reason(pair.read_bytes()) == "no PTX in this image: 1 cubin"
    renamed = pair.rename(pair.with_suffix(".bin"))
    assert reason(renamed.read_bytes(), str(renamed)) == "no PTX in this image: 1 cubin"


def test_an_old_text_beside_a_new_cubin_is_not_its_text(pair: Path) -> None:
    old = pair.stat().st_mtime - 60
    os.utime(pair.with_suffix(".ptx"), (old, old))
    assert "not written together" in reason(pair.read_bytes(), str(pair))
    group = pair.with_name("__grp__kernel.json")
    group.write_text(json.dumps({"child_paths": {"kernel.cubin": "/x", "kernel.ptx": "/y"}}))
    assert extract(pair.read_bytes(), str(pair)).texts[0].architecture == 80
    group.write_text("{broken")
    assert "not written together" in reason(pair.read_bytes(), str(pair))


def test_a_cubin_that_changed_since_it_was_loaded(pair: Path) -> None:
    assert "has changed since" in reason(cubin({"k": 8}, 90), str(pair))
    pair.with_suffix(".ptx").unlink()
    assert "kernel.ptx: No such file" in reason(pair.read_bytes(), str(pair))
    pair.unlink()
    assert "No such file" in reason(cubin({"k": 8}), str(pair))


def test_a_text_beside_a_cubin_that_does_not_fit(pair: Path) -> None:
    pair.with_suffix(".ptx").write_bytes(text(80, "other"))
    assert "lacks kernel k" in reason(pair.read_bytes(), str(pair))
    pair.with_suffix(".ptx").write_bytes(b"no PTX")
    assert "lacks kernel k" in reason(pair.read_bytes(), str(pair))
