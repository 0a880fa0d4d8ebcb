"""Bounce mails written for these tests from the documented forms of mail servers, each with a postmaster's verdict.

`FORMS` are the forms in which servers report, `ANSWERS` the answers that they report. Every form is measured with three
answers, and every answer in a standard report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.inbound.mails import id_of

ANN = "ann@example.org"
#: our message, as it stands below a notice
COPY = f"""\
Received: from crier.example.com by mx.example.com; Wed, 1 Jul 2026 11:00:00 +0000
From: Mailer <mailer@example.com>
To: {ANN}
Date: Wed, 1 Jul 2026 11:00:00 +0000
Message-ID: <{id_of(7)}>
Subject: Reminder

Doors open at nine
"""


@dataclass(frozen=True)
class Verdict:
    recipient: str
    reason: str
    hard: bool


@dataclass(frozen=True)
class Case:
    """A mail, and its recipients with what a postmaster says; none: it is not a bounce."""

    name: str
    form: str
    raw: bytes = field(repr=False)
    verdicts: tuple[Verdict, ...]


#: reason → (hard, answers)
ANSWERS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "userunknown": (
        True,
        (
            "550 5.1.1 <ann@example.org>: Recipient address rejected: User unknown in local recipient table",
            "550 5.1.1 The email account that you tried to reach does not exist.",
            "550 5.4.1 Recipient address rejected: Access denied. [AM6EUR05FT036.example.com]",
            "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
            "550 5.5.0 Invalid recipient",
            "550 5.5.0 Requested action not taken: mailbox unavailable",
            "550 5.1.0 Address rejected.",
            "450 4.1.1 <ann@example.org>: Recipient address rejected: User unknown",
            "553 5.1.3 sorry, no mailbox here by that name (#5.1.1)",
        ),
    ),
    "hasmoved": (True, ("551 5.1.6 Destination mailbox has moved, no forwarding address",)),
    "hostunknown": (
        True,
        (
            "550 5.1.2 Host unknown (Name server: example.org: host not found)",
            "554 5.4.4 Host or domain name not found. Name service error for name=example.org type=A: Host not found",
            "556 5.1.10 Recipient address has null MX",
            "550 5.1.2 No such domain",
        ),
    ),
    "mailboxfull": (
        False,
        (
            "552 5.2.2 <ann@example.org>... Mailbox full",
            "550 Mailbox is full",
            "554 5.1.0 - Unknown address error 550-'5.2.2 <ann@example.org>... Mailbox Full'",
            "550 5.1.1 user is over quota",
            "552 The email account that you tried to reach is over its storage limit",
        ),
    ),
    "suspend": (
        False,
        (
            "550 5.2.1 The email account that you tried to reach is disabled.",
            "550 Mailbox is frozen",
            "525 5.7.13 Disabled recipient address",
            "550 5.5.0 The recipient account is blocked",
        ),
    ),
    "filtered": (
        False,
        (
            "550 5.1.1 Refused due to recipient preferences",
            "550 5.2.0 Unknown user",
            "550 Unknown user (in reply to end of DATA command)",
        ),
    ),
    "busy": (
        False,
        (
            "550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents more messages",
            "452 4.2.2 The recipient's inbox is out of storage space",
        ),
    ),
    "authfailure": (
        False,
        (
            "550 5.7.26 Unauthenticated email from example.com is not accepted due to domain's DMARC policy",
            "550 5.7.509 Access denied, sending domain does not pass DMARC verification",
            "550 Bad SPF records for example.com",
            "550 5.7.1 Recipient address rejected: SPF check failed",
            "550 5.7.515 Access denied, sending domain doesn't meet the required authentication level",
        ),
    ),
    "reversedns": (
        False,
        (
            "550 5.7.25 Reverse DNS validation failed",
            "554 This system will not accept messages from servers with no reverse DNS",
        ),
    ),
    "blocked": (
        False,
        (
            "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org",
            "550 5.1.3 MailFrom domain is listed in Spamhaus; user unknown",
            "550 5.7.606 Access denied, banned sending IP [192.0.2.1]",
            "550 Ip frequency limited [Blocked IP 192.0.2.1]",
            "550 5.1.0 <mailer@example.com> sender rejected. AUP#BL",
            "421 4.7.0 Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints",
        ),
    ),
    "rejected": (
        False,
        (
            "501 5.1.8 Sender address rejected: Domain not found",
            "550 5.7.1 You are not allowed to post to this mailing list",
        ),
    ),
    "norelaying": (False, ("554 5.7.1 <ann@example.org>: Relay access denied", "550 5.7.0 No relaying")),
    "spamdetected": (
        False,
        ("554 5.7.1 Message content rejected, UBE", "550 5.2.0 This message was classified as spam and rejected"),
    ),
    "virusdetected": (False, ("550 Virus detected; content rejected", "552 5.7.0 illegal attachment on your message")),
    "mesgtoobig": (
        False,
        (
            "552 5.3.4 Message size exceeds fixed limit",
            "550 5.2.3 RESOLVER.RST.RecipSizeLimit; message too large for this recipient",
        ),
    ),
    "policyviolation": (
        False,
        (
            "550 5.1.1 Denied by spam policy",
            "554 5.7.9 Message not accepted for policy reasons",
            "550 5.7.0 Header error",
        ),
    ),
    "networkerror": (
        False,
        (
            "550 5.4.316 Message expired, connection refused(Socket error code 10061)",
            "554 5.4.4 Name service error for name=example.org type=MX: Host not found, try again",
        ),
    ),
    "systemerror": (False, ("554 5.3.0 Internal system error", "451 4.3.0 Upstream error, please try again later")),
}

#: the answers with which every form is measured
MEASURED = (
    ("userunknown", "550 5.1.1 <ann@example.org>... User unknown"),
    ("mailboxfull", "552 5.2.2 <ann@example.org>... Mailbox full"),
    ("authfailure", "550 5.7.26 Unauthenticated email from example.com is not accepted due to domain's DMARC policy"),
)

REPORT = """\
From: MAILER-DAEMON@mx.example.org
To: mailer@example.com
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

