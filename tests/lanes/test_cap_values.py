"""What may be typed as a daily limit."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from fanout.lanes import tuning
from fanout.lanes.tuning import CAP, MOST_PER_DAY, NO_CAP, UNLIMITED

case = pytest.param


@pytest.mark.parametrize(
    ("raw", "limit"),
    [
        case("0", 0, id="nothing"),
        case("50", 50, id="some"),
        case(str(MOST_PER_DAY), MOST_PER_DAY, id="the most"),
        case(NO_CAP, UNLIMITED, id="no limit"),
    ],
)
def test_a_daily_limit_is_read(raw: str, limit: float) -> None:
    assert tuning._cap(f"{CAP}email", raw) == limit


@pytest.mark.parametrize("raw", [str(MOST_PER_DAY + 1), "999999999", "9" * 5_000, "-1", "1.5", "²", "many", ""])
def test_what_is_no_daily_limit_is_refused_in_a_sentence(raw: str) -> None:
    with pytest.raises(ValidationError) as refused:
        tuning._cap(f"{CAP}email", raw)
    assert refused.value.messages == [
        f"{CAP}email takes a whole number up to {MOST_PER_DAY} or {NO_CAP!r}, not {raw[:40]!r}."
    ]
