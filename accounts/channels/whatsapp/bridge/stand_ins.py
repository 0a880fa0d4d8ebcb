"""Stand-ins of neonize's message classes, with the fields that Crier uses, for machines without the extra.

A development tool: the scripted client uses them where neonize is not installed, so that the demo needs only Crier
itself. tests/whatsapp/test_library.py compares them with the real ones.
"""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any, ClassVar


class Shape:
    """Like a protobuf message: only declared fields, each with a default."""

    fields: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        for name, default in self.fields.items():
            # A class stands for an empty message of its kind, list for a repeated field.
            value = default() if isinstance(default, type) else default
            setattr(self, name, values.pop(name, value))
        if values:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(values)}")

    def ListFields(self) -> list[tuple[Any, Any]]:
        values = {name: getattr(self, name) for name in self.fields}
        return [(SimpleNamespace(name=name), value) for name, value in values.items() if self._is_set(value)]

    @staticmethod
    def _is_set(value: Any) -> bool:
        return bool(value.ListFields()) if isinstance(value, Shape) else bool(value)


def shape(name: str, /, **fields: Any) -> Any:
    return type(name, (Shape,), {"fields": fields})


JID = shape("JID", User="", RawAgent=0, Device=0, Integrator=0, Server="", IsEmpty=False)

ContextInfo = shape("ContextInfo", stanzaID="")
_FILE = {
    "contextInfo": ContextInfo,
    "URL": "",
    "directPath": "",
    "mediaKey": b"",
    "fileEncSHA256": b"",
    "fileSHA256": b"",
    "fileLength": 0,
    "mimetype": "",
}
ImageMessage = shape("ImageMessage", caption="", JPEGThumbnail=b"", width=0, height=0, **_FILE)
VideoMessage = shape("VideoMessage", caption="", JPEGThumbnail=b"", **_FILE)
AudioMessage = shape("AudioMessage", **_FILE)
DocumentMessage = shape("DocumentMessage", caption="", fileName="", title="", **_FILE)
StickerMessage = shape("StickerMessage", **_FILE)
ExtendedTextMessage = shape("ExtendedTextMessage", text="", contextInfo=ContextInfo)
LocationMessage = shape("LocationMessage", name="", contextInfo=ContextInfo)
ContactMessage = shape("ContactMessage", displayName="", contextInfo=ContextInfo)
ContactsArrayMessage = shape("ContactsArrayMessage", displayName="", contextInfo=ContextInfo)
PollCreationMessage = shape("PollCreationMessage", name="", contextInfo=ContextInfo)
ReactionMessage = shape("ReactionMessage", text="")
CONTENTS = {
    "conversation": "",
    "extendedTextMessage": ExtendedTextMessage,
    "imageMessage": ImageMessage,
    "videoMessage": VideoMessage,
    "audioMessage": AudioMessage,
    "documentMessage": DocumentMessage,
    "stickerMessage": StickerMessage,
    "locationMessage": LocationMessage,
    "contactMessage": ContactMessage,
    "contactsArrayMessage": ContactsArrayMessage,
    "pollCreationMessageV3": PollCreationMessage,
    "reactionMessage": ReactionMessage,
}
ProtocolMessage = shape("ProtocolMessage", editedMessage=shape("Message", **CONTENTS))
Content = shape("Message", **CONTENTS, protocolMessage=ProtocolMessage)

UploadResponse = shape(
    "UploadResponse", url="", DirectPath="", Handle="", MediaKey=b"", FileEncSHA256=b"", FileSHA256=b"", FileLength=0
)
SendResponse = shape("SendResponse", ID="", Timestamp=0)
Device = shape("Device", JID=JID, LID=JID, PushName="")
IsOnWhatsAppResponse = shape("IsOnWhatsAppResponse", Query="", JID=JID, IsIn=False)
GroupName = shape("GroupName", Name="")
GroupAnnounce = shape("GroupAnnounce", IsAnnounce=False)
GroupParticipant = shape("GroupParticipant", JID=JID, LID=JID, PhoneNumber=JID, IsAdmin=False, IsSuperAdmin=False)
GroupInfo = shape("GroupInfo", JID=JID, GroupName=GroupName, GroupAnnounce=GroupAnnounce, Participants=list)

MessageSource = shape("MessageSource", Chat=JID, Sender=JID, IsFromMe=False, IsGroup=False, SenderAlt=JID)
MessageInfo = shape("MessageInfo", MessageSource=MessageSource, ID="", Pushname="", Timestamp=0)

#: Events, by the names that neonize's protocol has for them.
EVENTS: dict[str, Any] = {
    "PairStatus": shape("PairStatus", ID=JID, Status=2, Error=""),
    "Connected": shape("Connected", status=False),
    "Disconnected": shape("Disconnected", status=False),
    "KeepAliveTimeout": shape("KeepAliveTimeout", ErrorCount=0),
    "KeepAliveRestored": shape("KeepAliveRestored"),
    "LoggedOut": shape("LoggedOut", OnConnect=False, Reason=2),
    "StreamReplaced": shape("StreamReplaced"),
    "TemporaryBan": shape("TemporaryBan", Code=1, Expire=0),
    "ConnectFailure": shape("ConnectFailure", Reason=1, Message=""),
    "ClientOutdated": shape("ClientOutdated"),
    "Message": shape("Message", Info=MessageInfo, Message=Content),
    "Receipt": shape("Receipt", MessageSource=MessageSource, MessageIDs=list, Timestamp=0, Type=1),
    "JoinedGroup": shape("JoinedGroup", GroupInfo=GroupInfo),
    "GroupInfoEvent": shape("GroupInfoEvent", JID=JID),
}


class MediaType(enum.Enum):
    MediaImage = 0
    MediaVideo = 1
    MediaAudio = 2
    MediaDocument = 3


class ChatPresence(enum.Enum):
    CHAT_PRESENCE_COMPOSING = 0


class ChatPresenceMedia(enum.Enum):
    CHAT_PRESENCE_MEDIA_TEXT = 0


class NeonizeError(Exception):
    pass
