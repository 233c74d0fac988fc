"""Make docs/pictures/report.png: the report of a failed job in a browser. The job really runs, with two nodes of two ranks.

.venv/bin/python tools/picture.py    needs chromium
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "report.png"
SIZE = (1000, 1040)
PROGRAM = """
import os, time

rank = int(os.environ["RANK"])

def train(step):
    time.sleep(0.25)
    if rank == 2 and step == 30:
        raise ValueError("loss is nan")
    print(f"step {step}: loss {1 / step:.4f}", flush=True)

for step in range(1, 60):
    train(step)
time.sleep(60)
"""


def main() -> int:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.stderr.write("picture.py: expected chromium on PATH; install it\n")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        ranklaunch = [sys.executable, "-m", "ranklaunch"]
        job = ["simulate", "--nodes", "2", "--slots", "2", "--method", "spawn", "--log-dir", "logs", "--", "train.py"]
        subprocess.run([*ranklaunch, *job], cwd=folder, check=False, capture_output=True)
        subprocess.run([*ranklaunch, "report", "logs", "--format", "html", "--output", "report.html"], cwd=folder, check=True)
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}"]
        subprocess.run([browser, *options, f"--screenshot={PICTURE}", f"file://{folder}/report.html"], check=True, capture_output=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size >> 10} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
