from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import phonenumbers
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounts.addresses import (
    CHOICES,
    GROUP_KINDS,
    KINDS,
    NEW_CHAT_KINDS,
    AddressError,
    counted_as,
    guess_kind,
    looks_like_an_address,
    normalise,
    plurals,
    spellings_of,
    sql_list,
)

case = pytest.param
GERMAN = "+4917612345678"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "raw",
    [
        case("+4917612345678", id="normal"),
        case("+49 176 12345678", id="spaces"),
        case("+49 (0)176 / 1234-5678", id="punctuation-and-trunk-zero"),
        case("0049 176 12345678", id="double-zero"),
        case("4917612345678", id="bare"),
        case("4917612345678@s.whatsapp.net", id="jid"),
        case("4917612345678@c.us", id="old-jid"),
        case("4917612345678:12@s.whatsapp.net", id="device-jid"),
        case("4917612345678.0:12@S.WhatsApp.net", id="agent-and-device-jid"),
        case("4917612345678:3", id="device-without-server"),
        case("whatsapp:+4917612345678", id="whatsapp-prefix"),
        case("tel:+49-176-12345678", id="tel-prefix"),
        case("  \u202a+49\u00a0176\u00a012345678\u202c ", id="pasted-from-a-contact-card"),
        case("＋４９ １７６ １２３４５６７８", id="full-width"),
        case("+49 176 1234‑5678", id="typographic-hyphen"),
        case("+٤٩١٧٦١٢٣٤٥٦٧٨", id="arabic-digits"),
    ],
)
def test_one_person(raw: str) -> None:
    assert normalise("person", raw) == GERMAN


@pytest.mark.parametrize(
    ("raw", "region", "expected"),
    [
        case("0176 12345678", "DE", GERMAN, id="national"),
        case("4917612345678", "DE", GERMAN, id="bare-international-at-home"),
        case("447911123456", "DE", "+447911123456", id="bare-international-abroad"),
        case("+44 7911 123456", "DE", "+447911123456", id="plus-beats-region"),
        case("(212) 555-0123", "US", "+12125550123", id="parenthesis-first"),
        case("06 698 12345", "IT", "+390669812345", id="italian-zero-stays"),
        case("5215512345678@s.whatsapp.net", None, "+525512345678", id="mexican-mobile-1"),
    ],
)
def test_person_in_a_region(raw: str, region: str | None, expected: str) -> None:
    assert normalise("person", raw, region) == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        case("", "empty", id="empty"),
        case("  ", "empty", id="blank"),
        case("tel:", "empty", id="prefix-only"),
        case("hello", "not a phone number", id="word"),
        case("1-800-FLOWERS", "not a phone number", id="vanity"),
        case("+49 176 12345678 ext. 5", "not a phone number", id="extension"),
        case("0176 12345678", "country code", id="national-without-region"),
        case("+49 12", "wrong length", id="too-short"),
        case("+49 176 1234567890123", "wrong length", id="too-long"),
        case("+1 555 0123", "wrong length", id="local-only"),
        case("+999 123456789", "unknown country code", id="no-such-country"),
        case("120363025246125486@g.us", "group, not a person", id="group"),
        case("12345678901234@lid", "hidden WhatsApp id", id="hidden-id"),
        case("ann@example.com", "looks like a mail address", id="mailbox"),
        case("+49176\n12345678", "line break", id="line-break"),
        case("+" * 600, "too long", id="endless"),
    ],
)
def test_no_person(raw: str, words: str) -> None:
    with pytest.raises(AddressError, match=words) as caught:
        normalise("person", raw)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        case("120363025246125486@g.us", "120363025246125486@g.us", id="normal"),
        case("120363025246125486", "120363025246125486@g.us", id="bare"),
        case(" 120363025246125486@G.US ", "120363025246125486@g.us", id="upper-case"),
        case("4917612345678-1589371234@g.us", "4917612345678-1589371234@g.us", id="old-style"),
        case("4917612345678-1589371234", "4917612345678-1589371234@g.us", id="old-style-bare"),
        case("Y2FwaV9ncm91cDoxNzA1NTU1", "Y2FwaV9ncm91cDoxNzA1NTU1", id="cloud-group-keeps-its-case"),
    ],
)
def test_group(raw: str, expected: str) -> None:
    assert normalise("group", raw) == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        case("4917612345678@s.whatsapp.net", "person, not a group", id="person"),
        case("4917612345678@c.us", "person, not a group", id="old-person"),
        case("+4917612345678", "group id is a number", id="phone"),
        case("1-2-3@g.us", "group id is a number", id="three-parts"),
        case("@g.us", "group id is a number", id="suffix-only"),
        case("family@g.us", "group id is a number", id="name"),
        case("1@g.us@g.us", "group id is a number", id="suffix-twice"),
        case("1" * 40, "group id is a number", id="too-long"),
    ],
)
def test_no_group(raw: str, words: str) -> None:
    with pytest.raises(AddressError, match=words):
        normalise("group", raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        case("https://www.linkedin.com/in/Ann-Lee-123/", "linkedin.com/in/ann-lee-123", id="from-a-browser"),
        case(
            "http://de.linkedin.com/in/ann-lee?trk=people#top", "linkedin.com/in/ann-lee", id="with-a-country-and-tail"
        ),
        case("LinkedIn.com/in/ann_lee", "linkedin.com/in/ann_lee", id="without-scheme"),
        case("ann-lee", "linkedin.com/in/ann-lee", id="only-its-name"),
        case("linkedin.com/in/z%C3%A9-silva", "linkedin.com/in/zé-silva", id="percent-encoded"),
        case(
            "linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv",
            "linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv",
            id="member-id",
        ),
    ],
)
def test_profile(raw: str, expected: str) -> None:
    assert normalise("profile", raw) == normalise("profile", expected) == expected


