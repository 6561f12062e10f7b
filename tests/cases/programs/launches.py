# SPDX-License-Identifier: Apache-2.0
"""Launches: every entry, every way to pass parameters, handles of each kind, graphs."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from support import (
    INVALID_VALUE,
    KERNELS,
    NON_BLOCKING,
    alloc,
    call,
    expect,
    kernels,
    launch,
    main,
    ok,
    out,
    pack,
    same,
    start,
    words,
)

HEAD = b".version 8.1\n.target sm_75\n.address_size 64\n"
DISABLE_TIMING = 2
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # capture modes


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint32),
    ]


class Kernel(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("sizes", ctypes.c_uint32 * 7),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]

    @classmethod
    def of(cls, function: int, pointers: Any) -> Kernel:
        """One block of 256 threads; `pointers` has to live as long."""
        return cls(
            function, (ctypes.c_uint32 * 7)(1, 1, 1, 256, 1, 1, 0), ctypes.addressof(pointers)
        )


def launch_ex(function: int, attributes: list[Attribute], *values: Any, grid: int = 4) -> int:
    table = (Attribute * max(len(attributes), 1))(*attributes)
    config = Config(
        (ctypes.c_uint32 * 3)(grid, 1, 1), (ctypes.c_uint32 * 3)(64, 1, 1), 0, None, table
    )
    config.count = len(attributes)
    pointers, _held = pack(values)
    return call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)


def many_parameters(count: int, kind: str = "u32") -> bytes:
    """A kernel that adds up all of its parameters behind the first."""
    width = 8 if kind == "u64" else 4
    lines = [HEAD, b".visible .entry total(.param .u64 x"]
    lines += [b", .param .%s p%d" % (kind.encode(), i) for i in range(count)]
    lines.append(
        b") {\n.reg .b64 %rd<4>; .reg .b32 %r<4>;\n"
        b"ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd1, %rd1;\n"
    )
    lines.append(b"mov.u64 %rd2, 0;\n")
    for i in range(count):
        if width == 8:
            lines.append(b"ld.param.u64 %%rd3, [p%d]; add.u64 %%rd2, %%rd2, %%rd3;\n" % i)
        else:
            lines.append(
                b"ld.param.u32 %%r1, [p%d]; cvt.u64.u32 %%rd3, %%r1; add.u64 %%rd2, %%rd2, %%rd3;\n"
                % i
            )
    lines.append(b"st.global.u64 [%rd1], %rd2;\nret;\n}\n")
    return b"".join(lines)


BIG_STRUCT = (
    HEAD
    + b"""
