"""What a person wrote in a reply by mail, by language and program."""

from __future__ import annotations

import pytest

from accounts.channels.reply_text import LONGEST_REPLY, own_words, text_of_html, written
from tests.inbound import scorecard_replies

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
    "an address set apart": "STOP\n\nOn Mon, 1 Jun 2026 at 10:00 Bob\n\n<\nmailto:Bob <bob@x.org>\n> wrote:\n\nHello\n",
    "below": "On Mon, 1 Jun 2026 at 10:00, Bob <bob@x.org> wrote:\n> Hello Ann\n\nSTOP\n",
}


@pytest.mark.parametrize("name", REPLIES)
def test_only_their_own_words(name: str) -> None:
    assert own_words(REPLIES[name]) == "STOP"


def test_every_language_and_program_is_read_right() -> None:
    """A figure that falls fails here; `python -m tests.inbound.scorecard_replies` shows the whole table."""
    table = scorecard_replies.all_scores(own_words)
    assert [score for score in table if score.right < score.total] == []
    figures: dict[str, int] = {}
    for score in table:
        figures[score.subject] = figures.get(score.subject, 0) + score.total
    least = {"attribution": 2_648, "header block": 1_396, "rule": 200, "signature": 680, "opt-out": 570}
    least |= {"no opt-out": 410, "absence note": 87, "person's subject": 14, "away until": 29}
    assert {subject: total for subject, total in figures.items() if total < least[subject]} == {}


def test_a_worse_reader_is_noticed() -> None:
    table = scorecard_replies.scores(lambda text: text.partition("\n>")[0])
    assert sum(score.right for score in table) < sum(score.total for score in table) / 2


SIMILAR = {
    "a colon": "I wrote to them:\nthey never came.\n\nFrom: now on please call.",
    "a journey": "From: Berlin\nTo: Hamburg\nDate: 3 June, 10:30\nTwo seats, please.",
    "a memory": "In 2026 I wrote to Bob:\nplease call me.",
    "an address": "Write to ann@example.org in 2026:\nthat is my new address.",
    "a telephone": "I bought a Samsung.\nIt was sent from my iPhone, I think.",
    "a program": "Do you use Outlook for iOS?\nI do.",
    "dashes": "one --- two\n***\nthree\n-----\nfour",
    "a journey, by time": "Date: 3 June 2026\nFrom: Berlin\nTo: Hamburg\nTwo seats, please.",
    "a form": "Name: Ann\nMail: ann@example.org\nWhen: Friday 10:30",
}


@pytest.mark.parametrize("name", SIMILAR)
def test_what_looks_similar_stays(name: str) -> None:
    assert own_words(SIMILAR[name]) == SIMILAR[name]


def test_only_a_quotation_has_nothing_written() -> None:
    assert written("On 1 Jun 2026, at 10:00, Bob <bob@x.org> wrote:\n> Hello\n\nSent from my iPhone\n") == ""


def test_a_quotation_alone_stays() -> None:
    assert own_words("> Hello\n") == "> Hello"


def test_a_long_mail_takes_no_longer() -> None:
    assert own_words("yes\n" + "\n" * LONGEST_REPLY * 2) == "yes"


def test_of_html_too() -> None:
    html = "<head><style>p {}</style></head><div>STOP</div><br><blockquote>Hello <b>Ann</b></blockquote>"
    assert own_words(text_of_html(html)) == "STOP"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yes\r\nor\rno", "yes\nor\nno"),
        ("> one\nyes\n> two\nno", "yes\nno"),
        ("yes\nshe said:\n> hello", "yes"),
        ("yes\nshe said:\n\n> hello\n", "yes"),
        ("she said:\nhello", "she said:\nhello"),
        ("  > not quoted", "> not quoted"),
        ("", ""),
    ],
    ids=["line ends", "between", "introduced", "introduced above a gap", "no quotation", "indented", "nothing"],
)
def test_what_is_quoted_line_by_line(text: str, words: str) -> None:
    assert own_words(text) == words


def test_what_stands_behind_the_longest_mail_is_nobodys() -> None:
    assert own_words("a" * 50_000 + "b") == "a" * 50_000


@pytest.mark.parametrize(
    ("html", "words"),
    [
        ("one<br>two<p>three</p>", "one\ntwo\nthree"),
        ("<blockquote>a<blockquote>b</blockquote>c</blockquote>d", "d"),
        ("</blockquote>a<blockquote>b</blockquote>c", "ac"),
        ("<b>a</b><i>b</i>", "ab"),
        ("<title>x</title><script>y</script>a", "a"),
        ("one<br>two<![x three", "one\ntwo"),
        ('yes<div class="gmail_quote x"><div>On …</div>old</div> no', "yes\n\n no"),
        ('yes<div id="appendonsend"></div><hr>From: Bob<p>old</p>', "yes\n\n"),
    ],
    ids=["lines", "quoted twice", "closed too often", "no lines", "not for people", "not HTML", "Gmail", "Outlook"],
)
def test_the_words_of_html(html: str, words: str) -> None:
    assert text_of_html(html) == words