@pytest.mark.parametrize(
    "raw", ["linkedin.com/in/", "linkedin.com/company/choir", "a b", "ab", "ann@example.com", "x" * 200]
)
def test_no_profile(raw: str) -> None:
    with pytest.raises(AddressError, match="looks like"):
        normalise("profile", raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        case("ann@example.com", "ann@example.com", id="normal"),
        case("Ann.Lee+list@Example.COM", "ann.lee+list@example.com", id="case"),
        case("Ann Lee <ann@example.com>", "ann@example.com", id="display-name"),
        case('"Lee, Ann <x>" <ann@example.com>', "ann@example.com", id="quoted-display-name"),
        case("<ann@example.com>", "ann@example.com", id="angle-brackets"),
        case("mailto:ann@example.com", "ann@example.com", id="mailto"),
        case("ann@example.com.", "ann@example.com", id="root-dot"),
        case("ann@bücher.example", "ann@xn--bcher-kva.example", id="idna"),
        case("ann@BU\u0308CHER.example", "ann@xn--bcher-kva.example", id="idna-decomposed-upper-case"),
        case("ann@xn--bcher-kva.example", "ann@xn--bcher-kva.example", id="idna-already"),
        case("ann@straße.example", "ann@xn--strae-oqa.example", id="sharp-s-is-not-ss"),
        case("jo\u0308rg@example.com", "j\u00f6rg@example.com", id="local-part-composed"),
        case(" ann@example.com\n", "ann@example.com", id="end-of-line"),
    ],
)
def test_mailbox(raw: str, expected: str) -> None:
    assert normalise("mailbox", raw) == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        case("ann", "needs an @", id="no-at"),
        case("@example.com", "before the @", id="no-local-part"),
        case("ann@", "domain", id="no-domain"),
        case("ann@localhost", "full one", id="one-label"),
        case("ann@127.0.0.1", "full one", id="ip"),
        case("ann@[127.0.0.1]", "domain", id="ip-literal"),
        case("ann@-bad.example", "domain", id="hyphen-first"),
        case("ann@a..example", "domain", id="empty-label"),
        case("ann@under_score.example", "domain", id="underscore"),
        case("a b@example.com", "before the @", id="space"),
        case("ann@exam ple.com", "domain", id="space-in-domain"),
        case(".ann@example.com", "before the @", id="dot-first"),
        case("ann..lee@example.com", "before the @", id="double-dot"),
        case('"ann lee"@example.com', "before the @", id="quoted"),
        case("a@b@example.com", "before the @", id="two-ats"),
        case("a@x.example,b@x.example", "before the @", id="two-addresses"),
        case("ann@example.com\r\nBcc: eve@example.com", "line break", id="header-injection"),
        case("Ann\nBcc: eve@x.example <ann@example.com>", "line break", id="injection-in-display-name"),
        case("ann\x00@example.com", "control character", id="null-byte"),
        case("ann\u2028@example.com", "control character", id="line-separator"),
        case("ann\x85@example.com", "control character", id="next-line"),
        case("a" * 65 + "@example.com", "at most 64", id="long-local-part"),
        case("a@" + ".".join(["b" * 60] * 5) + ".example", "domain", id="long-domain"),
        case("a" * 64 + "@" + ".".join(["b" * 60] * 3) + ".example", "at most 254", id="too-long"),
        case("120363025246125486@g.us", "WhatsApp id", id="group"),
        case("4917612345678@s.whatsapp.net", "WhatsApp id", id="person"),
    ],
)
def test_no_mailbox(raw: str, words: str) -> None:
    with pytest.raises(AddressError, match=words) as caught:
        normalise("mailbox", raw)
    assert str(caught.value).endswith(".")


