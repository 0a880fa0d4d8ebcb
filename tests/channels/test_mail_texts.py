"""What somebody wrote, without what they answered to."""

from __future__ import annotations

import pytest

from accounts.channels.mail_texts import LONGEST, own_words, text_of_html

REPLIES = {
    "nothing quoted": "STOP",
    "Gmail": "STOP\n\nOn Mon, 1 Jun 2026 at 10:00, Bob <bob@x.org> wrote:\n> Hello Ann\n> the rent is due\n",
    "Gmail, broken line": "STOP\r\n\r\nOn Mon, 1 Jun 2026 at 10:00, Bob\r\n<bob@x.org> wrote:\r\n\r\n> Hi\r\n",
    "not marked": "STOP\n\nOn 1 Jun 2026, at 10:00, Bob <bob@x.org> wrote:\n\nHello Ann\nthe rent is due\n",
    "German": "STOP\n\nAm 01.06.2026 um 10:00 schrieb Bob <bob@x.org>:\n> Hallo\n",
    "French": "STOP\n\nLe lun. 1 juin 2026 à 10:00, Bob <bob@x.org> a écrit :\n> Bonjour\n",
    "a language we do not know": "STOP\n\n2026. 6. 1. 10:00 Bob <bob@x.org>님이 작성:\n\n> Hello\n",
    "Outlook": "STOP\n\n________________________________\nFrom: Bob <bob@x.org>\nSent: Monday\n\nHello\n",
    "Outlook without a line": "STOP\n\nFrom: Bob <bob@x.org>\nSent: Monday, June 1\nTo: Ann\n\nHello\n",
    "old Outlook": "STOP\n\n-----Original Message-----\nFrom: Bob\n\nHello\n",
    "signature": "STOP\n-- \nAnn Example\n+49 176 1234567\n",
    "telephone": "STOP\n\nSent from my iPhone\n",
    "below": "On Mon, 1 Jun 2026 at 10:00, Bob <bob@x.org> wrote:\n> Hello Ann\n\nSTOP\n",
}


@pytest.mark.parametrize("name", REPLIES)
def test_only_their_own_words(name: str) -> None:
    assert own_words(REPLIES[name]) == "STOP"


def test_what_looks_similar_stays() -> None:
    text = "I wrote to them:\nthey never came.\n\nFrom: now on please call."
    assert own_words(text) == text


def test_a_quotation_alone_stays() -> None:
    assert own_words("> Hello\n") == "> Hello"


def test_a_long_mail_takes_no_longer() -> None:
    assert own_words("yes\n" + "\n" * LONGEST * 2) == "yes"


def test_of_html_too() -> None:
    html = "<head><style>p {}</style></head><div>STOP</div><br><blockquote>Hello <b>Ann</b></blockquote>"
    assert own_words(text_of_html(html)) == "STOP"