.visible .entry pick(.param .u64 x, .param .align 8 .b8 s[%d], .param .u32 at) {
  .reg .b64 %%rd<6>; .reg .b32 %%r<4>;
  ld.param.u64 %%rd1, [x]; cvta.to.global.u64 %%rd1, %%rd1;
  mov.b64 %%rd2, s; ld.param.u32 %%r1, [at];
  cvt.u64.u32 %%rd3, %%r1; add.u64 %%rd4, %%rd2, %%rd3;
  ld.param.u32 %%r2, [%%rd4];
  st.global.u32 [%%rd1], %%r2;
  ret;
}
"""
)


def case_many_parameters() -> None:
    """Kind 3.2: 100 and 500 parameters, and 500 of 8 bytes (4,008 bytes)."""
    start()
    x = alloc(8)
    for count, kind in ((64, "u32"), (65, "u32"), (100, "u32"), (500, "u32"), (500, "u64")):
        total = kernels(many_parameters(count, kind))("total")
        for round_ in range(3):
            values = [i * 7 + round_ for i in range(count)]
            held = [ctypes.c_uint64(v) if kind == "u64" else ctypes.c_uint32(v) for v in values]
            launch(total, x, *held, threads=1)
            low, high = words(x, 2)
            same(low | high << 32, sum(values), f"{count} {kind}")


def case_extra() -> None:
    """Parameters in one buffer: right, short, and beside kernelParams."""
    start()
    take = kernels()
    x = alloc(1024)
    buffer = (ctypes.c_uint32 * 4)(x & 0xFFFFFFFF, x >> 32, 256, 77)
    size = ctypes.c_size_t(16)

    def extra(length: ctypes.c_size_t) -> Any:
        return (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(length), 0)

    for value in (77, 78, 79, 80):
        buffer[3] = value
        ok("cuLaunchKernel", take("fill"), 1, 1, 1, 256, 1, 1, 0, 0, 0, extra(size))
        same(set(words(x, 256)), {value})
    pointers, _held = pack((x, 256, 5))
    print(call("cuLaunchKernel", take("fill"), 1, 1, 1, 256, 1, 1, 0, 0, pointers, extra(size)))
    for wrong in (0, 4, 24, 1 << 62):
        length = ctypes.c_size_t(wrong)
        print(call("cuLaunchKernel", take("fill"), 1, 1, 1, 256, 1, 1, 0, 0, 0, extra(length)))
    print(call("cuLaunchKernel", take("fill"), 1, 1, 1, 256, 1, 1, 0, 0, 0, 0))
    same(set(words(x, 256)), {80})


def case_bad_launches() -> None:
    """What the driver refuses is refused, with the same code, whatever the placement."""
    start()
    take = kernels()
    x = alloc(1024)
    pointers, _held = pack((x, 256, 5))
    for grid, block, shared in (
        ((0, 1, 1), (1, 1, 1), 0),
        ((1, 1, 1), (0, 1, 1), 0),
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 65536, 1), (1, 1, 1), 0),
        ((1, 1, 65536), (1, 1, 1), 0),
        ((1, 1, 1), (32, 32, 2), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((1, 1, 1), (32, 1, 1), 49153),
        ((1, 1, 1), (32, 1, 1), 1 << 20),
    ):
        print(
            grid,
            block,
            shared,
            call("cuLaunchKernel", take("fill"), *grid, *block, shared, 0, pointers, 0),
        )
    print(call("cuLaunchKernel", 0, 1, 1, 1, 1, 1, 1, 0, 0, pointers, 0))
    ok("cuCtxSynchronize")


def halves(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


def case_attributes() -> None:
    """Kinds 3.1, 3.3: each attribute of cuLaunchKernelEx is done, or refused as natively."""
    start()
    fill = kernels()("fill")
    x = alloc(1024)

    def attribute(identity: int, *values: int) -> Attribute:
        return Attribute(identity, 0, (ctypes.c_uint32 * 16)(*values))

    event = out("cuEventCreate", DISABLE_TIMING)
    sets = {
        "none": [],
        "ignore": [attribute(0)],
        "priority": [attribute(8, 0xFFFFFFFF)],
        "not cooperative": [attribute(2, 0)],
        "cooperative": [attribute(2, 1)],
        "cluster 1": [attribute(4, 1, 1, 1)],
        "cluster 2": [attribute(4, 2, 1, 1)],
        "cluster 3": [attribute(4, 3, 1, 1)],
        "cluster policy": [attribute(5, 1)],
        "serialization": [attribute(6, 1)],
        "window": [attribute(1)],
        "synchronization": [attribute(3, 1)],
        "programmatic event": [attribute(7, *halves(event), 0, 0)],
        "domain map": [attribute(9, 0x0100)],
        "remote domain": [attribute(10, 1)],
        "preferred cluster": [attribute(4, 1, 1, 1), attribute(11, 1, 1, 1)],
        "completion event": [attribute(12, *halves(event), 0)],
        "carveout": [attribute(14, 50)],
        "unknown": [attribute(250, 1)],
    }
    for value, (name, attributes) in enumerate(sets.items(), 1):
        result = launch_ex(fill, attributes, x, 256, value)
        ok("cuCtxSynchronize")
        print(name, result, sorted(set(words(x, 256))))


def case_cooperative() -> None:
    start()
    take = kernels()
    x = alloc(1024)
    for value in range(1, 4):
        pointers, _held = pack((x, 256, value))
        ok("cuLaunchCooperativeKernel", take("fill"), 1, 1, 1, 256, 1, 1, 0, 0, pointers)
        same(set(words(x, 256)), {value})


def case_handles() -> None:
    """Kind 3.10: CUkernel and CUfunction of modules and libraries, one for the other."""
    start()
    x, y = alloc(1024), alloc(1024)
    library = ctypes.c_uint64()
    ok("cuLibraryLoadData", ctypes.byref(library), KERNELS, None, None, 0, None, None, 0)
    kernel = out("cuLibraryGetKernel", library.value, b"fill")
    function = out("cuKernelGetFunction", kernel)
    module = out("cuLibraryGetModule", library.value)
    by_module = out("cuModuleGetFunction", module, b"add")
    for value in range(1, 5):
        launch(kernel, x, 256, value)
        launch(function, y, 256, 10 * value)
        launch(by_module, x, y, 256)
        same(set(words(x, 256)), {11 * value})
    second = out("cuModuleLoadData", KERNELS)
    other = out("cuModuleGetFunction", second, b"add")
    launch(other, x, y, 256)
    same(set(words(x, 256)), {84})
    expect(500, "cuModuleGetFunction", ctypes.byref(ctypes.c_uint64()), second, b"nothing")
    ok("cuModuleUnload", second)
    ok("cuLibraryUnload", library.value)
    again = kernels()
    launch(again("fill"), x, 256, 3)
    same(set(words(x, 256)), {3})


def case_reload_with_other_code() -> None:
    """A module unloaded, and another with the same names: nothing of the first is remembered."""
    start()
    x = alloc(1024)
    for value in range(1, 9):
        text = KERNELS.replace(
            b"st.global.u32 [%rd3], %r2;",
            b"add.u32 %%r2, %%r2, %d; st.global.u32 [%%rd3], %%r2;" % value,
        )
        module = out("cuModuleLoadData", text)
        for _ in range(2):
            launch(out("cuModuleGetFunction", module, b"fill"), x, 256, 100)
            same(set(words(x, 256)), {100 + value})
        ok("cuModuleUnload", module)


def end_capture(stream: int) -> int:
    graph = ctypes.c_uint64()
    ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph.value


def capture(mode: int) -> None:
    take = kernels()
    stream = out("cuStreamCreate", NON_BLOCKING)
    x, y = alloc(1024), alloc(1024)
    fill, add = take("fill"), take("add")
    for value in range(3):
        launch(fill, x, 256, 1000 * value)  # may be elsewhere when the capture begins
        launch(fill, y, 256, 5)
    ok("cuCtxSynchronize")
    ok("cuStreamBeginCapture_v2", stream, mode)
    launch(fill, x, 256, 1, stream=stream)
    launch(add, x, y, 256, stream=stream)
    ok("cuMemcpyDtoDAsync_v2", y, x, 512, stream)
    graph = end_capture(stream)
    same(set(words(x, 256)), {2000}, "nothing ran")
    instance = out("cuGraphInstantiateWithFlags", graph, 0)
    for value in (5, 7, 9):
        launch(fill, y, 256, value, stream=stream)
        ok("cuGraphLaunch", instance, stream)
        launch(add, y, x, 256, stream=stream)
        ok("cuStreamSynchronize", stream)
        same(
            (words(x, 2), words(y, 1), words(y + 1020, 1)),
            ([1 + value] * 2, [2 + 2 * value], [1 + 2 * value]),
        )
    other = out("cuStreamCreate", 0)
    for _ in range(3):
        ok("cuGraphLaunch", instance, other)
        ok("cuGraphLaunch", instance, stream)
    ok("cuCtxSynchronize")
    print(words(x, 1), words(y, 1))


def case_capture_global() -> None:
    """Kinds 3.7, 3.8: no call of the shim's own spoils a capture."""
    start()
    capture(GLOBAL)


