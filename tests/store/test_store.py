# SPDX-License-Identifier: Apache-2.0
"""What the store keeps, and what it does with files that it cannot use."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database
from tessera.store import (
    CorruptStoreError,
    Dependency,
    ImageRecord,
    KernelRecord,
    NewerStoreError,
    ProgramRecord,
    RulesChangedError,
    Status,
    Store,
    StoreError,
    StoreUnavailableError,
    schema,
)
from tessera.store.connection import Connection

IMAGE = ImageRecord("a" * 32, 100, path="/tmp/kernel.cubin")
READY = ImageRecord(
    "a" * 32,
    100,
    kind="ptx",
    status=Status.READY,
    analysis_version=3,
    capabilities=(80, 89),
    analysis_ms=1.5,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """Root may write everywhere: become somebody else for the length of a test."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder.is_relative_to("/tmp/pytest-of-root"):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def ready(name: str, **values: object) -> KernelRecord:
    fields = {"status": Status.READY, "summary": {"name": name}, "blob": name.encode()}
    return KernelRecord(IMAGE.hash, name, **(fields | values))  # type: ignore[arg-type]


def test_ids_are_dense_and_stay(store: Store, path: Path) -> None:
    assert [store.claim(IMAGE, name).id for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    store.close()
    with Store(path) as again:
        assert [again.claim(IMAGE, name).id for name in ("c", "b", "d")] == [2, 1, 3]


def test_an_analysis_keeps_ids_and_brings_back_everything(store: Store) -> None:
    assert store.claim(IMAGE, "b").status == Status.PENDING
    record = ready("b", grade="ptx", properties=5, minimum_architecture=80, analysis_version=3)
    store.save_analysis(READY, [ready("a"), record])
    kernel = store.claim(IMAGE, "b")
    assert (kernel.id, kernel.blob, kernel.summary) == (0, b"b", {"name": "b"})
    assert (kernel.properties, kernel.grade, kernel.analysis_version) == (5, "ptx", 3)
    image = store.image(IMAGE.hash)
    assert image is not None
    assert (image.status, image.capabilities, image.kind) == (Status.READY, (80, 89), "ptx")
    assert [k.name for k in store.kernels()] == ["b", "a"]  # those with an id come first
    assert [k.name for k in store.kernels(launched_only=True)] == ["b"]


def test_a_new_analysis_replaces_the_old_one(store: Store) -> None:
    store.save_analysis(READY, [ready("a"), ready("gone")])
    first = store.image(IMAGE.hash)
    store.claim(IMAGE, "gone")
    store.save_analysis(READY, [ready("a", blob=b"new")])
    again = store.image(IMAGE.hash)
    gone = store.kernel(IMAGE.hash, "gone")
    kept = store.kernel(IMAGE.hash, "a")
    assert first is not None
    assert again is not None
    assert gone is not None
    assert kept is not None
    assert again.first_seen == first.first_seen
    assert (gone.id, gone.status, gone.blob) == (0, Status.FAILED, b"")
    assert kept.blob == b"new"


def test_a_failed_image_fails_its_kernels_with_its_reason(store: Store) -> None:
    store.claim(IMAGE, "a")
    store.save_analysis(ImageRecord(IMAGE.hash, 100, status=Status.FAILED, reason="no PTX"), [])
    kernel = store.claim(IMAGE, "a")
    assert (kernel.status, kernel.reason) == (Status.FAILED, "no PTX")


def test_ids_run_out_and_come_back_with_pruning(store: Store) -> None:
    images = [ImageRecord(f"{number:032x}", 1) for number in range(3)]
    assert [store.claim(image, "k", capacity=3).id for image in images] == [0, 1, 2]
    late = ImageRecord("f" * 32, 1)
    assert store.claim(late, "k", capacity=3).id is None
    store.touch_image(images[1].hash, now=1.0)
    store.touch_image(images[0].hash, now=2.0)
    assert store.prune(keep_bytes=0) == 2
    assert store.claim(late, "k", capacity=3).id == 0
    assert store.claim(late, "l", capacity=3).id == 1
    assert store.claim(late, "m", capacity=3).id is None
    assert store.prune(keep_bytes=0) == 0  # what was seen lately stays, however large the file


def test_rules_have_revisions(store: Store) -> None:
    assert store.rules().revision == 0
    assert store.save_rules("* -> 1\n", base_revision=0).revision == 1
    with pytest.raises(RulesChangedError, match="revision 1, not 0"):
        store.save_rules("* -> home\n", base_revision=0)
    assert store.rules().text == "* -> 1\n"
    for number in range(120):
        store.save_rules(f"# {number}\n")
    assert store.rules().text == "# 119\n"


def test_settings_history_and_dependencies(store: Store) -> None:
    assert store.setting("policy", "home") == "home"
    store.save_setting("policy", "manual")
    store.save_setting("policy", "home2")
    assert store.setting("policy") == "home2"
    for number in range(3):
        run = "r" if number else ""
        store.add_program(ProgramRecord(number, "p", 1.0, 2.0, run=run, counters={"calls": number}))
    assert [p.pid for p in store.programs()] == [2, 1, 0]
    assert [(p.pid, p.counters) for p in store.programs(run="r", limit=1)] == [(2, {"calls": 2})]
    store.add_dependencies([Dependency(0, 1, 10, 1), Dependency(0, 1, 5, 1)])
    assert store.dependencies() == [Dependency(0, 1, 15, 2)]


@pytest.mark.parametrize(
    "content", [b"no database at all, only text" * 99, b"SQLite format 3\0junk"]
)
def test_a_damaged_file_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    for fall_back in (False, True):
        with pytest.raises(CorruptStoreError, match=rf"mv {path} {path}\.damaged"):
            Store(path, fall_back=fall_back)
    assert path.read_bytes() == content


def test_a_damaged_page_is_found(path: Path) -> None:
    with Store(path) as store:
        for number in range(200):
            store.claim(IMAGE, f"kernel_{number}")
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\xa5" * (40960 - 8192)
    path.write_bytes(content)
    with pytest.raises(CorruptStoreError):
        Store(path, fall_back=True)


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(CorruptStoreError, match="another program"):
        Store(path, fall_back=True)


def test_a_newer_store_is_refused_with_both_versions(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 41")
    file.close()
    with pytest.raises(NewerStoreError, match=r"version 41.* up to 3"):
        Store(path, fall_back=True)


def test_migrations_run_once_and_in_order(path: Path) -> None:
    with Store(path) as store:
        store.save_setting("policy", "manual")

    def add_note(db: Database) -> None:
        db.table("settings").add_column("note", str)

    newer = [*schema.MIGRATIONS, add_note]
    for _ in range(2):
        connection = Connection(path, migrations=newer)
        rows = connection.read(lambda db: list(db.query("SELECT * FROM settings")))
        assert rows == [{"key": "policy", "value": "manual", "note": None}]
        connection.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    Store(path).close()

    def half(db: Database) -> None:
        db.table("settings").add_column("note", str)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        Connection(path, migrations=[*schema.MIGRATIONS, half])
    with sqlite3.connect(path) as file:
        columns = [row[1] for row in file.execute("PRAGMA table_info(settings)")]
        assert columns == ["key", "value"]
        assert file.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)
    file.close()


def test_a_read_only_file_is_read_and_goes_on_in_memory(path: Path, unprivileged: None) -> None:
    was = os.geteuid()
    os.seteuid(os.getuid())
    with Store(path) as store:
        store.save_rules("* -> 1\n")
        store.claim(IMAGE, "a")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    before = path.read_bytes()
    os.seteuid(was)
    with pytest.raises(StoreUnavailableError, match=r"read-only|cannot be opened"):
        Store(path)
    with Store(path, fall_back=True) as store:
        assert str(path) in str(store.memory_reason)
        assert store.rules().text == "* -> 1\n"
        assert [store.claim(IMAGE, name).id for name in ("a", "b")] == [0, 1]
    os.seteuid(os.getuid())
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_goes_on_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "store.db"
    with pytest.raises(StoreUnavailableError, match="folder cannot be made"):
        Store(path)
    with Store(path, fall_back=True) as store:
        assert store.claim(IMAGE, "a").id == 0
        assert "folder cannot be made" in str(store.memory_reason)


def fill(store: Store) -> None:
    store.save_analysis(READY, [ready(f"k{i}", blob=bytes(4096)) for i in range(400)])


def test_a_full_disk_goes_on_in_memory_with_what_was_there(path: Path) -> None:
    with Store(path, fall_back=True) as store:
        store.save_rules("* -> 1\n")
        store.claim(IMAGE, "first")
        store._connection.read(lambda db: db.execute("PRAGMA max_page_count = 60"))
        fill(store)
        assert "the disk is full" in str(store.memory_reason)
        assert store.rules().text == "* -> 1\n"
        first = store.claim(IMAGE, "first")
        assert first.id == 0
        assert len(store.kernels()) == 401
    with Store(path) as store:
        assert store.rules().text == "* -> 1\n"  # the file holds what it held before
        assert len(store.kernels()) == 1


def test_a_full_disk_is_an_error_without_falling_back(path: Path) -> None:
    with Store(path) as store:
        store._connection.read(lambda db: db.execute("PRAGMA max_page_count = 60"))
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            fill(store)
        assert store.memory_reason is None
        assert store.kernels() == []


def test_a_lock_that_is_never_released_does_not_hang(path: Path) -> None:
    Store(path).close()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailableError, match="locked"):
            Store(path, busy_timeout=0.1)
        with Store(path, fall_back=True, busy_timeout=0.1) as store:
            assert "locked" in str(store.memory_reason)
    finally:
        blocker.close()


def test_a_closed_store_says_so(path: Path) -> None:
    store = Store(path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.rules()


def test_threads_with_their_own_stores_claim_different_ids(path: Path) -> None:
    ids: list[int | None] = []
    lock = threading.Lock()

    def claim(worker: int) -> None:
        with Store(path) as store:
            mine = [store.claim(IMAGE, f"k{worker}_{number}").id for number in range(25)]
        with lock:
            ids.extend(mine)

    threads = [threading.Thread(target=claim, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(i for i in ids if i is not None) == list(range(200))


def test_a_killed_writer_leaves_a_whole_store(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tessera.store import *\n"
        "store = Store(Path(sys.argv[1])); image = ImageRecord('b' * 32, 1)\n"
        "for number in range(10**6):\n"
        "    store.claim(image, f'k{number}'); print(number, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) >= 40:
            break
    writer.kill()
    writer.wait()
    writer.stdout.close()
    with Store(path) as store:
        assert len(store.kernels(launched_only=True)) >= 41
