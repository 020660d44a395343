"""The disks of the tests are disks: mypy checks them here, with all that they are made of, against the seam."""

from logcore.log.disk import Disk, DiskFile, DiskLock, DiskMapping, SystemDisk
from tests.disk.crash import CrashDisk
from tests.disk.faulty import FaultyDisk
from tests.disk.memory import MemoryDisk

disks: list[Disk] = [SystemDisk(), MemoryDisk(), CrashDisk(), FaultyDisk(SystemDisk()), FaultyDisk(CrashDisk())]


def opened(memory: MemoryDisk, faulty: FaultyDisk) -> tuple[list[DiskFile], list[DiskMapping], list[DiskLock]]:
    """What each hands out."""
    return (
        [memory.open("a"), faulty.open("a")],
        [memory.map("a", 8), faulty.map("a", 8)],
        [memory.lock("a"), faulty.lock("a")],
    )