def test_unknown_kind_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="Unknown kind") as caught:
        normalise("pigeon", "1")
    assert not isinstance(caught.value, AddressError)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        case("+49 176 12345678", "person", id="phone"),
        case("0176-12345678", "person", id="phone-with-hyphen"),
        case("4917612345678@s.whatsapp.net", "person", id="person-jid"),
        case("whatsapp:+4917612345678", "person", id="whatsapp-prefix"),
        case("120363025246125486@g.us", "group", id="group-jid"),
        case("120363025246125486", "group", id="bare-group"),
        case("https://www.linkedin.com/in/Ann-Lee/", "profile", id="profile"),
        case("linkedin.com/company/choir", "person", id="no-profile"),
        case(" Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0MDQ2OTQyMzM4MjAZD", "group", id="cloud-group"),
        case("4917612345678-1589371234", "group", id="old-bare-group"),
        case("Ann <ann@example.com>", "mailbox", id="display-name"),
        case("mailto:ann@example.com", "mailbox", id="mailto"),
        case("nonsense", "person", id="nonsense"),
    ],
)
def test_guess_kind(raw: str, kind: str) -> None:
    assert guess_kind(raw) == kind


# --- the addresses that a WhatsApp id can mean ------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "others"),
    [
        case("553187654321@s.whatsapp.net", ["+5531987654321"], id="brazil-without-the-nine"),
        case("5531987654321@s.whatsapp.net", ["+553187654321"], id="brazil-with-it"),
        case("5511987654321@c.us", ["+551187654321"], id="sao-paulo-in-an-old-list"),
        case("5511945678901@c.us", [], id="brazil-number-that-was-always-nine-digits"),
        case("551145678901@c.us", [], id="brazil-fixed-line"),
        case("5491123456789@s.whatsapp.net", ["+541123456789"], id="argentina-with-the-nine"),
        case("541123456789@s.whatsapp.net", ["+5491123456789"], id="argentina-without-it"),
        case("5492966123456@s.whatsapp.net", ["+542966123456"], id="argentina-long-area-code"),
        case("5215512345678@s.whatsapp.net", [], id="mexico-with-the-one"),
        case("525512345678@s.whatsapp.net", [], id="mexico-without-it"),
        case("4917612345678@s.whatsapp.net", [], id="germany"),
    ],
)
def test_what_a_whatsapp_id_can_mean(id: str, others: list[str]) -> None:
    address = normalise("person", id)

    assert list(spellings_of(address)) == [address, *others]


@pytest.mark.parametrize(
    ("written", "id"),
    [
        case("+55 31 98765-4321", "553187654321@s.whatsapp.net", id="brazil"),
        case("+55 31 8765-4321", "5531987654321@s.whatsapp.net", id="brazil-old-list"),
        case("+54 11 2345-6789", "5491123456789@s.whatsapp.net", id="argentina"),
        case("+54 11 15 2345-6789", "5491123456789@s.whatsapp.net", id="argentina-with-15"),
        case("+52 55 1234 5678", "5215512345678@s.whatsapp.net", id="mexico"),
        case("+52 1 55 1234 5678", "525512345678@s.whatsapp.net", id="mexico-old-list"),
    ],
)
def test_a_list_and_an_id_mean_the_same_person(written: str, id: str) -> None:
    assert normalise("person", written) in spellings_of(normalise("person", id))


@pytest.mark.parametrize("address", ["120363025246125486@g.us", "ann@example.com", "linkedin.com/in/ann-lee", ""])
def test_only_numbers_have_other_spellings(address: str) -> None:
    assert spellings_of(address) == (address,)


# --- properties -------------------------------------------------------------------------------------------

