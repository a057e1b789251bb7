"""The conformance kit against the simulated driver: ``python backends/cuda/tests/conform_simulated.py [--areas ...]``.

Kernels are compiled by g++ with checks of alignment and bounds: loads of several elements at once must lie where
devices ask for it, which processors do not. About 40 minutes of a processor for all areas.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "simulatedcuda"
HERE = Path(__file__).parent

CARD = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from simulated import Simulated
from simulated_cublaslt import CublasLt
from simulated_cudnn import SimulatedCudnn
from simulated_nccl import SimulatedNccl
from tesserack_cuda import set_up
from tesserack_cuda.backend import CUDA

driver = Simulated(devices=2, memory=1 << 30)
driver.libraries["cublasLt"] = CublasLt(driver)
driver.libraries["nccl"] = SimulatedNccl(driver)
driver.libraries["cudnn"] = SimulatedCudnn(driver)
backend = CUDA({NAME!r}, driver.load)
set_up(backend)
"""
KNOWN = "*test_elapsed_time_is_the_devices* # the simulated driver works when somebody waits, not between events\n"


def main(arguments: list[str]) -> int:
    """Run the kit with the arguments of ``tesserack conform``; 1 where a check of a kernel fails, too."""
    with tempfile.TemporaryDirectory(prefix="simulated-cuda-") as folder:
        described = Path(folder, "simulated_card-0.dist-info")
        described.mkdir()
        Path(folder, "simulated_card.py").write_text(CARD)
        Path(folder, "known.txt").write_text(KNOWN)
        described.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: simulated-card\nVersion: 0\n")
        described.joinpath("entry_points.txt").write_text(f"[tesserack.backends]\n{NAME} = simulated_card:backend\n")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH")))),
            "SIMULATED_CHECKS": "alignment,bounds",
            "TESSERACK_KERNEL_CACHE": f"{folder}/kernels",  # without those compiled unchecked
            "UBSAN_OPTIONS": f"log_path={folder}/check",
        }
        command = [sys.executable, "-m", "tesserack.testing.conform", NAME, "--timeout", "1800"]
        done = subprocess.run([*command, "--expected-failures", f"{folder}/known.txt", *arguments], env=environment)
        reports = [path.read_text() for path in sorted(Path(folder).glob("check.*"))]
        print(*reports, sep="\n", end="" if reports else "no check of a kernel failed\n")
        return done.returncode or int(bool(reports))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
