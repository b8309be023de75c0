"""A Java that Spark runs on, wherever the machine has it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

FITTING = (17, 21)
MISSING = "Spark needs Java 17: apt-get install openjdk-17-jre-headless"


def version(home):
    """Return the major version of the Java in a folder, or None."""
    try:
        said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60).stderr
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