REGIONS = sorted(phonenumbers.SUPPORTED_REGIONS)
soup = st.text(st.sampled_from("0123456789+-() .:@<>/_abcücusg.net\u200e\r\n٣") | st.characters(), max_size=40)
almost = st.one_of(
    st.from_regex(r"\A\+?[0-9 ()-]{5,18}(:[0-9]{1,2})?(@s\.whatsapp\.net|@c\.us|@g\.us)?\Z"),
    st.from_regex(r"\A[0-9]{5,20}(-[0-9]{5,12})?(@g\.us)?\Z"),
    st.emails(),
    st.tuples(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20)).map("@{0[0]}{0[1]}.de".format),
    st.tuples(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8)).map("{0[0]}@{0[1]}.de".format),
)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(list(KINDS)), soup | almost, st.none() | st.sampled_from(REGIONS))
@example("mailbox", "İ@example.com", None)
@example("person", "+4900176123456", None)
def test_normal_stays_normal_and_clean(kind: str, raw: str, region: str | None) -> None:
    try:
        address = normalise(kind, raw, region)
    except AddressError:
        return
    assert normalise(kind, address) == address
    assert normalise(kind, address, region) == address
    assert len(address) <= 254
    assert not any(c.isspace() or unicodedata.category(c).startswith("C") for c in address)


numbers = st.one_of(
    st.from_regex(r"\A\+55[1-9]{2}9?[0-9]{8}\Z"),
    st.from_regex(r"\A\+549?[1-9][0-9]{9}\Z"),
    st.from_regex(r"\A\+521?[1-9][0-9]{9}\Z"),
    st.from_regex(r"\A\+[1-9][0-9]{6,14}\Z"),
)


@settings(deadline=None, max_examples=400)
@given(numbers)
def test_spellings_mean_each_other_and_are_as_stored(raw: str) -> None:
    try:
        address = normalise("person", raw)
    except AddressError:
        return
    spellings = spellings_of(address)

    assert spellings[0] == address
    assert len(set(spellings)) == len(spellings) <= 2
    for other in spellings:
        assert normalise("person", other) == other
        assert set(spellings_of(other)) == set(spellings)
        assert other[:3] == address[:3]  # the country


@settings(deadline=None)
@given(st.from_regex(r"\A\+55[1-9]{2}[2-5][0-9]{7}\Z"))
def test_a_brazilian_fixed_line_is_never_a_mobile_number(fixed: str) -> None:
    with_nine = f"{fixed[:5]}9{fixed[5:]}"

    assert spellings_of(fixed) == (fixed,)
    assert spellings_of(with_nine) == (with_nine,)


@settings(deadline=None)
@given(soup)
def test_guessing_never_fails(raw: str) -> None:
    assert guess_kind(raw) in KINDS
    assert looks_like_an_address(raw) or guess_kind(raw) == "person"


@pytest.mark.parametrize("region", REGIONS)
def test_every_country_in_every_spelling(region: str) -> None:
    number = phonenumbers.example_number_for_type(region, phonenumbers.PhoneNumberType.MOBILE)
    if number is None:
        pytest.skip("no example of a mobile number")
    normal = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    digits = normal.removeprefix("+")
    spellings = [
        phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL),
        phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.RFC3966),
        f"00{digits}",
        f"{digits}@s.whatsapp.net",
        f"{digits}:7@c.us",
    ]
    assert {normalise("person", spelling) for spelling in spellings} == {normal}
    national = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
    assert normalise("person", national, region) == normal


# --- the table of kinds -----------------------------------------------------------------------------------

#: As lists have them, in a spelling that shows their kind.
EXAMPLES = {
    "person": "+49 176 12345678",
    "group": "120363025246125486@g.us",
    "mailbox": "Ann@Example.com",
    "profile": "https://www.linkedin.com/in/ann-lee",
}


@pytest.mark.parametrize("key", KINDS)
def test_a_kind_is_complete(key: str) -> None:
    kind = KINDS[key]
    address = normalise(key, EXAMPLES[key])

    assert kind.key == key
    assert key.isidentifier()  # it stands in statements
    assert kind.label[0].isupper()
    assert kind.plural != kind.singular
    assert kind.looks_like(EXAMPLES[key])
    assert guess_kind(EXAMPLES[key]) == guess_kind(address) == key
    assert looks_like_an_address(address)
    assert address.startswith(kind.prefix)
    assert kind.headings
    assert not (kind.begins_chats and not kind.one_person)


def test_a_heading_belongs_to_one_kind() -> None:
    headings = [heading for kind in KINDS.values() for heading in kind.headings]

    assert len(set(headings)) == len(headings)


def test_lists_of_kinds() -> None:
    assert list(CHOICES) == ["group", "person", "mailbox", "profile"]
    assert plurals(set(KINDS)) == "people, groups, mailboxes and LinkedIn profiles"
    assert GROUP_KINDS == ("group",)
    assert NEW_CHAT_KINDS == ("person",)
    assert sql_list(["group"]) == "('group')"
    assert sql_list(["group", "person"]) == "('group', 'person')"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown kind of recipient: pigeon\."):
        normalise("pigeon", GERMAN)


