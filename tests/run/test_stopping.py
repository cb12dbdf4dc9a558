"""A process that was asked to stop exits at its deadline."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from connectors import open_sink, open_source
from streamsvm import CPMClassifier
from tests.commands import completed
from tests.run.conftest import runner_of

PROGRAM = """
import time
from streamsvm.cli.run import end_within, forgetting_deadlines
if {cancelled}:
    with forgetting_deadlines():
        end_within(0.2, 15, lambda: "model")
else:
    end_within(0.2, 15, lambda: {waits_for!r})
time.sleep(0.6 if {cancelled} else 60)
"""


@pytest.mark.parametrize(
    ("waits_for", "cancelled", "code", "said"),
    [("brokers", False, 75, "brokers"), ("model", False, 143, "model"), ("", False, 143, ""), ("", True, 0, "")],
)
def test_the_exit_code_depends_on_what_the_run_waits_for(tmp_path, waits_for, cancelled, code, said):
    program = PROGRAM.format(waits_for=waits_for, cancelled=cancelled)
    done = completed("--version", cwd=tmp_path, prepare=functools.partial(exec, program, {}))
    assert done.returncode == code
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


def test_a_process_ends_although_nobody_reads_its_messages():
    blocked = "import sys, time\nsys.stderr.write('x' * (1 << 20))\n"
    program = PROGRAM.format(waits_for="brokers", cancelled=False).replace("time.sleep(", f"{blocked}time.sleep(")
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        assert process.wait(120) == 75


def test_a_process_ends_while_it_waits_for_threads_at_exit():
    waiting = "import threading; threading.Thread(target=time.sleep, args=(60,)).start()\n"
    program = PROGRAM.format(waits_for="brokers", cancelled=False)
    program = program.replace("time.sleep(0.6 if False else 60)", "") + waiting
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr.count("waits for the brokers")) == (75, 1)


def test_garbage_is_not_collected_at_the_end_of_the_process():
    program = "import atexit, gc, sys; from streamsvm.__main__ import main; sys.argv = ['streamsvm', '--version']\n"
    program += "atexit.register(lambda: print(gc.get_freeze_count())); main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout.split()[-1]) > 1000


def test_a_run_names_what_it_waits_for(tmp_path, monkeypatch):
    seen = []

    class Model(CPMClassifier):
        def run_batch(self, *args, **kwargs):
            seen.append(runner.waits_for)
            return super().run_batch(*args, **kwargs)

    sink = open_sink(str(tmp_path / "out.csv"))
    runner = runner_of(Model(), open_source("synthetic:sea?seed=1"), max_events=10, out=sink)
    monkeypatch.setattr(sink, "write", lambda _: seen.append(runner.waits_for))
    runner.run()
    assert (seen[-2:], runner.waits_for) == (["model", "streams"], "")  # a test prediction comes first