Your message could not be delivered.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org

Final-Recipient: rfc822; {ann}
Action: failed
Status: {status}
Diagnostic-Code: smtp; {answer}

--b
Content-Type: message/rfc822

{copy}
--b--
"""
FORMS: dict[str, str] = {
    "RFC 3464": REPORT,
    "Postfix without a report": """\
From: MAILER-DAEMON@mx.example.com (Mail Delivery System)
To: mailer@example.com
Subject: Undelivered Mail Returned to Sender

This is the mail system at host mx.example.com.

I'm sorry to have to inform you that your message could not
be delivered to one or more recipients. It's attached below.

For further assistance, please send mail to <postmaster@mx.example.com>

<{ann}>: host mx.example.org[192.0.2.25] said: {answer}
    (in reply to RCPT TO command)

{copy}""",
    "Exim": """\
From: Mail Delivery System <Mailer-Daemon@mx.example.com>
To: mailer@example.com
Subject: Mail delivery failed: returning message to sender

This message was created automatically by mail delivery software.

A message that you sent could not be delivered to one or more of its
recipients. This is a permanent error. The following address(es) failed:

  {ann}
    host mx.example.org [192.0.2.25]
    SMTP error from remote mail server after RCPT TO:<{ann}>:
    {answer}

------ This is a copy of the message, including all the headers. ------

{copy}""",
    "qmail": """\
From: MAILER-DAEMON@mx.example.com
To: mailer@example.com
Subject: failure notice

Hi. This is the qmail-send program at mx.example.com.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<{ann}>:
192.0.2.25 does not like recipient.
Remote host said: {answer}
Giving up on 192.0.2.25.

--- Below this line is a copy of the message.

{copy}""",
    "GMX": """\
From: mailer-daemon@gmx.example
To: mailer@example.com
Subject: Mail delivery failed: returning message to sender

This message was created automatically by mail delivery software.

A message that you sent could not be delivered to one or more of
its recipients. This is a permanent error. The following address(es)
failed:

{ann}:
SMTP error from remote server for RCPT TO command, host: mx.example.org (192.0.2.25) reason: {answer}

--- The header of the original message is following. ---

{copy}""",
    "Sendmail": """\
From: Mail Delivery Subsystem <MAILER-DAEMON@mx.example.com>
To: mailer@example.com
Subject: Returned mail: see transcript for details

The original message was received at Wed, 1 Jul 2026 11:00:00 GMT
from localhost

   ----- The following addresses had permanent fatal errors -----
<{ann}>
    (reason: {answer})

   ----- Transcript of session follows -----
... while talking to mx.example.org.:
>>> RCPT To:<{ann}>
<<< {answer}

   ----- Original message follows -----

{copy}""",
    "Sendmail 5": """\
From: MAILER-DAEMON@mx.example.com (Mail Delivery Subsystem)
To: mailer@example.com
Subject: Returned mail: User unknown

   ----- Transcript of session follows -----
While talking to mx.example.org:
>>> RCPT To:<{ann}>
<<< {answer}
{answer}

   ----- Unsent message follows -----
{copy}""",
    "OpenSMTPD": """\
