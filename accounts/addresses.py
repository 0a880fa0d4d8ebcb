"""One recipient, one address: what people paste, brought to the one spelling that is stored. Pure.

    person    E.164, "+4917612345678"
    group     WhatsApp group id, "120363025246125486@g.us", or the Cloud API's own, "Y2FwaV9ncm91cDox…"
    mailbox   "ann@example.com", the domain as it goes over the wire (IDNA)
    profile   LinkedIn profile, "linkedin.com/in/ann-lee"

Normalising an address that is already normal changes nothing.

`KINDS`, at the end, describes each kind of address. The rest of Crier asks it instead of naming a kind.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

import idna
import phonenumbers
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberFormat, ValidationResult

PERSON = "person"
GROUP = "group"
MAILBOX = "mailbox"
PROFILE = "profile"

PERSON_SUFFIXES = ("@s.whatsapp.net", "@c.us")
GROUP_SUFFIX = "@g.us"
WHATSAPP_SUFFIXES = (*PERSON_SUFFIXES, GROUP_SUFFIX, "@lid", "@broadcast", "@newsletter")

# RFC 5321, 4.5.3.1: a path of 256 octets with its two angle brackets, a local part of 64.
MAX_MAILBOX, MAX_LOCAL_PART = 254, 64
# A display name may be long, but no pasted address is longer than this.
MAX_RAW = 500

SCHEME = re.compile(r"(whatsapp|tel|sms|mailto):", re.IGNORECASE)
# In a WhatsApp id the user may be followed by an agent (.0) and a device (:12): "49176….0:12@s.whatsapp.net".
DEVICE = re.compile(r"([._][0-9]{1,3})?(:[0-9]{1,5})?$")
PHONE = re.compile(r"\+?[0-9][0-9 ()./-]*|\+?\([0-9 ()./-]*")
GROUP_ID = re.compile(r"[0-9]{1,32}(-[0-9]{1,32})?")
# A group id that cannot be a phone number: creator-timestamp, or longer than E.164 allows.
SURELY_GROUP = re.compile(r"[0-9]{7,15}-[0-9]{10}|[0-9]{16,32}")
# Meta's ids of groups: base64 of "capi_group:…", in which upper and lower case differ.
CLOUD_GROUP = re.compile(r"Y2FwaV9ncm91cD[A-Za-z0-9_=-]{2,200}")
# A LinkedIn profile as people copy it from a browser, or only its last part.
PROFILE_URL = re.compile(r"(?:https?://)?(?:[a-z]{2,3}\.)?linkedin\.com/in/([^/?#]+)/?(?:[?#].*)?", re.IGNORECASE)
# LinkedIn's own id of a member, in which upper and lower case differ.
MEMBER_ID = re.compile(r"AC[a-zA-Z][A-Za-z0-9_-]{20,}")
PROFILE_PREFIX = "linkedin.com/in/"
MIN_PROFILE, MAX_PROFILE = 3, 150
# Brazil put a 9 before its mobile numbers until 2016. Those had eight digits, the first from 6 to 9; fixed lines begin
# with 2 to 5, so a mobile number of a later range (9 1… to 9 5…) never had eight digits and would become a fixed line.
BRAZIL_WITHOUT_NINE = re.compile(r"(\+55[1-9]{2})([6-9][0-9]{7})")
BRAZIL_WITH_NINE = re.compile(r"(\+55[1-9]{2})9([6-9][0-9]{7})")
# Argentina's mobile numbers have a 9 after 54 when they are called from abroad, and none in most address books. No
# fixed line has the same ten digits.
ARGENTINA = re.compile(r"\+54(9?)([1-3][0-9]{9})")
LOCAL_PUNCTUATION = "!#$%&'*+-/=?^_`{|}~"
#: digits of a cell that may be a phone number
FEWEST_DIGITS = 6
#: Digits of a number with every prefix that may be in front of it; E.164 has 15. Longer ones take long to look up.
MOST_DIGITS = 25
WRONG_NUMBER = "This phone number has a wrong length or an unknown country code."


class AddressError(ValueError):
    """Raised for text that is not an address; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressKind:
    """Everything that is particular to a kind of address."""

    key: str  # as recipients store it
    label: str  # in forms
    singular: str  # in sentences
    plural: str
    #: Returns the stored spelling of a cleaned text, or raises AddressError. The second argument is the default region.
    normalise: Callable[[str, str | None], str]
    #: Returns whether a line of a pasted list is probably meant as such an address; it may have typing errors.
    looks_like: Callable[[str], bool]
    #: Every stored address begins with this.
    prefix: str = ""
    #: One person reads it: they can reply and opt out, and the first word of the name is their first name. Otherwise
    #: it is a group.
    one_person: bool = True
    #: The first message to such an address begins a chat, which WhatsApp counts and limits.
    begins_chats: bool = False
    #: The label of the account form's field, where an account's own address can be of this kind.
    own_label: str = ""
    #: Usual headings of its column in a table, as `reminders.imports.field_name` writes them.
    headings: tuple[str, ...] = ()