def case_capture_thread_local() -> None:
    start()
    capture(THREAD_LOCAL)


def case_capture_relaxed() -> None:
    start()
    capture(RELAXED)


def case_capture_beside_work() -> None:
    """While one stream is captured other threads launch, allocate and free in other streams."""
    context = start()
    take = kernels()
    fill, add = take("fill"), take("add")
    captured = out("cuStreamCreate", NON_BLOCKING)
    x = alloc(1024)
    blocks = [alloc(4096) for _ in range(4)]
    ok("cuStreamBeginCapture_v2", captured, THREAD_LOCAL)

    def work() -> None:
        ok("cuCtxSetCurrent", context)
        stream = out("cuStreamCreate", NON_BLOCKING)
        mine, more = alloc(1024), alloc(1024)
        for value in range(20):
            ordered = out("cuMemAllocAsync", 1024, stream)
            launch(fill, mine, 256, value, stream=stream)
            launch(fill, ordered, 256, 1, stream=stream)
            launch(add, mine, ordered, 256, stream=stream)
            ok("cuMemFreeAsync", ordered, stream)
            host = (ctypes.c_uint32 * 256)()
            ok("cuMemcpyDtoHAsync_v2", host, mine, 1024, stream)
            ok("cuStreamSynchronize", stream)
            same(set(host), {value + 1})
        ok("cuMemFree_v2", more)
        for block in blocks:
            ok("cuMemFree_v2", block)

    thread = threading.Thread(target=work)
    for value in range(10):
        launch(fill, x, 256, value, stream=captured)
        if value == 3:
            thread.start()
    thread.join()
    graph = end_capture(captured)
    nodes = ctypes.c_size_t()
    ok("cuGraphGetNodes", graph, None, ctypes.byref(nodes))
    same(nodes.value, 10)
    ok("cuGraphLaunch", out("cuGraphInstantiateWithFlags", graph, 0), captured)
    ok("cuStreamSynchronize", captured)
    same(set(words(x, 256)), {9})


