"""Mails that say a mail did not arrive, and one that does not."""

from __future__ import annotations

from fanout.models import RunTarget
from fanout.rules.message_ids import message_id

REPORT = """\
From: MAILER-DAEMON@mx.example.org
To: mailer@example.com
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

I'm sorry to have to inform you that your message could not be delivered.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org
Arrival-Date: Wed, 1 Jul 2026 11:00:00 +0000

{recipients}
--b
Content-Type: {returned_type}

From: mailer@example.com
To: ann@example.org
Message-ID: <{returned}>
Subject: Reminder

{returned_text}
--b--
"""


def recipient(
    address: str = "Ann@Example.org",
    action: str = "failed",
    status: str = "5.1.1",
    code: str = "",
    original: str = "",
) -> str:
    lines = [f"Final-Recipient: rfc822; {address}"]
    if original:
        lines.append(f"Original-Recipient: rfc822;{original}")
    lines += [f"Action: {action}", f"Status: {status}"]
    if code:
        lines.append(f"Diagnostic-Code: {code}")
    return "\n".join(lines) + "\n"


def id_of(target: int | RunTarget, part: int = 0) -> str:
    """The Message-ID of a mail of ours."""
    return f"{message_id(target if isinstance(target, int) else target.pk, part)}@example.com"


def report(*recipients: str, returned: str = "", returned_type: str = "text/rfc822-headers") -> bytes:
    """A report about a mail that we sent: to target 7, unless `returned` says otherwise."""
    body = REPORT.format(
        recipients="\n".join(recipients or (recipient(),)),
        returned=returned or id_of(7),
        returned_type=returned_type,
        returned_text="Doors open at nine" if returned_type == "message/rfc822" else "",
    )
    return body.replace("\n", "\r\n").encode()


QMAIL = f"""\
From: MAILER-DAEMON@mx.example.org
To: mailer@example.com
Subject: failure notice

Hi. This is the qmail-send program at mx.example.org.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<bob@example.org>:
Sorry, no mailbox here by that name. (#5.1.1)

--- Below this line is a copy of the message.

Return-Path: <mailer@example.com>
Message-ID: <{id_of(9)}>
Subject: Reminder

Doors open at nine
""".encode()

#: no test counts that far: a target with this id would make a reply of the mail
NO_TARGET = 987_654_321

ORDINARY = f"""\
From: ann@example.org
To: mailer@example.com
Subject: Re: Reminder
In-Reply-To: <{id_of(NO_TARGET)}>

Thanks, 550 5.1.1 of us will come!
""".encode()