def counted_as(n: int, kinds: Collection[str]) -> str:
    """Return a number of recipients by what they are: “3 groups”, “1 person”; recipients where they are mixed."""
    known = [KINDS[kind] for kind in kinds if kind in KINDS]
    one, many = (known[0].singular, known[0].plural) if len(known) == 1 else ("recipient", "recipients")
    return f"{n:,} {one if n == 1 else many}"


def normalise(kind: str, raw: str, default_region: str | None = None) -> str:
    """Return the stored spelling of an address. `default_region` ("DE") is for phone numbers without country code."""
    text = _clean(raw)
    if kind not in KINDS:
        raise ValueError(f"Unknown kind of recipient: {kind}.")
    return KINDS[kind].normalise(text, default_region)


def spellings_of(address: str) -> tuple[str, ...]:
    """Return the stored addresses that a WhatsApp id can mean: itself in the stored spelling, then the others.

    An id keeps the form that the number had when the person signed up with WhatsApp, while lists have the form of today
    or an older one: ids of Brazilian numbers from area code 31 on often lack the ninth digit, Argentine ids have the 9.
    Two spellings mean each other. Mexico's 1 after 52 is in no stored address.
    """
    if match := BRAZIL_WITHOUT_NINE.fullmatch(address):
        return address, f"{match[1]}9{match[2]}"
    if match := BRAZIL_WITH_NINE.fullmatch(address):
        return address, f"{match[1]}{match[2]}"
    if match := ARGENTINA.fullmatch(address):
        return address, f"+54{'' if match[1] else '9'}{match[2]}"
    return (address,)


def guess_kind(raw: str) -> str:
    """Return the most likely kind of a line in a pasted list. The line may still not be an address at all."""
    text = raw.strip()
    for kind in GUESSED:
        if kind.looks_like(text):
            return kind.key
    return PERSON


def looks_like_an_address(raw: str) -> bool:
    """Return whether a line is probably meant as an address of any kind, perhaps with a typing error."""
    text = raw.strip()
    return any(kind.looks_like(text) for kind in KINDS.values())


def plurals(kinds: Collection[str]) -> str:
    """Return the kinds in words, the most usual first: "people, groups and mailboxes"."""
    *others, last = [kind.plural for kind in USUAL_FIRST if kind.key in kinds] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def sql_list(keys: Iterable[str]) -> str:
    """Return keys of kinds as the list behind IN or NOT IN in a statement."""
    quoted = ", ".join(f"'{key}'" for key in keys)
    return f"({quoted})"


def _clean(raw: str) -> str:
    if len(raw) > MAX_RAW:
        raise AddressError("The address is too long.")
    plain = raw.isascii() and raw.isprintable()  # as nearly all are: then no character needs a check
    # Numbers copied from a contact card come wrapped in invisible direction marks (category Cf).
    text = raw.strip() if plain else "".join(c for c in raw if unicodedata.category(c) != "Cf").strip()
    if not plain and any(unicodedata.category(c).startswith(("C", "Zl", "Zp")) for c in text):
        # A line break in an address is how foreign headers get into a mail.
        raise AddressError("The address contains a line break or another control character.")
    text = SCHEME.sub("", text, count=1).strip() if SCHEME.match(text) else text
    if not text:
        raise AddressError("The address is empty.")
    return text


# --- numbers --------------------------------------------------------------------------------------------------


def _like_a_person(text: str) -> bool:
    """Accept numbers without country code: they are problems to report, not headings."""
    return sum(map(str.isdigit, text)) >= FEWEST_DIGITS


def _person(text: str, region: str | None) -> str:
    # NFKC turns full-width digits and signs into plain ones.
    text = unicodedata.normalize("NFKC", text).lower()
    user, at, server = text.partition("@")
    if at and f"@{server}" == GROUP_SUFFIX:
        raise AddressError("This is a group, not a person.")
    if at and f"@{server}" == "@lid":
        raise AddressError("This is a hidden WhatsApp id, which carries no phone number.")
    if at and f"@{server}" not in PERSON_SUFFIXES:
        raise AddressError("This is not a phone number; it looks like a mail address.")
    if at or ":" in user:
        # An id is always international, without plus and without 00.
        user = "+" + DEVICE.sub("", user).lstrip("+")
    return _e164(_dialled(user), region)


