"""Templates of the Cloud API: what they ask for, what Meta would refuse, how they read, and when one is needed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, CheckFailed, Kind, NotSent, Part, Refused
from accounts.channels.cloud.channel import CHANNEL
from accounts.channels.cloud.transport import CloudTransport
from accounts.channels.http import Answer
from accounts.channels.templates import (
    WINDOW_CLOSED,
    Button,
    Template,
    Way,
    collapsed,
    preview,
    problems,
    template_in,
    template_of,
    way_to,
)
from tests.channels.contract import TEXT, media
from tests.gateways.captures import cloud as captures
from tests.gateways.fake_gateway import FakeGateway

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LIST = "/v23.0/20400/message_templates"


def transport(**config: Any) -> CloudTransport:
    secrets = {"access_token": "k", "app_secret": config.pop("app_secret", "s")}
    return CloudTransport(AccountConfig(1, "cloud", "Line", "", {"phone_number_id": "10200", **config}, secrets))


def sent(part: Part, **config: Any) -> dict[str, Any]:
    request = asyncio.run(transport(**config).message("+4917612345678", part, "m-1"))
    body: dict[str, Any] = json.loads(request.content)
    return body


def template(capture: captures.TemplateCapture) -> Template:
    found = template_of(capture.item)
    assert found is not None
    return found


def named(name: str) -> Template:
    return template(next(capture for capture in captures.TEMPLATES if capture.name == name))


def part_of(capture: captures.TemplateCapture) -> Part:
    """Return a part with the template as a run keeps it."""
    kept = json.loads(json.dumps(template(capture).as_part(capture.values)))
    part = Part("1:0", 0, capture.file or "text", "Free text", template=kept)
    return replace(part, media=media(), handle="h") if capture.file else part


# -- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", captures.TEMPLATES, ids=lambda capture: capture.name)
def test_a_template_with_its_values(capture: captures.TemplateCapture) -> None:
    chosen = template(capture)

    assert chosen.unusable() == ""
    assert [variable.key for variable in chosen.variables()] == list(capture.values)
    assert all(variable.example for variable in chosen.variables())
    assert problems(chosen, capture.values, capture.file) == []
    assert preview(chosen, capture.values) == capture.preview
    assert template_in(part_of(capture).template or {}) == chosen


@pytest.mark.parametrize("capture", captures.TEMPLATES, ids=lambda capture: capture.name)
def test_the_message_that_it_makes(capture: captures.TemplateCapture) -> None:
    body = sent(part_of(capture))

    assert body["type"] == "template"
    assert body["template"].pop("components", []) == capture.components
    assert body["template"] == {"name": capture.item["name"], "language": {"code": "en"}}


def test_what_it_asks_for_in_words() -> None:
    assert list(map(str, named("numbered").variables())) == [
        "{{1}} in the header",
        "{{1}} in the body",
        "{{2}} in the body",
        "the link of button 2",
    ]


@pytest.mark.parametrize("odd", [None, "x", {}, {"name": "a"}, {"name": [], "language": {}}, {"language": "en"}])
def test_what_is_no_template_is_passed_over(odd: Any) -> None:
    assert template_of(odd) is None


def test_odd_components_are_passed_over() -> None:
    components = ["x", None, {"type": "BODY", "text": 7, "example": {"body_text": "x"}}, {"type": "BUTTONS"}]

    assert template_of({"name": "a", "language": "en", "components": components}) == Template(
        "a", "en", status="", body="7"
    )


def test_ten_numbers_keep_their_order() -> None:
    chosen = Template("a", "en", body=" ".join(f"x {{{{{n}}}}}" for n in range(11, 0, -1)))

    assert [variable.name for variable in chosen.variables()] == [str(n) for n in range(1, 12)]


# -- before saving ----------------------------------------------------------------------------------------


def test_what_meta_would_refuse() -> None:
    values = {"header.1": "x" * 60, "body.1": "two\nlines", "body.2": " ", "button.1": "a\tb"}

    assert problems(named("numbered"), values, "video") == [
        "The template concert (en) carries no video: choose one with such a header, or take the file out.",
        "Write {{1}} in the body on one line: Meta takes no line breaks, tabs or more than four spaces in a row "
        "there. Line breaks belong into the template itself.",
        "Fill in {{2}} in the body.",
        "Write the link of button 2 on one line: Meta takes no line breaks, tabs or more than four spaces in a row "
        "there. Line breaks belong into the template itself.",
        "The header has 71 characters with its values; Meta takes at most 60. Shorten them.",
    ]


@pytest.mark.parametrize(("spaces", "fits"), [(4, True), (5, False)])
def test_four_spaces_are_allowed(spaces: int, fits: bool) -> None:
    assert (not problems(named("picture"), {"body.1": f"a{' ' * spaces}b"}, "image")) == fits


@pytest.mark.parametrize(("length", "fits"), [(1024, True), (1025, False)])
def test_the_body_counts_with_its_values(length: int, fits: bool) -> None:
    chosen = Template("a", "en", body="News: {{1}}.")

    assert (not problems(chosen, {"body.1": "x" * (length - len("News: ."))})) == fits


def test_a_header_with_a_picture_needs_one() -> None:
    assert problems(named("picture"), {"body.1": "May"}) == [
        "The template poster (en) starts with an image: add one to this part."
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": "PAUSED"}, "The template a (en) cannot be used: Meta has paused it, because people blocked"),
        ({"status": "LIMIT_EXCEEDED"}, "The template a (en) cannot be used: Meta says LIMIT_EXCEEDED."),
        ({"header": "location"}, "The template a (en) has a header that Crier does not send: location."),
        ({"buttons": (Button("OTP", "Copy"),)}, "The template a (en) has a button that Crier does not send: OTP."),
    ],
    ids=["paused", "a status of tomorrow", "a map", "a one-time password"],
)
def test_why_a_template_cannot_be_used(change: dict[str, Any], why: str) -> None:
    chosen = replace(Template("a", "en", body="Hello."), **change)

    assert chosen.unusable().startswith(why)
    assert problems(chosen, {}) == [chosen.unusable()]


def test_a_preview_shows_what_is_missing() -> None:
    assert preview(named("named"), {"body.seat": "a\nb"}) == "Dear {{first_name}},\nyour seat is a b."


@pytest.mark.parametrize(
    ("value", "finished"),
    [
        ("a\nb", "a b"),
        ("a\r\n\tb", "a b"),
        ("a  \n  \n b", "a b"),
        ("a     b", "a b"),
        ("a    b", "a    b"),
        (" a\u2028b ", "a b"),
    ],
)
def test_personal_words_on_one_line(value: str, finished: str) -> None:
    assert collapsed(value) == finished


# -- sending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "has_template", "way"),
    [
        (0, False, Way.FREE),
        (23.9, True, Way.FREE),
        # A margin before Meta's own end, which nothing may miss.
        (23.95, False, Way.NONE),
        (23.95, True, Way.TEMPLATE),
        (24, False, Way.NONE),
        (24, True, Way.TEMPLATE),
        (None, False, Way.NONE),
        (None, True, Way.TEMPLATE),
    ],
)
def test_the_way_to_a_person(hours: float | None, has_template: bool, way: Way) -> None:
    last_wrote_at = None if hours is None else NOW - timedelta(hours=hours)

    assert way_to(last_wrote_at, has_template, NOW) is way


def test_the_moment_at_which_the_free_time_ends_is_not_free() -> None:
    assert way_to(CHANNEL.free_since(NOW), False, NOW) is Way.NONE


RECENTLY, LONG_AGO = NOW - timedelta(hours=1), NOW - timedelta(days=2)
NUMBERED = part_of(captures.TEMPLATES[1])
FILE = Part("1:0", 0, "image", "Look", media=media(), handle="h")


@pytest.mark.parametrize(
    ("part", "config", "last_wrote_at", "kind"),
    [
        (NUMBERED, {}, RECENTLY, "text"),
        (NUMBERED, {}, LONG_AGO, "template"),
        (TEXT, {}, RECENTLY, "text"),
        (TEXT, {}, LONG_AGO, ""),
        (TEXT, {}, None, ""),
        (TEXT, {"app_secret": ""}, None, "text"),
        (TEXT, {"template": "news"}, LONG_AGO, "template"),
        (TEXT, {"template": "news"}, RECENTLY, "text"),
        (FILE, {"template": "news"}, RECENTLY, "image"),
        (FILE, {"template": "news"}, LONG_AGO, ""),
        (part_of(captures.TEMPLATES[3]), {}, LONG_AGO, "template"),
    ],
    ids=[
        "chosen, not needed",
        "chosen and needed",
        "free text",
        "closed",
        "never wrote",
        "gets no replies",
        "the account's",
        "the account's, not needed",
        "a file",
        "a file, closed",
        "a file in a header",
    ],
)
def test_what_goes_out(part: Part, config: dict[str, Any], last_wrote_at: datetime | None, kind: str) -> None:
    fitted = transport(**config).fit(part, last_wrote_at, NOW)

    if kind:
        assert isinstance(fitted, Part)
        assert sent(fitted, **config)["type"] == kind
    else:
        assert fitted == NotSent(Kind.NOT_WRITABLE, WINDOW_CLOSED)


@pytest.mark.parametrize(
    ("part", "config", "sentence"),
    [
        (TEXT, {}, WINDOW_CLOSED),
        (FILE, {"template": "news"}, WINDOW_CLOSED),
        (replace(TEXT, free=True), {}, WINDOW_CLOSED),
        (NUMBERED, {}, "HTTP 400 Re-engagement message (131047). Only a template"),
        (replace(NUMBERED, free=True), {}, "HTTP 400 Re-engagement message (131047). Only a template"),
        (TEXT, {"template": "news"}, "HTTP 400 Re-engagement message (131047). Only a template"),
    ],
    ids=["a text", "a file", "believed to be open", "a template", "has one for later", "the account's"],
)
def test_metas_own_word_that_the_window_is_closed(part: Part, config: dict[str, Any], sentence: str) -> None:
    answer = Answer(400, {"error": {"code": 131047, "message": "Re-engagement message"}})
    outcome = transport(**config).outcome_of(answer, part)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NOT_WRITABLE
    assert outcome.detail.startswith(sentence)


LONG = replace(TEXT, free=True, text="x" * 4097)
UNFIT = {
    "a template without a value": (replace(NUMBERED, template={**(NUMBERED.template or {}), "values": {}}), "no value"),
    "a long text": (LONG, "4,097 characters for this person; Meta takes at most 4,096"),
    "a long caption": (replace(FILE, text="x" * 1025), "at most 1,024"),
    "an empty text": (replace(TEXT, text=" \n"), "no empty messages"),
    "a caption of audio": (replace(FILE, kind="audio"), "no caption"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_meta_would_refuse_is_known_before_the_call(case: str) -> None:
    part, words = UNFIT[case]
    refused = transport().unfit(part)

    assert refused is not None
    assert refused.kind is Kind.CONTENT_REJECTED
    assert words in refused.detail


@pytest.mark.parametrize("part", [TEXT, FILE, NUMBERED, replace(LONG, text="x" * 4096), replace(FILE, text="")])
def test_what_meta_takes_is_fit(part: Part) -> None:
    assert transport().unfit(part) is None


def test_a_text_of_two_lines_is_one_line_in_the_accounts_template() -> None:
    body = sent(replace(TEXT, text="Doors open at nine.\nBring a friend."), template="news")

    assert body["template"]["components"][0]["parameters"] == [
        {"type": "text", "text": "Doors open at nine. Bring a friend."}
    ]


def by_own(template: Template, text: str) -> Any:
    config = {"phone_number_id": "10200", "template": template.name, "template_language": "en"}
    listed = json.loads(json.dumps(asdict(template)))
    secrets = {"access_token": "k", "app_secret": "s"}
    sender = CloudTransport(AccountConfig(1, "cloud", "Line", "", config, secrets, own_template=listed))
    refused = sender.unfit(replace(TEXT, text=text))
    return refused.detail if refused else sender._content(replace(TEXT, text=text))


def test_a_named_variable_of_the_accounts_template_is_named() -> None:
    body = by_own(Template("news", "en", named=True, body="News: {{text}} Reply STOP."), "Doors")

    assert body["template"]["components"][0]["parameters"] == [
        {"parameter_name": "text", "type": "text", "text": "Doors"}
    ]


@pytest.mark.parametrize(("length", "fits"), [(1024, True), (1025, False)])
def test_the_accounts_template_counts_with_its_words(length: int, fits: bool) -> None:
    found = by_own(Template("news", "en", body="News: {{1}} Reply STOP."), "x" * (length - len("News:  Reply STOP.")))

    assert (not isinstance(found, str)) == fits
    assert fits or "The body has 1,025 characters with its values" in found


@pytest.mark.parametrize(
    "change",
    [
        {"body": "News."},
        {"body": "News: {{1}}, {{2}}."},
        {"header": "text", "header_text": "On {{1}}"},
        {"header": "image"},
        {"body": "News.", "buttons": (Button("URL", "Go", "https://example.org/{{1}}"),)},
    ],
    ids=["no variable", "two", "one in the header too", "a picture", "a link alone"],
)
def test_a_text_needs_one_place_in_the_accounts_template(change: dict[str, Any]) -> None:
    found = by_own(replace(Template("news", "en", body="News: {{1}}."), **change), "Doors")

    assert found.startswith("Texts cannot go by the account's template news (en)")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (replace(NUMBERED, template={**(NUMBERED.template or {}), "values": {}}), "has no value for {{1}} in the head"),
        (replace(part_of(captures.TEMPLATES[3]), media=None), "starts with an image"),
        (replace(TEXT, text="x" * 1025), "Meta takes at most 1,024"),
    ],
    ids=["a value is missing", "a file is missing", "too long"],
)
def test_what_meta_would_refuse_is_not_sent(part: Part, words: str) -> None:
    with pytest.raises(Refused, match=r"template|characters") as caught:
        sent(part, template="news")
    assert caught.value.reason.kind is Kind.CONTENT_REJECTED
    assert words in caught.value.reason.detail


# -- the account's list -----------------------------------------------------------------------------------


def page(*names: str, after: str = "", more: bool = False) -> Answer:
    items = [captures.listed(name, {"type": "BODY", "text": "Hello."}) for name in names]
    paging = {"cursors": {"before": "b", "after": after}} | ({"next": "https://elsewhere.example"} if more else {})
    return Answer(200, {"data": items, "paging": paging})


def test_the_templates_of_all_pages() -> None:
    gateway = FakeGateway("cloud", {LIST: [page("a", "b", after="1", more=True), page("c", after="2")]})

    found = gateway.use(lambda transport: transport.templates(), business_account_id="20400")

    assert [one.name for one in found] == ["a", "b", "c"]
    assert [request.query.get("after") for request in gateway.requests] == [None, "1"]
    assert {request.query["fields"] for request in gateway.requests} == {
        "name,language,status,category,parameter_format,components"
    }


def test_a_list_of_templates_without_an_end_has_one() -> None:
    gateway = FakeGateway("cloud", {LIST: page("a", after="on", more=True)})

    assert len(gateway.use(lambda transport: transport.templates(), business_account_id="20400")) == 20


@pytest.mark.parametrize("body", [{}, {"data": "x"}, {"data": [None, {"id": "1"}]}])
def test_a_list_without_templates(body: dict[str, Any]) -> None:
    gateway = FakeGateway("cloud", {LIST: Answer(200, body)})

    assert gateway.use(lambda transport: transport.templates(), business_account_id="20400") == []


def test_templates_are_read_from_the_business_account() -> None:
    with pytest.raises(CheckFailed, match="Enter the WhatsApp Business account ID"):
        FakeGateway("cloud", {}).use(lambda transport: transport.templates())


def test_a_refused_list_says_why() -> None:
    error = {"error": {"message": "(#200) No", "code": 200}}
    gateway = FakeGateway("cloud", {LIST: Answer(403, error)})

    with pytest.raises(CheckFailed, match="lacks a permission") as caught:
        gateway.use(lambda transport: transport.templates(), business_account_id="20400")
    assert caught.value.kind is Kind.AUTH
