"""A Java that Spark runs on, wherever the machine has it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FITTING = (17, 21)
MISSING = "Spark needs Java 17: apt-get install openjdk-17-jre-headless"


def version(home):
    """Return the major version of the Java in a folder, or None."""
    try:
        said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=600).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)', said)
    return found and int(found[1])


def home():
    """Return the folder of a Java that fits, or None."""
    onpath = shutil.which("java")
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += [Path(onpath).resolve().parents[1]] if onpath else []
    homes += sorted(Path("/usr/lib/jvm").glob("*17*"))
    return next((str(folder) for folder in homes if version(folder) in FITTING), None)


def home_or_skip():
    """Return the folder of a Java that fits; without one a test is skipped, with the command that brings it."""
    found = home()
    if found is None:
        pytest.skip(MISSING)
    return found


def options(folder):
    """Return what a small session is made with, which writes an event log in a folder."""
    return {
        # Java compiles what runs once for as long as all else takes.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.python.daemon.module": "warm_daemon",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.local.dir": f"{folder}/local",
    }
