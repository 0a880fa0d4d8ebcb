"""simulate: the seed's figures, on the virtual clock."""

from __future__ import annotations

import pytest

from fanout.models import Run
from tests.commands.calling import bad_input, data, text

pytestmark = pytest.mark.django_db(transaction=True)

SHAPE = {
    "status",
    "total",
    "sent",
    "failed",
    "skipped",
    "pending",
    "unconfirmed",
    "virtual_minutes",
    "uploads",
    "bytes_uploaded",
    "peak_60s",
    "permitted_ratio",
    "bound_by",
    "error_summary",
    "real_seconds",
}


def test_a_thousand_groups_at_forty_a_minute_take_twenty_five_minutes():
    found = data("simulate", "--groups", "1000", "--rate", "40", "--window", "6-18", "--at", "09:00")
    assert set(found) >= SHAPE
    assert (found["status"], found["sent"]) == ("success", 1000)
    assert 24.5 <= found["virtual_minutes"] <= 25.5
    assert found["peak_60s"] <= 43
    assert not Run.objects.exists()


def test_the_window_closes_on_the_rest():
    found = data("simulate", "--groups", "200", "--rate", "20", "--at", "17:57", "--tz", "Asia/Kuala_Lumpur")
    assert found["status"] == "paused"
    assert 60 <= found["sent"] <= 63
    assert found["sent"] + found["pending"] == 200
    assert "Delivery window closed at 18:00 (Asia/Kuala_Lumpur)" in found["error_summary"]


@pytest.mark.parametrize(
    ("day", "minutes"), [("2026-10-25", 120), ("2026-03-29", 0), ("2026-03-30", 60)], ids=["back", "forward", "usual"]
)
def test_a_window_over_a_change_of_clocks_has_its_real_length(day, minutes):
    # The hour from 02:00 to 03:00 exists twice, never, or once.
    words = ["--window", "2-3", "--at", f"{day}T01:59:59", "--tz", "Europe/Berlin", "--rate", "1"]
    found = data("simulate", "--groups", "200", *words, "--set", "send_burst=1")
    assert minutes - 1 <= found["sent"] <= minutes + 1


def test_a_file_is_uploaded_once():
    found = data("simulate", "--groups", "20", "--parts", "text,image", "--image-mb", "5", "--set", "send_burst=20")
    assert (found["uploads"], found["bytes_uploaded"]) == (1, 5 * 1024 * 1024)


def test_a_daily_cap_binds():
    found = data("simulate", "--groups", "30", "--daily-cap", "10", "--rate", "600")
    assert (found["status"], found["sent"], found["pending"]) == ("paused", 10, 20)


def test_compare_is_a_table_over_rates():
    found = data("simulate", "--groups", "40", "--compare", "20,60")["compare"]
    assert [row["rate"] for row in found] == [20, 60]
    assert found[0]["virtual_minutes"] > found[1]["virtual_minutes"]
    assert "virtual_minutes" in text("simulate", "--groups", "5", "--compare", "60")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(("--window", "22-6"), "midnight", id="window over midnight"),
        pytest.param(("--window", "6-25"), "24", id="end 25"),
        pytest.param(("--window", "day"), "written like 6-18", id="no window"),
        pytest.param(("--tz", "Mars"), "is not a timezone", id="timezone"),
        pytest.param(("--at", "noon"), "takes a time such as 09:00", id="time"),
        pytest.param(("--at", "0001-01-01T00:00"), "a date from 2000 to 2200", id="beginning of the calendar"),
        pytest.param(("--compare", "²"), "whole numbers such as", id="no number"),
        pytest.param(("--parts", "text,song"), "--parts takes some of", id="parts"),
        pytest.param(("--latency-ms", "9-1"), "smaller number first", id="range turned round"),
        pytest.param(("--error-rate", "5"), "share from 0 to 1", id="percent for a share"),
        pytest.param(("--groups", "0"), "from 1 to", id="no groups"),
        pytest.param(("--rate", "-1"), "must be between", id="rate"),
        pytest.param(("--compare", "fast"), "whole numbers such as", id="compare"),
        pytest.param(("--set", "daily_limit_message=3"), "use --daily-cap", id="cap as a knob"),
    ],
)
def test_bad_input_is_one_sentence(words, says):
    assert says in bad_input("simulate", *words)
