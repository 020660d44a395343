"""What a result depends on besides the code: processor, system, Python, and the versions of what did the work."""

import os
import platform
import sys
from importlib import metadata

import logcore

_PACKAGES = ("aiokafka", "kafka-python", "numpy", "cramjam", "lz4", "zstandard", "pyarrow", "lmdb", "rocksdict")


def machine_facts(core: int | None) -> dict[str, object]:
    """Facts for the head of a report; `core` is the one that the process is held on, None for any."""
    return {
        "logcore": logcore.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "pinned_to_core": core,
        "load_average": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    if sys.platform == "linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name.strip() == "model name":
                        return value.strip()
        except OSError:
            pass
    return platform.processor() or platform.machine()
