"""What CPU time a push cost, of the middle of a run, and what is told of a busy receiver."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from bench.beside import OURS, Measured, busy, busy_figures, require_enough, summary, with_cpu
from bench.counting import CountingSink, Mark, steady_cpu_us
from bench.cpu import CpuMeter, Middle, middle, run_metered
from dev.receiver import ArrivalLine
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level

_BURN = """
import sys, time
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
for line in sys.stdin:
    burn(float(line))
    print(time.time(), flush=True)
"""


def test_cpu_before_and_after_the_middle_is_not_in_it() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", _BURN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        CpuMeter(process.pid) as meter,
    ):
        first_s, second_s, _ = (_burnt_at(process, seconds) for seconds in (0.3, 0.2, 0.3))
        process.stdin.close()  # type: ignore[union-attr]

    part = Middle(first_s, second_s, 1_000)
    assert meter.cpu_us(part) == pytest.approx(200, rel=0.3)
    assert meter.share(part) == pytest.approx(0.2 / (second_s - first_s), rel=0.3)


def _burnt_at(process: subprocess.Popen[str], seconds: float) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def test_a_part_that_was_not_sampled_has_no_figure() -> None:
    with CpuMeter(os.getpid()) as meter:
        pass

    now_s = time.time()
    with pytest.raises(PushlaneError, match="before its CPU was measured: send more pushes"):
        meter.cpu_us(Middle(now_s - 10, now_s - 5, 100))


def test_a_part_that_is_too_short_has_no_figure() -> None:
    with (
        CpuMeter(os.getpid()) as meter,
        pytest.raises(PushlaneError, match=r"0\.050 s are too short for CPU figures"),
    ):
        meter.cpu_us(Middle(5.0, 5.05, 100))


def test_a_process_that_does_not_end_well_is_told() -> None:
    command = [sys.executable, "-c", "import os, sys; sys.exit(int(os.environ['CODE']))"]

    with pytest.raises(PushlaneError, match="ended with exit code 3"):
        run_metered(command, {"CODE": "3"})


def test_few_arrivals_have_no_middle() -> None:
    with pytest.raises(PushlaneError, match="40 arrivals have no middle"):
        middle([ArrivalLine("t", seq, "high", seq / 10) for seq in range(40)], 50)


def test_the_cpu_of_a_delivery_is_of_the_same_marks_as_the_rate() -> None:
    marks = [Mark(0.0, 0, 5.0), Mark(1.0, 100, 9.0), Mark(2.0, 300, 9.01), Mark(3.0, 400, 20.0)]

    assert steady_cpu_us(marks, 50, 350) == pytest.approx(50)
    assert steady_cpu_us(marks, 350, 360) == 0.0


async def test_about_a_thousand_marks_are_kept_of_many_deliveries() -> None:
    sink = CountingSink({"a": 4_000})
    for seq in range(1, 4_001):
        await sink.deliver([Delivery(Push("a", seq, "r"), Level.HIGH)])

    assert len(sink.marks) == 1_000
    assert sink.marks[-1].delivered == 3_997


def measured(rate: float, share: float = 0.2) -> Measured:
    return Measured(rate, cpu_us=80.0, receiver_cpu_us=9.0, receiver_share=share)


def test_the_first_bare_client_has_the_keys_without_a_name() -> None:
    runs = {
        OURS: [measured(50), measured(60)],
        "pyreqwest": [measured(100), measured(100, 0.5)],
        "other": [measured(200), measured(200)],
    }

    told = summary(runs, "tls_", "bare_client_rate")

    assert told["tls_ratios"] == [0.5, 0.6]
    assert (told["tls_ratio"], told["tls_other_ratio"]) == (0.55, 0.275)
    assert (told["tls_bare_client_rate"], told["tls_other_bare_client_rate"]) == (100, 200)
    assert (told["tls_cpu_us"], told["tls_bare_receiver_cpu_us"]) == (80, 9)
    assert told["tls_receiver_cpu_max"] == 0.5


def test_a_round_with_a_busy_receiver_is_told() -> None:
    runs = {OURS: [measured(50)] * 2, "pyreqwest": [measured(100, 0.45), measured(100, 0.46)]}

    told = {"receiver_busy": busy(runs, " with TLS")}

    assert told == {"receiver_busy": {"bare pyreqwest with TLS": [2]}}
    assert busy_figures(told)[0].measured == "bare pyreqwest with TLS (round 2)"
    assert busy_figures({"receiver_busy": {}})[0].measured == "none"


def test_results_from_before_cpu_was_measured_are_shown_without_it() -> None:
    assert with_cpu({"rate": 1_200, "cpu_us": 80.5}, "rate", "cpu_us") == "1,200/s, 80.5 us"
    assert with_cpu({"rate": 1_200}, "rate", "cpu_us") == "1,200/s"
    assert busy_figures({}) == []


@pytest.mark.parametrize(
    ("rounds", "pushes", "refusal"),
    [
        (0, 4_000, "--rounds 0 measures nothing: give 1 or more"),
        (1, 3_999, "--pushes 3999 are too few: give 4,000 or more"),
    ],
)
def test_less_than_can_be_measured_is_refused(rounds: int, pushes: int, refusal: str) -> None:
    with pytest.raises(BadInput, match=refusal):
        require_enough(rounds, pushes)