def _dialled(user: str) -> str:
    """Return the digits, with a plus in front when the country code is certain."""
    if not user.isascii():
        user = "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in user)
        user = re.sub(r"[\u2010-\u2015\u2212]", "-", user)
    if not PHONE.fullmatch(user):
        raise AddressError("This is not a phone number.")
    digits = re.sub(r"[^0-9]", "", user)
    if len(digits) > MOST_DIGITS:
        raise AddressError(WRONG_NUMBER)
    if user.startswith("+"):
        return "+" + digits
    if digits.startswith("00"):
        return "+" + digits[2:]
    return digits


def _e164(number: str, region: str | None) -> str:
    parsed = [p for text, where in _readings(number, region) if (p := _parse(text, where))]
    if not parsed:
        if number.startswith("0"):
            raise AddressError("The phone number needs its country code, for example +49 176 12345678.")
        raise AddressError(WRONG_NUMBER)
    # Lengths decide, not number ranges: the tables lag behind newly assigned ranges, and refusing a real
    # recipient is worse than a provider's "no such number". Ranges only choose between two readings.
    among = parsed if len(parsed) > 1 else ()
    best = next((p for p in among if phonenumbers.is_valid_number(p)), parsed[0])
    normal = phonenumbers.format_number(best, PhoneNumberFormat.E164)
    # A trunk zero typed twice ("+49 00176…") goes away one at a time.
    return normal if normal == number else _e164(normal, None)


def _readings(number: str, region: str | None) -> list[tuple[str, str | None]]:
    """Return the possible meanings of the digits, likeliest first."""
    if number.startswith("+"):
        # WhatsApp still puts the 1 of before 2019 into Mexican ids.
        return [(re.sub(r"^\+521([0-9]{10})$", r"+52\1", number), None)]
    abroad: tuple[str, str | None] = ("+" + number, None)
    if not region:
        return [abroad]
    home = (number, region)
    return [home, abroad] if _as_written_at_home(number, region) else [abroad, home]


def _as_written_at_home(number: str, region: str) -> bool:
    # Almost any digits parse as a German number, but in Germany one would have been written with a 0 in
    # front: without it they are more likely an international number that lost its plus.
    parsed = _parse(number, region)
    if parsed is None:
        return False
    national = phonenumbers.format_number(parsed, PhoneNumberFormat.NATIONAL)
    return re.sub(r"[^0-9]", "", national) == number


def _parse(text: str, region: str | None) -> PhoneNumber | None:
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        return None
    possible = phonenumbers.is_possible_number_with_reason(number) == ValidationResult.IS_POSSIBLE
    return number if possible else None


# --- groups ---------------------------------------------------------------------------------------------------


def _like_a_group(text: str) -> bool:
    if CLOUD_GROUP.fullmatch(text):
        return True
    text = _without_scheme(text)
    return text.endswith(GROUP_SUFFIX) or SURELY_GROUP.fullmatch(text) is not None


def _without_scheme(text: str) -> str:
    return (SCHEME.sub("", text, count=1) if ":" in text else text).lower()


def _group(text: str, _: str | None) -> str:
    if CLOUD_GROUP.fullmatch(text):
        return text
    text = unicodedata.normalize("NFKC", text).lower()
    if text.endswith(PERSON_SUFFIXES):
        raise AddressError("This is a person, not a group.")
    if not GROUP_ID.fullmatch(text.removesuffix(GROUP_SUFFIX)):
        raise AddressError("A group id is a number, or two joined by a hyphen, followed by @g.us.")
    return text.removesuffix(GROUP_SUFFIX) + GROUP_SUFFIX


# --- LinkedIn profiles ----------------------------------------------------------------------------------------


def _like_a_profile(text: str) -> bool:
    return PROFILE_URL.fullmatch(text) is not None


def _profile(text: str, _: str | None) -> str:
    address = PROFILE_URL.fullmatch(text)
    name = unquote(address[1] if address else text)
    if not MEMBER_ID.fullmatch(name):
        name = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())
    if not MIN_PROFILE <= len(name) <= MAX_PROFILE or not all(c.isalnum() or _is_mark(c) or c in "-_" for c in name):
        raise AddressError("A LinkedIn profile looks like https://www.linkedin.com/in/ann-lee.")
    return PROFILE_PREFIX + name


