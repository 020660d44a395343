"""docs/commands.md: each `$` line of a console block is run by a shell, and prints what stands below it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_sessions_of_the_document_print_what_it_says(tmp_path):
    pytest.importorskip("pyarrow")
    command = tmp_path / "bin" / "logcore"
    command.parent.mkdir()
    # What the sanitize build preloads is for logcore, and not for the tools beside it.
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONIOENCODING": "utf-8"}
    preload = environment.pop("LD_PRELOAD", "")
    command.write_text(f'#!/bin/sh\nLD_PRELOAD="{preload}" exec {sys.executable} -m logcore "$@"\n')
    command.chmod(0o755)
    where = tmp_path / "here"
    where.mkdir()
    ran = 0
    for block in re.findall(r"^```console\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, wanted = part.partition("\n")
            done = subprocess.run(
                line,
                shell=True,
                cwd=where,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
            )
            assert (line, done.stdout.decode()) == (line, wanted)
            ran += 1
    assert ran > 12
