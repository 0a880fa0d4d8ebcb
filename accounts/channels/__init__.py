"""Channels: one folder for each (channel.py, transport.py, perhaps webhook.py), and the parts that they share.

base.py       the description of a channel, and the contract of transports
settings.py   typed settings and credentials of a description
registry.py   finds the channels, and builds the configuration of an account
events.py     events that providers report, and the contract of webhooks
http.py       requests, answers and guarded sockets
gateway.py    the base of transports to HTTP gateways
paired.py     paired WhatsApp numbers: their description, and WhatsApp's ids of chats
mail.py       mail: its description, MIME, and the own words of a reply
refusals.py   the meaning of a mail server's refusal
"""