# --- mailboxes ------------------------------------------------------------------------------------------------


def _like_a_mailbox(text: str) -> bool:
    return "@" in text and not _without_scheme(text).endswith((*PERSON_SUFFIXES, GROUP_SUFFIX))


def _mailbox(text: str, _: str | None) -> str:
    text = unicodedata.normalize("NFC", text)
    if text.endswith(">") and "<" in text:
        text = text[text.rindex("<") + 1 : -1].strip()
    if text.lower().endswith(WHATSAPP_SUFFIXES):
        raise AddressError("This is a WhatsApp id, not a mail address.")
    local, at, domain = text.rpartition("@")
    if not at:
        raise AddressError("A mail address needs an @.")
    address = f"{_local_part(local)}@{_domain(domain)}"
    if len(address.encode()) > MAX_MAILBOX:
        raise AddressError(f"A mail address has at most {MAX_MAILBOX} characters.")
    return address


def _local_part(local: str) -> str:
    # The standard lets a server tell Ann from ann; no provider does. Lower case makes one mailbox one
    # recipient, so an opt-out of ann@ also stops Ann@.
    local = unicodedata.normalize("NFC", local.lower())
    atoms = local.split(".")
    if not all(atoms) or not all(c.isalnum() or _is_mark(c) or c in LOCAL_PUNCTUATION for c in "".join(atoms)):
        raise AddressError("The part before the @ is not valid in a mail address.")
    if len(local.encode()) > MAX_LOCAL_PART:
        raise AddressError(f"The part before the @ has at most {MAX_LOCAL_PART} characters.")
    return local


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc")


@lru_cache(maxsize=10_000)  # the mailboxes of a list have few domains, and international ones take long
def _domain(domain: str) -> str:
    try:
        ascii_domain = idna.encode(domain.removesuffix("."), uts46=True).decode().lower()
    except (idna.IDNAError, UnicodeError):
        raise AddressError("The domain after the @ is not valid.") from None
    host, dot, top = ascii_domain.rpartition(".")
    if not dot or not host or top.isdigit():
        raise AddressError("The domain after the @ must be a full one, for example example.com.")
    return ascii_domain


# --- the table ------------------------------------------------------------------------------------------------

#: In the order of guessing: what no other kind looks like is taken for a number.
KINDS = {
    kind.key: kind
    for kind in (
        AddressKind(
            key=PROFILE,
            label="LinkedIn profile",
            singular="LinkedIn profile",
            plural="LinkedIn profiles",
            normalise=_profile,
            looks_like=_like_a_profile,
            prefix=PROFILE_PREFIX,
            headings=("linkedin", "linkedin_url", "profile", "profile_url"),
        ),
        AddressKind(
            key=MAILBOX,
            label="Mailbox",
            singular="mailbox",
            plural="mailboxes",
            normalise=_mailbox,
            looks_like=_like_a_mailbox,
            own_label="Mail address",
            headings=("e_mail", "email", "mail", "email_address", "e_mail_address", "mailbox"),
        ),
        AddressKind(
            key=GROUP,
            label="Group",
            singular="group",
            plural="groups",
            normalise=_group,
            looks_like=_like_a_group,
            one_person=False,
            headings=("group_id", "jid"),
        ),
        AddressKind(
            key=PERSON,
            label="Person",
            singular="person",
            plural="people",
            normalise=_person,
            looks_like=_like_a_person,
            prefix="+",
            begins_chats=True,
            own_label="Phone number",
            headings=(
                *("phone", "phone_number", "phonenumber", "mobile", "mobile_number", "mobile_phone", "cell"),
                *("whatsapp", "whatsapp_number", "number", "tel", "telephone", "telefon", "handy", "nummer"),
                "telefono",
            ),
        ),
    )
}

GUESSED = tuple(kind for kind in KINDS.values() if kind.key != PERSON)
USUAL_FIRST = tuple(reversed(KINDS.values()))
#: Keys and labels as forms offer them: groups first. The order is in a migration.
CHOICES = {kind.key: kind.label for kind in sorted(USUAL_FIRST, key=lambda kind: kind.one_person)}
GROUP_KINDS = tuple(kind.key for kind in KINDS.values() if not kind.one_person)
NEW_CHAT_KINDS = tuple(kind.key for kind in KINDS.values() if kind.begins_chats)