NAMED = re.compile(rf"\b({'|'.join(KINDS).upper()})\b(?! BY)|['\"]({'|'.join(KINDS)})['\"]")
COMPARED = re.compile(rf"kind.*(=|<>|\b(in|IN)\b)\s*[(\[{{]?({NAMED.pattern})")
PRODUCT = ("accounts", "config", "fanout", "reminders", "templates")
#: The table itself, channels, which say what they reach, demo data, and migrations.
MAY_NAME_KINDS = ("accounts/addresses.py", "accounts/channels/", "fanout/management/demo/", "/migrations/", "/static/")
#: Each other file that names kinds, or has the same word for something else.
NAMED_BECAUSE = {
    "accounts/models.py": ({"profile"}, "the settings of a user"),
    "accounts/presets.py": ({"group"}, "presets for accounts that write to groups"),
    "config/local/embedded_keeper.py": ({"group"}, "a group of the operating system"),
    "config/logs.py": ({"mailbox"}, "mail addresses are shortened in logs"),
    "fanout/admin/account_pairing.py": ({"person"}, "a phone is paired by its number"),
    "fanout/admin/audit_trail.py": ({"group"}, "a group of users"),
    "fanout/admin/inbound_events.py": ({"group"}, "the column of an event"),
    "fanout/admin/recipient_admin.py": ({"group"}, "a filter by membership in a group"),
    "fanout/admin/reminder_admin.py": ({"mailbox"}, "a test goes to the user's own mail address"),
    "fanout/admin/replies_page.py": ({"person"}, "the name of a filter"),
    "fanout/management/commands/replies.py": ({"person"}, "the name of a filter"),
    "templates/crier/replies.html": ({"person"}, "the name of a filter"),
    "fanout/engine/commit.py": (
        {"group", "person"},
        "rows of people; the column of an event",
    ),
    "fanout/engine/simulation.py": ({"group"}, "recipients of a simulation"),
    "fanout/inbound/event_store.py": ({"group"}, "the column of an event"),
    "fanout/inbound/mails.py": ({"mailbox"}, "senders and recipients in the header of a mail"),
    "fanout/models/trail.py": ({"group"}, "a group of users"),
    "fanout/ops/broker.py": ({"group"}, "a key of a django-q2 task"),
    "fanout/runs/erasing.py": ({"group"}, "the column of an event"),
    "reminders/groups.py": ({"group", "person"}, "providers list groups and contacts"),
    "reminders/imports.py": ({"group"}, "the heading of a column of names"),
    "reminders/opt_outs.py": ({"group"}, "a group of a regular expression"),
    "reminders/readiness.py": ({"mailbox"}, "replies that arrive by mail are read from a mailbox"),
}


def product_files() -> Iterator[tuple[str, str]]:
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".html") and not any(part in name for part in MAY_NAME_KINDS):
            yield name, path.read_text()


def test_other_modules_ask_the_table() -> None:
    """What is said for one kind is missing for the next one: add the fact to AddressKind and ask for it."""
    named = {name: {(match[1] or match[2]).lower() for match in NAMED.finditer(text)} for name, text in product_files()}

    assert {name: words for name, words in named.items() if words} == {
        name: words for name, (words, _) in NAMED_BECAUSE.items()
    }


def test_other_modules_compare_no_kind() -> None:
    assert [(name, match[0]) for name, text in product_files() for match in COMPARED.finditer(text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "if kind == PERSON:",
        "if guess_kind(address) != GROUP:",
        "Q(recipient__kind=PERSON)",
        "filter(kind__in=(GROUP, PERSON))",
        "WHERE p.kind <> 'group'",
        "AND kind IN ('person', 'mailbox')",
        "AND kind = 'person'",
        '{% if entry.kind == "group" %}',
    ],
)
def test_a_comparison_is_found(line: str) -> None:
    assert COMPARED.search(line)
    assert NAMED.search(line)


@pytest.mark.parametrize(
    ("n", "kinds", "words"),
    [
        (1, {"person"}, "1 person"),
        (2, {"person"}, "2 people"),
        (1_200, {"group"}, "1,200 groups"),
        (2, {"mailbox"}, "2 mailboxes"),
        (2, {"profile"}, "2 LinkedIn profiles"),
        (2, {"group", "person"}, "2 recipients"),
        (1, set(), "1 recipient"),
    ],
)
def test_recipients_are_called_what_they_are(n: int, kinds: set[str], words: str) -> None:
    assert counted_as(n, kinds) == words
