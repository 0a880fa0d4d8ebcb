"""Description of WhatsApp's Cloud API: Meta's own, for numbers that are registered with it."""

from __future__ import annotations

from datetime import timedelta

from accounts.actions import Action
from accounts.addresses import GROUP, PERSON
from accounts.channels.base import TIMEOUT, CaptionedAudio, Channel
from accounts.channels.settings import LANGUAGE, META_ID, Field, FieldKind

#: For so long after a person's message an account may write freely to them; afterwards only a template reaches them.
FREE_FOR = timedelta(hours=24)

CHANNEL = Channel(
    key="cloud",
    label="WhatsApp Cloud API",
    transport="accounts.channels.cloud.transport:CloudTransport",
    webhook="accounts.channels.cloud.webhook:CloudWebhook",
    kinds=frozenset({GROUP, PERSON}),
    actions=(Action.MESSAGE,),
    uploads=True,
    # Meta takes office files, PDF and plain text as documents, so audio cannot go as one either.
    captioned_audio=CaptionedAudio.REFUSED,
    file_mb={"image": 5, "video": 16},
    receipts=True,
    inbound=True,
    lists_groups=True,
    lists_templates=True,
    free_for=FREE_FOR,
    own_kind=PERSON,
    fields=(
        Field(
            name="phone_number_id",
            label="Phone number ID",
            required=True,
            destination=True,
            form=META_ID,
            help="Meta's id of the number, from the app's API setup; not the number itself.",
        ),
        Field(
            name="business_account_id",
            label="WhatsApp Business account ID",
            form=META_ID,
            help="Meta's id of the account with this number, from the app's API setup. Templates are read from "
            "it, and reports about other business accounts are ignored. Empty: it is filled in when the account is "
            "tested, or by the first report about this number.",
        ),
        Field(
            name="template",
            label="Template",
            help="For texts without a template of their own: an approved template with one numbered variable and words "
            "around it, such as “News: {{1}} Reply STOP to get no more.” Texts go out as its value, which is the only "
            "way to people who have not written within 24 hours; line breaks become spaces. Empty: texts go out as "
            "they are.",
        ),
        Field(
            name="template_language",
            label="Template's language",
            default="en",
            form=LANGUAGE,
            help="For example en or pt_BR.",
        ),
        Field(
            name="access_token",
            label="Access token",
            secret=True,
            required=True,
            help="Of a system user with the permission whatsapp_business_messaging, and whatsapp_business_management "
            "to read the templates.",
        ),
        Field(
            name="app_secret",
            label="App secret",
            secret=True,
            help="Meta signs webhooks with it. Empty: webhooks are refused.",
        ),
        Field(
            name="verify_token",
            label="Verify token",
            secret=True,
            help="Any text; enter the same one where you register the webhook at Meta. Subscribe it there to messages, "
            "account_update and user_preferences. One webhook serves all numbers of an app that have its app secret.",
        ),
        Field(
            name="url",
            label="Address of the API",
            kind=FieldKind.URL,
            default="https://graph.facebook.com",
            destination=True,
            hosts=("facebook.com",),
            advanced=True,
            help="Meta's own.",
        ),
        Field(name="version", label="Version of the API", default="v23.0", advanced=True),
        TIMEOUT,
    ),
)
