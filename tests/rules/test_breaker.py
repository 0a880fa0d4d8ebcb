"""Error and bounce rates over the last outcomes."""

from __future__ import annotations

import pytest

from fanout.rules import breaker

case = pytest.param


def test_the_sample_forgets_the_oldest() -> None:
    sample = "e" * breaker.SAMPLE_SIZE
    for _ in range(breaker.SAMPLE_SIZE):
        sample = breaker.add(sample, breaker.SENT)
    assert sample == "." * breaker.SAMPLE_SIZE


def test_the_sample_is_of_the_last_fifty_outcomes() -> None:
    sample = "".join("e" if n == 0 else "." for n in range(50))
    assert breaker.add(sample[1:], breaker.SENT) == "." * 50
    assert breaker.add(sample, breaker.SENT) == "." * 50
    assert breaker.add(sample[:-1], breaker.SENT) == sample


def test_a_success_erases_no_failure() -> None:
    assert breaker.add("ee", breaker.SENT) == "ee."
    assert breaker.error_rate("ee.") == pytest.approx(2 / 3)


def test_an_outage_of_hours_leaves_the_outcomes_in_the_sample() -> None:
    sample = "e"
    for _ in range(100):
        sample = breaker.add(sample, breaker.UNREACHABLE)
    assert sample == "e" + "n" * 6


@pytest.mark.parametrize(
    ("sample", "trips", "slow"),
    [
        case("", False, 0.0, id="empty"),
        case("e" * 19, False, 0.0, id="too-few-to-judge"),
        case("e" * 20, True, 1.0, id="all-errors"),
        case("." * 16 + "e" * 4, False, 0.2, id="at-the-threshold"),
        case("." * 15 + "e" * 5, True, 0.25, id="above"),
        case("." * 16 + "ebe" + "e", False, 0.2, id="errors-and-bounces-count-alike"),
        case("." * 20 + "r" * 20 + "n" * 6, False, 0.0, id="limits-and-outages-fail-nobody"),
        case("." * 19 + "r" * 30, False, 0.0, id="limits-make-no-sample"),
        case("." * 50, False, 0.0, id="healthy"),
    ],
)
def test_circuit_breaker(sample: str, trips: bool, slow: float) -> None:
    assert breaker.trips(sample, 0.20) is trips
    assert breaker.slowdown_rate(sample) == pytest.approx(slow)


@pytest.mark.parametrize(
    ("sample", "pauses"),
    [
        case("b" * 5, False, id="too-few-to-judge"),
        case("." * 19 + "b", False, id="at-the-threshold"),
        case("." * 18 + "bb", True, id="above"),
        case("." * 10 + "e" * 10, False, id="errors-are-no-bounces"),
    ],
)
def test_bounces(sample: str, pauses: bool) -> None:
    assert bool(breaker.bounces(sample, 0.05)) is pauses


@pytest.mark.parametrize(("sample", "n"), [("", 0), ("...", 0), ("..ee", 2), ("rbe", 3), ("e.", 0)])
def test_failing_in_a_row(sample: str, n: int) -> None:
    assert breaker.failing(sample) == n


def test_the_words_have_the_counts() -> None:
    assert breaker.too_many_bounces(4, 60, 0.05) == "bounce rate 7%: 4 of 60 messages came back"
    assert breaker.too_many_bounces(3, 60, 0.05) == breaker.too_many_bounces(19, 19, 0.05) == ""


@pytest.mark.parametrize(
    ("soft", "worn_out"),
    [([1, 1, 1], True), ([1, 0, 1, 0, 1], True), ([1, 1, 0, 0, 0, 1], False), ([1, 1], False), ([], False)],
)
def test_an_address_wears_out(soft: list[int], worn_out: bool) -> None:
    assert breaker.worn_out([bool(one) for one in soft]) is worn_out


def test_outcomes_after_an_outage_are_added() -> None:
    outage = "." + breaker.UNREACHABLE * 6
    assert [breaker.add(outage, letter) for letter in ".er"] == [f"{outage}.", f"{outage}e", f"{outage}r"]
    assert breaker.add("n" * 5, "n") == "n" * 6


@pytest.mark.parametrize("sample", ["", "r", "nn"], ids=["nothing", "a break", "an outage"])
def test_without_judged_outcomes_there_is_no_rate(sample: str) -> None:
    assert (breaker.judged(sample), breaker.error_rate(sample)) == (0, 0.0)


@pytest.mark.parametrize(("sample", "n"), [(".n", 1), (".rn", 2), ("ebrn", 4), ("n.", 0)])
def test_an_outage_counts_as_failing(sample: str, n: int) -> None:
    assert breaker.failing(sample) == n


@pytest.mark.parametrize(("failed", "trips"), [(10, False), (11, True)], ids=["half of them", "more than half"])
def test_the_breaker_trips_above_its_threshold_and_not_at_it(failed: int, trips: bool) -> None:
    assert breaker.trips("e" * failed + "." * (20 - failed), 0.5) is trips