def case_capture_abandoned() -> None:
    """A capture that never ends well leaves allocation, freeing and launching as they were."""
    start()
    take = kernels()
    x = alloc(1024)
    for _ in range(3):
        stream = out("cuStreamCreate", NON_BLOCKING)
        ok("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)
        launch(take("fill"), x, 256, 1, stream=stream)
        print(call("cuStreamDestroy_v2", stream))
    for i in range(300):  # would be out of memory if frees waited for a capture
        ok("cuMemFree_v2", alloc(64 << 20))
        launch(take("fill"), x, 256, i)
    same(set(words(x, 256)), {299})


def case_graph_by_hand() -> None:
    """Kernel, memory and child nodes; new parameters; an update of the instance."""
    start()
    take = kernels()
    x, y = alloc(1024), alloc(1024)

    held: list[Any] = []

    def node(name: str, *values: Any) -> Kernel:
        pointers, kept = pack(values)
        held.extend([pointers, kept])
        return Kernel.of(take(name), pointers)

    inner, outer = out("cuGraphCreate", 0), out("cuGraphCreate", 0)
    first = ctypes.c_uint64()
    ok(
        "cuGraphAddKernelNode_v2",
        ctypes.byref(first),
        inner,
        None,
        0,
        ctypes.byref(node("fill", x, 256, 4)),
    )
    child, last = ctypes.c_uint64(), ctypes.c_uint64()
    ok("cuGraphAddChildGraphNode", ctypes.byref(child), outer, None, 0, inner)
    ok(
        "cuGraphAddKernelNode_v2",
        ctypes.byref(last),
        outer,
        ctypes.byref(child),
        1,
        ctypes.byref(node("add", y, x, 256)),
    )
    instance = out("cuGraphInstantiateWithFlags", outer, 0)
    total = 0
    for _ in range(3):
        launch(take("fill"), y, 256, total)
        ok("cuGraphLaunch", instance, 0)
        total += 4
        same(set(words(y, 256)), {total})
    ok(
        "cuGraphExecKernelNodeSetParams_v2",
        instance,
        last.value,
        ctypes.byref(node("add", x, y, 256)),
    )
    ok("cuGraphLaunch", instance, 0)
    same(set(words(x, 256)), {4 + total})


def case_graph_node_from_threads() -> None:
    """Kind 3.6: parameters of one node read and set from two threads."""
    start()
    take = kernels()
    x = alloc(1024)
    stream = out("cuStreamCreate", NON_BLOCKING)
    ok("cuStreamBeginCapture_v2", stream, RELAXED)
    launch(take("fill"), x, 256, 4, stream=stream)
    graph = end_capture(stream)
    count = ctypes.c_size_t(1)
    node = ctypes.c_uint64()
    ok("cuGraphGetNodes", graph, ctypes.byref(node), ctypes.byref(count))

    def read_and_set() -> None:
        mine = Kernel.of(take("fill"), pointers)
        read = (
            ctypes.c_ubyte * 256
        )()  # what it points to is the driver's, and may be the other thread's next
        for _ in range(300):
            ok("cuGraphKernelNodeGetParams_v2", node.value, read)
            ok("cuGraphKernelNodeSetParams_v2", node.value, ctypes.byref(mine))

    pointers, _held = pack((x, 256, 4))
    threads = [threading.Thread(target=read_and_set) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ok("cuGraphLaunch", out("cuGraphInstantiateWithFlags", graph, 0), stream)
    ok("cuStreamSynchronize", stream)
    same(set(words(x, 256)), {4})


def case_big_parameters() -> None:
    """Structs of 320 bytes, of nearly 4 KiB, and of 32 KiB where the driver takes that."""
    start()
    x = alloc(4)
    for size in (320, 4000, 32000):
        module = ctypes.c_uint64()
        loaded = call("cuModuleLoadData", ctypes.byref(module), BIG_STRUCT % size)
        print(size, loaded)
        if loaded != 0:
            continue
        pick = out("cuModuleGetFunction", module.value, b"pick")
        content = (ctypes.c_uint32 * (size // 4))(*range(size // 4))
        for at in (0, size // 8, size // 4 - 1):
            launch(pick, x, content, at * 4, threads=1)
            same(words(x, 1), [at])


PRINTING = (
    HEAD
    + b"""
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[8] = {118, 37, 100, 32, 37, 100, 10, 0};
.visible .entry say(.param .u64 x, .param .u32 value) {
  .local .align 8 .b8 stack[8];
  .reg .b64 %rd<6>; .reg .b32 %r<6>;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  st.global.u32 [%rd1], %r1;
  mov.u64 %rd2, stack; cvta.local.u64 %rd3, %rd2;
  st.local.u32 [stack], %r1; mov.u32 %r2, %tid.x; st.local.u32 [stack+4], %r2;
  mov.u64 %rd4, text; cvta.global.u64 %rd5, %rd4;
  { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %rd5; st.param.b64 [b], %rd3;
    call.uni (r), vprintf, (a, b); ld.param.b32 %r3, [r]; }
  ret;
}
"""
)


def case_device_printf() -> None:
    """Kind 3.11: what kernels print comes out here, in order, and nothing else with it."""
    start()
    say = kernels(PRINTING)("say")
    fill = kernels()("fill")
    x = alloc(1024)
    for value in range(5):
        launch(fill, x, 256, value)
        launch(say, x, value, threads=1)
        ok("cuCtxSynchronize")
        print("host", value, words(x, 1), flush=True)


def case_null_and_wrong() -> None:
    start()
    expect(INVALID_VALUE, "cuModuleGetFunction", None, 0, b"x")
    print(call("cuGraphLaunch", 0, 0))
    print(call("cuLaunchKernelEx", None, 0, None, None))


if __name__ == "__main__":
    main(globals())
