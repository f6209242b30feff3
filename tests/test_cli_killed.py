"""A fit that is killed, by SIGKILL, resumes with the same command and gives the same weights."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import write_table

SCRIPT = Path(__file__).parent / "killed_fits.py"


@pytest.mark.slow
def test_a_fit_that_was_killed_goes_on_and_gives_the_same_weights(tmp_path):
    """One test, since the fits take a while, and several would make them again in every worker."""
    write_table(tmp_path / "data.csv")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 7
    for moment, after in found.items():
        assert after["ended_by"] == signal.SIGKILL, moment
        assert not after["appeared"], moment  # a run is there when it is whole
        assert after["same"], moment
        assert after["strays"] == [], moment  # nothing half written stays behind
        assert not after["beside"], moment

    # What had been learned was not learned again.
    for moment in ("the record", "the folder of the fit is there"):
        assert not found[f"Dictionary before {moment}"]["resumed"]
    assert found["Dictionary before the run is moved into place"]["resumed"]
    for name, learned in (("Forget", "fit.safetensors"), ("Dictionary", "fit-restart-0.safetensors")):
        after = found[f"{name} in the middle of the second checkpoint"]
        assert after["resumed"]
        assert learned in after["left"]
    parts = found["Dictionary in the middle of the fourth checkpoint"]["left"]
    assert len(parts) == 2  # the first part is done, the second under way