From: Mailer Daemon <MAILER-DAEMON@mx.example.com>
To: mailer@example.com
Subject: Delivery status notification: error

    Hi!

    This is the MAILER-DAEMON, please DO NOT REPLY to this email.

    An error has occurred while attempting to deliver a message for
    the following list of recipients:

{ann}: {answer}

    Below is a copy of the original message:

{copy}""",
    "DragonFly": """\
From: MAILER-DAEMON <>
To: mailer@example.com
Subject: Mail delivery failed

This is the DragonFly Mail Agent v0.13 at mx.example.com.

There was an error delivering your mail to <{ann}>.

mx.example.org [192.0.2.25] did not like our RCPT TO:
{answer}

Message headers follow.

{copy}""",
    "Amazon WorkMail": """\
From: MAILER-DAEMON@us-west-2.amazonses.com
To: Mailer <mailer@example.com>
Subject: =?iso-8859-15?Q?Delivery_Status_Notification_=28Failure=29?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=iso-8859-15

An error occurred while trying to deliver the mail to the following recipients:
{ann}

Technical report:

Reporting-MTA: dsn; smtp-out.us-west-2.amazonses.com

Action: failed
Final-Recipient: rfc822; {ann}
Diagnostic-Code: smtp; {answer}
Status: {status}

--b
Content-Type: message/rfc822

{copy}
--b--
""",
    "Office 365 as text": """\
From: postmaster@example.onmicrosoft.com
To: mailer@example.com
Subject: Undeliverable: Reminder

Delivery has failed to these recipients or groups:

{ann}<mailto:{ann}>
Your message couldn't be delivered.

Diagnostic information for administrators:

Generating server: mail.prod.outlook.com

{ann}
Remote Server returned '{answer}'

Original message headers:

{copy}""",
    "Exchange": """\
From: Microsoft Exchange <MicrosoftExchange329e71ec88ae4615@example.com>
To: mailer@example.com
Subject: Undeliverable: Reminder

Your message did not reach some or all of the intended recipients.

The following recipient(s) could not be reached:

      {ann} on 7/1/2026 11:00 AM
            The e-mail system reported:
            <mx.example.org #{status} smtp;{answer}>

      Original message follows.

{copy}""",
    "Yahoo": """\
From: MAILER-DAEMON@yahoo.com
To: mailer@example.com
Subject: Failure Notice

Sorry, we were unable to deliver your message to the following address.

<{ann}>:
Remote host said: {answer} [RCPT_TO]

--- Below this line is a copy of the message.

{copy}""",
    "Gmail's old form": """\
From: Mail Delivery Subsystem <mailer-daemon@googlemail.com>
To: mailer@example.com
Subject: Delivery Status Notification (Failure)
X-Failed-Recipients: {ann}

Delivery to the following recipient failed permanently:

     {ann}

Technical details of permanent failure:
Google tried to deliver your message, but it was rejected by the recipient domain. The error that the other server
returned was: {answer} (state 14).

----- Original message -----

{copy}""",
    "a Japanese carrier": """\
From: Postmaster@carrier.example.jp
To: mailer@example.com
Subject: Mail System Error - Returned Mail
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8

次のあて先へのメッセージはエラーのため送信できませんでした。

Each of the following recipients was rejected by a remote
mail server.

    Recipient: <{ann}>
    >>> RCPT TO:<{ann}>
    <<< {answer}

{copy}""",
    "a report without its boundary": REPORT.replace('boundary="b"', "x=y"),
    "a forwarded notice": """\
From: Operator <operator@example.com>
To: mailer@example.com
Subject: Fwd: Returned mail: see transcript for details

Begin forwarded message:

> From: Mail Delivery Subsystem <MAILER-DAEMON@mx.example.com>
> To: <mailer@example.com>
> Subject: Returned mail: see transcript for details
>
>    ----- The following addresses had permanent fatal errors -----
> <{ann}>
>     (reason: {answer})
>
> {quoted}""",
}

#: Notices without any code: the form, the reason, whether the recipient is gone, and the words.
WORDS = (
    ("Domino", "userunknown", True, "User Ann (ann@example.org) not listed in public Name & Address Book"),
    ("IMail", "userunknown", True, "Unknown user: ann@example.org"),
    (
        "Gmail",
        "userunknown",
        True,
        "Your message wasn't delivered to ann@example.org because the address couldn't be found.",
    ),
    (
        "Exim",
        "hostunknown",
        True,
        "ann@example.org\n    all relevant MX records point to non-existent hosts: unknown host",
    ),
    ("Exim's retries", "expired", False, "ann@example.org\n    retry timeout exceeded"),
    ("qmail", "networkerror", False, "<ann@example.org>:\nSorry, I wasn't able to establish an SMTP connection."),
    (
        "1&1",
        "mailboxfull",
        False,
        "ann@example.org\n\nFor the following reason:\n\nQuota exceeded. The recipient mailbox is full.",
    ),
    ("a gateway", "mesgtoobig", False, "ann@example.org:\nThe message is too large."),
    ("Google Groups", "rejected", False, "ann@example.org\n\nYou may not have permission to post to this group."),
    (
        "Gmail with advice",
        "userunknown",
        True,
        "Your message wasn't delivered to ann@example.org because the address couldn't be found. Check for typos or "
        "spaces and try again.",
    ),
    ("a scanner", "userunknown", True, "Cannot deliver to <ann@example.org>. Check that the address is correct."),
    (
        "a reporter's judgement",
        "userunknown",
        True,
        "Error: Unknown user\n\nThe server answered:\n550 - no such user here\n\nRCPT TO: ann@example.org",
    ),
    (
        "a bare 550 that may be a filter's",
        "filtered",
        False,
        "The server answered:\n550 - no such user here\n\nRCPT TO: ann@example.org",
    ),
    ("a look-up that failed", "filtered", False, "<ann@example.org>:\nUser unknown: temporary lookup failure."),
    ("in French", "userunknown", True, "<ann@example.org>:\nAdresse d au moins un destinataire invalide."),
    ("in Spanish", "userunknown", True, "<ann@example.org>:\nEl usuario no existe."),
    ("in German", "userunknown", True, "<ann@example.org>:\nDer Empfänger ist unbekannt."),
    ("in Japanese", "userunknown", True, "<ann@example.org>:\nユーザーは見つかりません。"),
)

#: Mails that report no failure: they settle nothing.
NO_FAILURE = {
    "Postfix is still trying": """\
From: MAILER-DAEMON@mx.example.com
To: mailer@example.com
Subject: Delayed Mail (still being retried)

####################################################################
# THIS IS A WARNING ONLY.  YOU DO NOT NEED TO RESEND YOUR MESSAGE. #
####################################################################

<{ann}>: host mx.example.org[192.0.2.25] said: 450 4.2.2 Mailbox full (in reply to RCPT TO command)

{copy}""",
    "Exim is still trying": """\
From: Mail Delivery System <Mailer-Daemon@mx.example.com>
To: mailer@example.com
Subject: Warning: message 1abc delayed 24 hours

A message that you sent has not yet been delivered to one or more of its recipients after more than 24 hours.

The address to which the message has not yet been delivered is:

  {ann}

No action is required on your part. Delivery attempts will continue for some time.

{copy}""",
    "a report of a delay": REPORT.replace("Action: failed", "Action: delayed"),
    "a report of a delivery": REPORT.replace("Action: failed", "Action: delivered"),
    "an absence note": """\
From: Ann <ann@example.org>
To: mailer@example.com
Return-Path: <>
Auto-Submitted: auto-replied
Subject: Out of office: Reminder

I am away until 10 July. In urgent cases write to ben@example.org.
""",
    "a person's reply": """\
From: Ann <ann@example.org>
To: mailer@example.com
Subject: Re: Undeliverable is a strange word

550 5.1.1 <ann@example.org> user unknown, it said. What does that mean?
""",
}


def cases() -> Iterator[Case]:
    """Yield all mails with their verdicts."""
    for form in FORMS:
        for reason, answer in MEASURED:
            yield Case(f"{form}: {answer}", form, mail(FORMS[form], answer), (verdict(reason, ANSWERS[reason][0]),))
    for reason, (hard, answers) in ANSWERS.items():
        for answer in answers:
            # Where the answer says at which command it came, servers say so in their text.
            yield Case(f"{reason}: {answer}", "RFC 3464", mail(REPORT, answer), (verdict(reason, hard),))
    for name, reason, hard, words in WORDS:
        form = (
            FORMS["qmail"].partition("<{ann}>")[0]
            + "{answer}\n\n--- Below this line is a copy of the message.\n\n{copy}"
        )
        yield Case(f"{name}: {words}", "words without a code", mail(form, words), (verdict(reason, hard),))
    for name, form in NO_FAILURE.items():
        yield Case(name, "no failure", mail(form, MEASURED[0][1]), ())


def verdict(reason: str, hard: bool) -> Verdict:
    return Verdict(ANN, reason, hard)


def mail(form: str, answer: str) -> bytes:
    code, status = answer[:3], answer[4:].split(" ")[0]
    if not status.startswith(f"{code[:1]}."):
        status = f"{code[:1] if code[:1] in '45' else '5'}.0.0"
    quoted = COPY.replace("\n", "\n> ")
    return form.format(ann=ANN, answer=answer, status=status, copy=COPY, quoted=quoted).encode()
