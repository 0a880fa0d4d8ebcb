"""Words and short sentences by which people opt out, by language.

Phrases are separated by bars, and (a/b) stands for either; case, accents and punctuation do not matter. To support
another language, add a line to each table; tests/inbound/opt_out_samples.py has the matching examples.
"""

from __future__ import annotations

#: Words that opt out only if the message has no others, and not as a question: they may be about an appointment.
WORDS = {
    "en": "cancel | end | quit | revoke | remove | do not disturb",
    "de": "abmeldung | ich melde mich (/hiermit) ab | hiermit melde ich mich ab | beenden | kündigen | ende",
    "fr": "arrêt | annuler",
    "es": "baja | cancelar | salir | pare",
    "pt": "sair | cancelar | remover",
    "it": "cancella | annulla",
    "nl": "opzeggen | afmelding",
    "sv": "avsluta | avbeställ",
    "da": "afslut | afmeldt",
    "nb": "avslutt",
    "fi": "peruuta | poista",
    "is": "afskrá",
    "pl": "anuluj | koniec | usuń | rezygnacja",
    "cs": "zrušit | konec | ukončit",
    "sk": "zrušiť | koniec | ukončiť",
    "hu": "vége | lemondás | lemondom",
    "ro": "renunț | anulare",
    "bg": "край",
    "el": "διαγραφή",
    "hr, sr": "крај",
    "sl": "konec",
    "lt": "atsisakyti | atsisakau",
    "lv": "atteikties | beigt",
    "et": "loobu | lahku",
    "ca": "cancel·la | cancel·lar",
    "eu": "baja eman",
    "ru": "отмена",
    "uk": "скасувати",
    "kk": "бас тарту",
    "tr": "iptal | çık",
    "az": "ləğv et | imtina",
    "he": "בטל | ביטול",
    "ar": "الغاء | إلغاء",
    "fa": "لغو | انصراف | قطع",
    "th": "ยกเลิก | ขอยกเลิก",
    "vi": "hủy | huỷ",
    "id, ms": "batalkan | tidak mau lagi",
    "sw": "jiondoe",
    "af": "kanselleer | teken uit",
    "zh": "取消 | 退出 | td",
    "ja": "解除 | 中止 | 解除してください | もういりません",
    "ko": "해지 | 취소 | 거부 | 탈퇴 | 해지해주세요",
}

#: Words that are others, or names, with other accents or none: “đúng” is yes, “vege” a meal. They count only as written
#: here, or without accents before one of PLAIN_BEFORE (“dung gui tin nhan nua”).
ACCENTED = "dừng | đừng | ngừng | hủy | huỷ | vége | çık"
PLAIN_BEFORE = "gửi | nhắn | đăng | theo | làm | liên"

#: Words of WORDS that are words of other languages, too: they count only if the message has no word of courtesy either.
SHARED = "pare | td"

#: Words for “stop”: alone or as a clause of their own (“No thanks, parar”).
STOPS = {
    "en": "stop | stopp",
    "de": "stoppen",
    "fr": "arrêter | arrêtez | stopper",
    "es": "parar | paren | detener | basta",
    "pt": "parar | parem",
    "it": "fermare | ferma | basta | smettere",
    "nl": "stoppen",
    "sv": "stoppa | sluta",
    "fi": "lopeta | lopettakaa",
    "is": "hætta | stöðva",
    "pl": "zatrzymaj",
    "cs, sk": "přestaňte | prestaňte",
    "hu": "állj",
    "ro": "oprește | opriți",
    "bg": "спри | спрете",
    "el": "διακοπή | σταματήστε | σταμάτα | στοπ",
    "hr, sr, sl": "prekini | prekinite | прекини | стоп",
    "lt": "nutraukti | stabdyti",
    "lv": "atrakstīties | pārtraukt",
    "et": "lõpeta | peata",
    "ca": "aturar | atura | donar-me de baixa",
    "eu": "gelditu",
    "ru": "прекратить | хватит",
    "uk": "припинити | досить",
    "kk": "тоқтату",
    "tr": "durdur | durdurun",
    "az": "dayandır",
    "he": "עצור | די",
    "ar": "إيقاف | توقف | توقفوا | أوقف | قف | وقف | كفى",
    "fa": "توقف",
    "ur": "بند کرو | روکیں | بند کریں",
    "hi": "रोकें | रोको | बंद करो | बंद करें | band karo",
    "bn": "বন্ধ করুন | থামুন",
    "ta": "நிறுத்து | நிறுத்தவும்",
    "te": "ఆపు | ఆపండి",
    "th": "หยุด",
    "vi": "dừng | ngừng | dừng lại",
    "id, ms": "berhenti | henti | hentikan",
    "fil": "itigil | tigil | huminto | ihinto | tama na",
    "sw": "simama | sitisha",
    "af": "staak",
    "zh": "停止",
    "ja": "停止 | ストップ | やめてください | 停止してください | 止めてください",
    "ko": "중지 | 중단 | 그만 | 중단해주세요 | 멈춰주세요 | 그만해주세요 | 그만하세요",
}

#: Words and sentences that mean only that. A sentence opts out if it has one of them, and otherwise only words of
#: AROUND in the same language and of courtesy.
WISHES = {
    "en": (
        "(stop/stopp/stopall/unsubscribe/unsub/optout/opt out/opt me out) | (remove/delete/erase) (me/us) | (be/get) "
        "(removed/taken off/deleted/unsubscribed) | leave (me/us) alone | i opt out | remove from (/the/this/that/"
        "these/your/all/all your) (/mailing/email/distribution/contact/text/sms/marketing) (list/lists/database/system/"
        "contacts/records) | unsubscribe (/this) (list/lists) | (remove/delete/erase) (my/our/this) (number/phone/"
        "phone number/email/e mail/email address/mail address/address/name/data/details/contact/contact details) | "
        "(take/get) (me/us/(my/our/this) (name/number/phone/phone number/email/e mail/address/email address/e mail "
        "address/mail address)) off | off (/the/this/that/these/your/all/all your) (/mailing/email/distribution/"
        "contact/text/sms/marketing) (list/lists/database/system/contacts/records) | (take/get) (me/us) (from/out of) "
        "(/the/this/that/these/your/all/all your) (/mailing/email/distribution/contact/text/sms/marketing) (list/lists/"
        "database/system/contacts/records) | i want out | stop now | no (/more) (messages/emails/e mails/mails/texts/"
        "sms/reminders/notifications/newsletters/newsletter) | (do not/don t/dont/never/do not ever/don t ever) "
        "(contact/text/message/write/write to/email/e mail/mail/spam/bother/notify) (me/us/(this/my/our) (number/phone/"
        "address/email/email address)) | (do not/don t/dont/never/do not ever/don t ever) send (/me/us) (/any/more/any "
        "more/any further/further/these/those/your/such/the/all these/any of these/these kind of) (messages/emails/e "
        "mails/mails/texts/sms/reminders/notifications/newsletters/newsletter/updates/alerts/msgs/spam/ads) | (do not/"
        "don t/dont/never) send (/me/us) (anything/any/more/any more/anymore/them/these/those/such/this stuff/stuff/"
        "things like this/this again/to (this/my) (number/address)) | (do not/don t/dont) contact | (i/we) (do not/don "
        "t/dont/no longer) (want/wish/need) (/to (receive/get)) (/any/any more/any further/more/these/those/your/such/"
        "more of these/any of these/any more of these) (messages/emails/e mails/mails/texts/reminders/notifications/"
        "newsletters/newsletter/updates) | (i/we) (do not/don t/dont/no longer) (want/wish) to (receive/get) (these/"
        "them/this/those/anything) | (cancel/end/stop) (/my/the/this) subscription | (cancel/end/quit/cease/"
        "discontinue/turn off/switch off) (/all/the/my/our/these/your/those/any/all the/all these/all my/all your/all "
        "of these) (/further/future/more) (messages/emails/e mails/texts/sms/reminders/notifications/newsletters/"
        "alerts/text messages) | (quit/cease/discontinue) (sending/texting/messaging/emailing/writing/contacting/"
        "calling/spamming/bothering/reminding/harassing) | (i/we) (do not/don t/dont/no longer) (want/wish) to be "
        "(contacted/texted/messaged/emailed/reminded/called/bothered/disturbed/notified/written to) | (i/we) (/hereby) "
        "(revoke/withdraw/retract) (my/our) (consent/permission) | (unsubcribe/unsuscribe/unsubscibe/unsubsribe/"
        "unsubscrib/unsubscrive/unsubsscribe/unsubscirbe/unsubsrcibe/unsubscride) | do not contact | (do not/don t/"
        "dont/never) remind (me/us) (again/anymore/any more/ever again) | opt (me/us) out of all (/future/further) "
        "(messages/emails/e mails/mails/texts/sms/reminders/notifications/newsletters/communications)"
    ),
    "de": (
        "(stop/stopp/abmelden/abbestellen/austragen/abbestellung) | (melden sie/melde/meldet) mich (/bitte) ab | "
        "melden sie mich (vom/von dem/von diesem/von allen/aus dem) (newsletter/verteiler/listen/mails) ab | ich "
        "melde mich (/hiermit) (vom/von diesem/von ihrem/von eurem) (newsletter/verteiler) ab | ich (bestelle/"
        "kündige) den newsletter ab | kein interesse mehr stop | keine werbung | (tragen sie/trag/tragt) mich (/"
        "bitte) (/aus/von) (/der/ihrer/dieser/eurer/deiner) (/liste/mailingliste) aus | (nehmen sie/nimm/nehmt) "
        "(mich/uns/(meine/diese) (nummer/adresse)) (/bitte) (/sofort) (aus/von/vom/raus/runter/heraus) | (löschen "
        "sie/lösche/löscht/streichen sie/streich/streicht/entfernen sie/entferne/entfernt) (mich/uns) | mich (/"
        "bitte) (/sofort) (aus/von) (/der/ihrer/eurer/dieser/ihrem/eurem/dem/diesem) (liste/mailingliste/verteiler) "
        "(nehmen/löschen/streichen/entfernen/austragen) | (aus/von) (/der/ihrer/eurer/dieser/ihrem/eurem/dem/diesem) "
        "(liste/mailingliste/verteiler) (nehmen/löschen/streichen/entfernen/austragen) | (löschen sie/lösche/löscht/"
        "entfernen sie/entfernt) (meine/diese) (nummer/adresse/daten/mailadresse/e mail/telefonnummer) | meine "
        "(nummer/adresse/daten/mailadresse) (löschen/entfernen) | keine (/weiteren) (nachrichten/mails/e mails/"
        "emails/sms/erinnerungen/newsletter/werbung/whatsapp/texte) (/mehr) | keinen newsletter (/mehr) | nicht mehr "
        "(schreiben/anschreiben/kontaktieren/anrufen/senden) | (schreiben sie/schreib/schreibt) mir (/bitte) nicht (/"
        "mehr) | (kontaktieren sie/kontaktier/kontaktiere/kontaktiert) mich nicht (/mehr) | (hören sie/hör/hört) (/"
        "bitte) (/damit/endlich) auf | (lassen sie/lass/lasst) (mich/uns) (/bitte) in ruhe | nichts mehr (erhalten/"
        "bekommen/empfangen/von ihnen erhalten/von euch bekommen/schicken/senden) | (erinnern sie/erinnere/erinnert) "
        "(mich/uns) (/bitte) nicht mehr | (/die/alle/diese) (nachrichten/mails/e mails/emails/sms/erinnerungen) "
        "(abbestellen/stoppen/beenden/einstellen) | (beenden sie/stoppen sie/stoppt/stoppe/beendet/stornieren sie) (/"
        "bitte) (/die/alle/diese/ihre/eure) (nachrichten/mails/e mails/emails/sms/erinnerungen) | stellen sie (/"
        "bitte) (/die/alle/diese/ihre) (nachrichten/mails/e mails/emails/sms/erinnerungen) ein | (schreiben sie/"
        "schreib/schreibt/senden sie/schicken sie) (/bitte) (nicht/nichts) (/mehr) an diese (nummer/adresse) | nicht "
        "(mehr/länger) (kontaktiert/angeschrieben/erinnert/belästigt/benachrichtigt) werden | (ich widerrufe/hiermit "
        "widerrufe ich) (/hiermit) (meine/jede) (einwilligung/zustimmung) | (ich ziehe/hiermit ziehe ich) meine "
        "(einwilligung/zustimmung) zurück | (nummer/telefonnummer/handynummer/mailadresse) (löschen/entfernen)"
    ),
    "fr": (
        "(stop/se désabonner/désabonner/désabonnez/désabonnement/désinscrire/désinscrivez/désinscription) | (arrêtez/"
        "arrête/arrêter) (de/d) (m/me/nous) (envoyer/écrire/contacter/harceler/spammer/solliciter/rappeler/relancer) "
        "| (arrêtez/arrête/arrêter) (vos/les/ces/tous les/tous ces/l envoi de) (messages/mails/e mails/emails/sms/"
        "rappels/envois) | arrêtez (ça/cela/tout/maintenant) | arrêtez | merci d arrêter | plus (de/d) (messages/"
        "mails/e mails/emails/sms/rappels) | ne (m/me/nous) (écrivez/écris/contactez/contacte/envoyez/envoie/"
        "sollicitez/dérangez/rappelez/relancez) plus | ne plus (/me/m/nous) (recevoir/envoyer/écrire/contacter/"
        "solliciter) | je ne (veux/souhaite/désire) plus (recevoir/de/vos) | je ne (veux/souhaite) pas recevoir | "
        "(retirez/supprimez/enlevez/effacez/ôtez/rayez/retire/enlève) (moi/nous/mon (numéro/adresse/nom/email)/ce "
        "numéro/cette adresse) | (me/moi/m) (retirer/supprimer/enlever/rayer) | (retirer/supprimer) mon (numéro/"
        "adresse/nom) | (être/soyez) (retiré/retirée/supprimé/supprimée/désinscrit/désinscrite/désabonné/désabonnée/"
        "enlevé) | stop (aux/à) | laissez (moi tranquille/nous tranquilles) | laisse moi tranquille | (annulez/"
        "annuler/supprimez/stoppez/cessez) (/tous) (les/vos/ces/mes) (messages/mails/e mails/emails/sms/rappels/"
        "notifications) | (cessez/stoppez) (de/d) (m/me/nous) (envoyer/écrire/contacter/rappeler) | (n écrivez/n "
        "envoyez/n écris) plus (/rien) (/à ce numéro) | je ne (veux/souhaite/désire) plus être (contacté/contactée/"
        "dérangé/dérangée/sollicité/sollicitée) | je (retire/révoque) mon (consentement/accord)"
    ),
    "es": (
        "(stop/desuscribir/desuscribirse/desuscribirme/desuscríbanme/desuscríbeme/darse de baja/dar de baja/darme de "
        "baja) | (dame/deme/denme/me den/me dé) de baja | quiero la baja | (no más/no mas/basta de/basta ya de/ya no "
        "más/ni un más) (mensajes/correos/mails/emails/sms/recordatorios) | no (quiero/deseo) (/recibir) (/más/mas) (/"
        "estos/sus/de sus/estos malditos) (mensajes/correos/mails/emails/sms/recordatorios/correos electrónicos) (/más/"
        "mas) | no me (escriban/escribas/escriba/envíen/envíe/envíes/manden/mande/mandes/contacten/contacte/contactes/"
        "molesten/molestes/moleste) | (dejen/deje/deja/paren/pare/para) de (escribirme/enviarme/mandarme/enviar/mandar/"
        "molestarme/molestar/contactarme) | (bórrenme/bórrame/bórreme/quítenme/quítame/quíteme/sáquenme/sácame/sáqueme/"
        "elimínenme/elimíname/elimíneme/remuévanme) | (eliminar/borrar/eliminen/borren/elimine/borre) mi (número/"
        "correo/dirección/teléfono/nombre) | (cancelar/anular/cancelen) (/la/mi) suscripción | (cancelar/cancelen/"
        "cancele/cancela/detengan/detener/paren/anulen) (/todos) (los/mis/estos/sus) (mensajes/correos/mails/emails/"
        "sms/recordatorios/notificaciones) | (cancelar/cancelen/cancele) (mensajes/correos/mails/emails/sms/"
        "recordatorios/notificaciones) | no (enviar/mandar/escribir/enviarme/mandarme/envíen/manden/envíe/mande) (/me) "
        "(/más/mas) (mensajes/correos/mails/emails/sms/recordatorios/notificaciones) (/más/mas) | no (enviar/mandar/"
        "escribir/enviarme/mandarme/escribirme/contactarme) (más/mas) | no (escriban/escriba/envíen/manden/escribir/"
        "enviar) (/más/mas/nada/nada más) a este (número/teléfono/correo) | no me (recuerden/recuerde/recuerdes) (más/"
        "mas) | (dejen/deje/deja/paren) de (recordarme/recordar) | no (quiero/deseo) (/más) (ser (contactado/"
        "contactada/molestado/molestada)/que me (contacten/escriban/molesten/envíen)) | (eliminar/borrar/eliminen/"
        "borren/elimine/borre/quiten/quite/saquen) (este (número/correo/teléfono)/mi (número/correo/nombre)) | "
        "(bórrennos/quítennos/elimínennos/sáquennos) | no (quiero/deseo) recibir (más/mas) (/nada) | (déjenme/déjeme/"
        "déjame/déjennos) en paz | (revoco/retiro) mi consentimiento"
    ),
    "pt": (
        "(stop/stop tudo/descadastrar/descadastre/descadastrem/cancelar inscrição) | não (quero/desejo) (/mais) (/"
        "receber) (/mais) (/essas/estas/suas/vossas/as suas/esses/estes/seus) (mensagens/e mails/emails/sms/lembretes) "
        "(/mais) | não (/me) (envie/enviem/mande/mandem/escreva/escrevam/contacte/contactem/perturbe/incomode) mais | "
        "(pare/parem/para/parar) de (/me) (enviar/mandar/escrever/incomodar/enviar me/mandar me/contactar) | quero (me "
        "descadastrar/sair (da/desta/dessa) lista) | me (descadastre/descadastrem/descadastrar/remova/remover/remove/"
        "retire/retirem/tire/tirem) | (remova/removam/tire/tirem/retire/retirem/apague/apaguem) me | remover da lista "
        "| (remova/apague/exclua/tire/tirem/retire/retirem) (/o) meu (número/e mail/contato/contacto) | cancelar (/a/"
        "minha/a minha) (subscrição/inscrição/assinatura) | parem com | pare com | me (tira/tirem/apaga/exclua) | (ser "
        "(removido/removida/retirado/retirada)) | sem mais mensagens | chega de mensagens | não (quero/desejo) (mais "
        "receber/receber mais) (/isso/isto/nada) | sair (da/desta/dessa) lista | me tirar (da/desta/dessa) lista | "
        "deixem me em paz | me deixe em paz | (cancelar/cancele/cancelem/cancela/parem/pare) (/todos/todas) (os/as/"
        "meus/minhas/estas/essas/estes/esses/com os/com as) (mensagens/e mails/emails/sms/lembretes/notificações) | "
        "(cancelar/cancele/cancelem) (mensagens/e mails/emails/sms/lembretes/notificações) | não (enviar/mandar/enviem/"
        "mandem/envie/mande) (/me) (/mais) (mensagens/e mails/emails/sms/lembretes/notificações) (/mais) | não "
        "(escrevam/escreva/enviem/mandem/enviar/mandar) (/mais) (/nada) para este (número/telefone/e mail) | (pare/"
        "parem) de (/me) (lembrar/lembrar me) | não (me lembre/me lembrem) mais | não (quero/desejo) (/mais) (ser "
        "(contactado/contactada/contatado/contatada/incomodado/incomodada)) (/mais) | (remova/removam/apague/apaguem/"
        "exclua/excluam/tire/tirem/retire/retirem) (este número/esse número/este e mail/nos) | deixem nos em paz | nos "
        "deixem em paz | (revogo/retiro) (/o) meu consentimento"
    ),
    "it": (
        "(stop/disiscrivi/disiscrivimi/disiscrivetemi/disiscrizione/disiscrivermi/cancellami/cancellatemi/rimuovimi/"
        "rimuovetemi/toglietemi/toglimi/eliminatemi/eliminami/cancellarmi/rimuovermi/togliermi/eliminarmi) | essere "
        "(cancellato/cancellata/rimosso/rimossa) | non (scrivetemi/scrivermi/inviatemi/inviarmi/mandatemi/mandarmi/"
        "contattatemi/contattarmi/disturbatemi) più | non (voglio/desidero) (/più) ricevere | (basta/niente più/"
        "niente) (/con i/con questi) (messaggi/mail/email/e mail/sms) | (smettetela/smettila/smettete/smetta) | "
        "(cancellate/cancella/eliminate/togliete) il mio (numero/indirizzo/nome) | (annulla/cancella/annullare) (/l) "
        "iscrizione | lasciatemi in pace | (annullate/annulla/annullare/cancella/cancellate/cancellare/disattivate/"
        "disattiva/interrompete) (/tutti) (i/questi/i miei/i vostri/le/tutte le) (messaggi/mail/email/e mail/sms/"
        "promemoria/notifiche) | non (inviare/mandare/inviate/mandate/spedite) (/più) (/altri) (messaggi/mail/email/"
        "e mail/sms/promemoria/notifiche) (/più) | non (scrivete/scrivere/inviate/mandate) (/più) (/nulla/niente) a "
        "questo (numero/indirizzo) | non (ricordatemi/ricordarmi) più | non (voglio/desidero) (/più) essere "
        "(contattato/contattata/disturbato/disturbata) | (cancellate/cancella/eliminate/togliete/rimuovete) questo "
        "(numero/indirizzo) | (cancellateci/rimuoveteci/toglieteci/eliminateci) | (lasciateci/lasciami) in pace | "
        "(revoco/ritiro) il (/mio) consenso"
    ),
    "nl": (
        "(stop/afmelden/uitschrijven/meld me af/meld mij af) | geen (/verdere) (berichten/mails/e mails/mail/sms/"
        "appjes/herinneringen) meer | stop met (herinneren/herinneringen/berichten/sturen/mailen/schrijven/appen/sms "
        "en) | (schrijf/schrijft) (me/mij) uit | (haal/haalt) (me/mij) van (/de/deze/uw/jullie/die) (lijst/"
        "mailinglijst/verzendlijst) | (verwijder/verwijdert) (me/mij/ons/dit nummer/mijn nummer/mijn adres/mijn "
        "mailadres/mijn gegevens) | (me/mij) van (/de/deze/uw/jullie/die) (lijst/mailinglijst/verzendlijst) (halen/"
        "verwijderen) | niet meer (sturen/mailen/schrijven/berichten/appen/contacteren) | (abonnement/nieuwsbrief) "
        "opzeggen | laat (me/mij/ons) met rust | geen interesse meer stop | (annuleer/annuleert/stop/stopt/beëindig) "
        "(/met) (/de/alle/deze/die/mijn/uw/jullie) (berichten/mails/e mails/sms jes/appjes/herinneringen/meldingen) "
        "| herinner (me/mij) niet meer | (stuur/stuurt) (niets/geen berichten) meer | (stuur/schrijf/mail) (niet/"
        "niets) (/meer) naar dit (nummer/adres) | haal dit nummer van (/de/deze/uw/jullie) (lijst/mailinglijst) | "
        "niet (meer/langer) (gecontacteerd/benaderd/gemaild/herinnerd) worden | ik trek (/hierbij) mijn toestemming "
        "in"
    ),
    "sv": (
        "(stop/stopp/avregistrera/avanmälan/avprenumerera/avregistrera mig) | (ta/tag) bort (mig/mitt nummer/min "
        "adress) | inga fler (meddelanden/mejl/mail/sms/påminnelser) | sluta (skicka/skriva/mejla/maila/messa/smsa) "
        "| (skicka/sänd) inga fler | skicka inte (/mig) (/några) (/fler) (meddelanden/mejl/mail/sms) | jag vill inte "
        "(/längre) (ha/få) (/fler/några/era) (meddelanden/mejl/mail/sms) | kontakta mig inte | lämna mig i fred"
    ),
    "da, nb": (
        "(stop/stopp/stop alt/stopp alt/afmeld/frameld/avmeld/avregistrer/meld meg av/afmelding/avmelding) | (slet/"
        "fjern/slett/frameld/afmeld/avmeld) (mig/meg/mit nummer/mitt nummer/min adresse) | (ikke/ingen) flere "
        "(beskeder/meldinger/mails/e mails/sms er/sms/påmindelser/påminnelser) | (send ikke/ikke send) (/mig/meg) (/"
        "flere) (beskeder/meldinger/mails/sms) | (stop/stopp/slutt) (med at/å/med å) (skrive/sende) | jeg (vil/"
        "ønsker) (/gerne) (afmeldes/at afmelde mig/melde meg av/å melde meg av/å avmeldes) | jeg (vil/ønsker) ikke (/"
        "længere/lenger) (have/modtage/ha/motta/få/at modtage/å motta) | (kontakt ikke mig/ikke kontakt meg) | lad "
        "mig være i fred"
    ),
    "fi": (
        "(stop/peru tilaus/peru tilaukseni/peruuttakaa tilaukseni) | (poista/poistakaa) (minut/numeroni/osoitteeni) "
        "| ei (enää/enempää) (viestejä/sähköposteja/muistutuksia) | (lopettakaa/lopeta) (/nämä/näiden) (viestit/"
        "viestien lähettäminen/viestien lähetys/lähettäminen) | en halua (/enää) (/näitä/saada) (viestejä/"
        "sähköposteja) | älkää lähettäkö | älä lähetä | jättäkää minut rauhaan"
    ),
    "pl": (
        "(stop/wypisz/wypisz mnie/wypiszcie mnie/wyrejestruj/wyrejestrujcie mnie/rezygnuję) | (wypisać/usunąć/"
        "wykreślić/wyrejestrować) mnie | mnie (wypisać/usunąć/wykreślić/wyrejestrować) | (usuń/usuńcie/skreśl/"
        "skreślcie/wykreślcie) (mnie/mój numer/mój adres) | chcę się wypisać | (wypisanie/usunięcie/wykreślenie) (/"
        "mnie/mojego numeru/mojego adresu) | usunąć mój (numer/adres) | nie (piszcie/pisz/pisać) (/więcej) do mnie | "
        "nie (wysyłać/przysyłać/wysyłajcie/przysyłajcie/wysyłaj/przysyłaj) (/mi/do mnie) (/już) (/więcej/tych/"
        "takich) (/tych/takich) (wiadomości/maili/sms ów/smsów/e maili/przypomnień) | nie chcę (/już) (/więcej/"
        "otrzymywać/dostawać) (/więcej/tych/takich/od was) (wiadomości/maili/e maili/smsów) | żadnych więcej "
        "wiadomości | proszę przestać | przestańcie | anuluj(/ę) subskrypcję | dajcie mi spokój"
    ),
    "cs, sk": (
        "(stop/odhlásit/odhlásit se/odhlášení/odhlaste/odhlásiť/odhlásiť sa/odhláste/odhlásenie) | (odhlaste/odhlas/"
        "odhláste/odhlás/vymažte/smažte/vyřaďte/vymaž/vyraďte/odstraňte/odstráňte) (mě/mne/mi/ma/moje číslo/mé "
        "číslo) | (chci se odhlásit/chcem sa odhlásiť) | (zrušit/zrušte/zrušiť) (/můj/môj) odběr | (zrušiť/zrušte) "
        "odber | (nepište/nepiš/nepíšte) mi | už mi (nepište/nepiš/nepíšte) | (nic/nič/už mi nic/už mi nič) "
        "(neposílejte/neposielajte) | (odhlášení/odhlásenie) | (už/) (žádné/žiadne) (/další/ďalšie) (zprávy/správy/"
        "maily/e maily) | (neposílejte/neposielajte/neposílej/neposielaj) (/mi) (/už) (/další/ďalšie/žádné/žiadne/"
        "tyto/tieto) (zprávy/správy/maily/e maily/sms/nic/nič) | (nechci/nechcem) (/už) (dostávat/dostávať)"
    ),
    "hu": (
        "(stop/leiratkozás/leiratkozom/leiratkozni/leiratkoznék/le szeretnék iratkozni/iratkozni/szeretnék "
        "leiratkozni) | (töröljenek/töröljön/töröljetek/vegyenek le/vegyen le) | (nem kérek/ne küldjenek/ne küldjön/"
        "ne küldjetek) (/nekem) (/több) (/ilyen) (üzenetet/levelet/e mailt/emailt/sms t/üzeneteket/leveleket) | ne "
        "írjanak többet | ne írjon többet | hagyjanak békén"
    ),
    "ro": (
        "(stop/dezabonare/dezabonați/dezabonează/dezabonez) | (dezabonați/dezabonează) mă | mă (dezabonați/"
        "dezabonez) | (nu mai/nu) (vreau/doresc) (/să primesc/alte/mai multe) (/alte) (mesaje/emailuri/e mailuri/"
        "mailuri/sms uri) | nu (/îmi/imi/mi) mai (trimiteți/trimite/scrieți/scrie) | (scoateți/ștergeți/eliminați/"
        "scoate/șterge) mă | să mă (ștergeți/scoateți/eliminați) | fără mesaje | lăsați mă în pace"
    ),
    "el": (
        "(stop/απεγγραφή/διαγραφή από τη λίστα) | (διαγράψτε/αφαιρέστε/βγάλτε/διέγραψε) με | να (διαγραφώ/αφαιρεθώ) "
        "| να με (διαγράψετε/αφαιρέσετε) | όχι άλλα μηνύματα | (σταματήστε/σταμάτα) (τα μηνύματα/να μου στέλνετε/να "
        "στέλνετε/να μου γράφετε) | (μη/μην) μου (στέλνετε/ξαναστείλετε/στέλνεις/γράφετε) | δεν θέλω (/άλλα/να "
        "λαμβάνω) (/άλλα) (μηνύματα/email/mail) | μην στέλνετε"
    ),
    "bg": (
        "(stop/стоп/отписване/отпиши/отпиши ме/отпишете ме/отпишете/се отпиша/ме отпишете/да се отпиша) | не ми "
        "(пишете/изпращайте/пращайте) | не искам (/повече/да получавам) (/повече) (съобщения/имейли) | (махнете/"
        "изтрийте/премахнете) (ме/номера ми) | спрете (/да ми) (съобщенията/пращате/пишете/изпращате)"
    ),
    "hr, sr, sl": (
        "(stop/odjava/odjavi/odjavi me/одјава/одјави) | (odjavite/uklonite/izbrišite/obrišite/odstranite/uklonite) "
        "me | želim (se odjaviti/odjavo/odjavu) | ne (šaljite/pišite/šalji/piši/pošiljajte) (/mi) (/više/več) "
        "(poruke/poruka/mailove/sporočil/sporočila) | nemojte (/mi) (/više) (slati/pisati) | ne želim (/više/več) (/"
        "primati/prejemati) (poruke/poruka/sporočil/mailove) | nema više poruka | одјавите ме | уклоните ме | не "
        "(шаљите/пишите) ми (/више) (поруке/) | не желим (/више) (поруке/порука)"
    ),
    "ru": (
        "(stop/стоп/отписаться/отписка/отпишите/отписать/отпишите меня/отпиши) | (удалить/исключить/убрать/"
        "вычеркнуть) (меня/мой (номер/адрес/телефон)) | (больше/) не (присылать/писать/слать/отправлять/беспокоить) "
        "(/мне/меня) (/больше) | не (пишите/пиши/шлите/присылайте/отправляйте/беспокойте/звоните) (/мне/меня/сюда) | "
        "(мне/больше/меня/больше мне/мне больше/меня больше) не (пишите/пиши/шлите/присылайте/отправляйте/беспокойте/"
        "звоните) | (я не/не) хочу (/больше) (получать/читать) | (уберите/удалите/исключите/вычеркните/убери/удали) "
        "(меня/мой (номер/адрес/телефон/имейл/email)) | (прекратите/хватит/перестаньте/перестань/прекрати) (/мне) "
        "(рассылку/рассылки/писать/слать/присылать/спамить/отправлять/спам) | (/мне) (прекратите/перестаньте) | "
        "отмена подписки | (отменить/отмените) (/мою) подписку | не беспокоить | (не надо/не нужно) (/мне) (/больше) "
        "(писать/присылать/слать) | оставьте меня в покое"
    ),
    "uk": (
        "(stop/стоп/відписатися/відписатись/відписка/відпишіть/відпишіть мене) | (видалити/прибрати/виключити) (мене/"
        "мій номер) | не (надсилати/писати/слати/турбувати/присилати) (/мені/мене) (/більше) | не (пишіть/надсилайте/"
        "шліть/турбуйте/дзвоніть/присилайте) (/мені/мене) | (більше/мені/більше мені/мені більше) не (пишіть/"
        "надсилайте/шліть/турбуйте/присилайте) | (я не/не) хочу (/більше) (отримувати/одержувати) | (видаліть/"
        "приберіть/викресліть/заберіть) (мене/мій (номер/адресу)) | (припиніть/досить/перестаньте) (/мені) (розсилку/"
        "писати/слати/надсилати/спамити) | припиніть | (скасувати/скасуйте) підписку"
    ),
    "tr": (
        "(stop/abonelikten çık/üyelikten çık/abonelikten çıkmak istiyorum/üyelikten çıkmak istiyorum/listeden çıkmak "
        "istiyorum) | (mesaj/mesajları/e posta/sms/bu mesajları/mail) (/almak/istemiyorum) istemiyorum | mesaj "
        "istemiyorum | (mesaj/mail/e posta/sms/bu mesajları) (/bana) (göndermeyin/atmayın/yollamayın/gönderme/atma) "
        "| (bana/artık) (yazmayın/yazma/göndermeyin) | (beni/numaramı/adresimi) (/bu/lütfen) (/listeden/listenizden/"
        "gruptan) (/lütfen) (çıkarın/çıkar/silin/sil/çıkarır mısınız) | listeden çıkarın | (aboneliği/aboneliğimi/"
        "üyeliğimi) iptal (et/edin) | rahatsız etmeyin | (bana/bize) (/artık) (/bir daha) (hatırlatmayın/hatırlatma "
        "yapmayın/hatırlatma göndermeyin) | (hatırlatmaları/mesajları/bildirimleri/smsleri) (iptal edin/iptal et/"
        "durdurun/durdur/kesin/kapatın/kapat) | bu numaraya (/artık/bir daha) (/mesaj/sms) (atmayın/yazmayın/"
        "göndermeyin) | bu numarayı (/listeden/listenizden) (çıkarın/silin/çıkar/sil) | bizi (/listeden/listenizden) "
        "(çıkarın/silin) | (benimle/bizimle) (/artık/bir daha) iletişime geçmeyin | (beni/bizi) (/artık) (rahat "
        "bırakın/aramayın) | (onayımı/iznimi/rızamı) (geri çekiyorum/geri alıyorum/iptal ediyorum) | (hayır/yeter/"
        "artık) (/teşekkürler/teşekkür ederim) dur | dur artık | mesaj göndermeyi (bırakın/durdurun/kesin)"
    ),
    "he": (
        "(stop/הסר/הסרה/הסירו/הסר אותי/הסירו אותי/תסירו אותי/תסיר אותי/להסיר אותי/תמחקו אותי/מחקו אותי) | תפסיקו | "
        "די לשלוח | (אל/לא) (תשלחו/תשלח/תכתבו) | (לא רוצה/אני לא רוצה/לא מעוניין/לא מעוניינת) (/לקבל/יותר) (/יותר/"
        "עוד) (הודעות/מיילים)"
    ),
    "ar": (
        "(stop/إلغاء الاشتراك/ألغوا اشتراكي/ألغ اشتراكي/إلغاء اشتراكي) | (توقف/توقفوا/كف/كفوا) عن (الإرسال/إرسال/"
        "المراسلة/مراسلتي) | (أوقفوا/أوقف) (/هذه/إرسال) (الرسائل/رسائلكم) | لا (أريد/أرغب) (/في/المزيد من/استقبال/في "
        "استقبال) (/المزيد من/هذه/أي) (رسائل/رسائلكم/الرسائل) | (أريد/أرغب في) إلغاء الاشتراك | (احذفني/احذفوني/"
        "أزيلوني/أزلني/إزالتي/حذفي) | (احذف/احذفوا/حذف) رقمي | لا (ترسل/ترسلوا) | الرجاء التوقف | لا (تراسلني/"
        "تراسلوني/تتواصلوا معي)"
    ),
    "fa": (
        "(stop/لغو اشتراک/لغو عضویت) | (پیام/ایمیل/پیامک) (/ندهید/نفرستید/نفرست) (نفرستید/نفرست/ندهید) | پیام "
        "نفرستید | (نمیخواهم/نمی خواهم) (/دیگر) (پیام/ایمیل/پیامک) (/دریافت کنم) | (مرا/من را/منو) (/از لیست/از "
        "فهرست/از لیست خود) حذف کنید | شماره (من را/مرا) (حذف/پاک) کنید"
    ),
    "hi": (
        "(stop/सदस्यता समाप्त/सदस्यता रद्द) | (मैसेज/संदेश/मेसेज) (/मुझे) (मत भेजो/न भेजें/मत भेजिए/बंद करो/बंद करें/"
        "भेजना बंद करें/भेजना बंद करो) | मुझे (हटा दो/हटाएं/हटा दें/मत भेजो) | मेरा नंबर (हटाएं/हटा दें/हटा दो) | "
        "(message/msg) (/mujhe) (mat bhejo/band karo/na bhejo/mat bhejiye)"
    ),
    "th": (
        "(stop/ยกเลิกการรับข่าวสาร/เลิกรับ/ยกเลิกการติดตาม/ยกเลิกการสมัคร/ไม่ต้องส่งมาอีก/หยุดส่ง/อย่าส่ง/เลิกส่ง/"
        "ไม่ต้องส่ง/ไม่ต้องการรับ/ไม่อยากรับ/ลบชื่อฉัน/ลบเบอร์ของฉัน/ลบเบอร์ฉัน/ลบเบอร์ผม)"
    ),
    "vi": (
        "(stop/hủy đăng ký/huỷ đăng ký/hủy theo dõi/bỏ đăng ký) | đừng (gửi/nhắn) (/tin/tin nhắn/thư/email) (/nữa) | "
        "(ngừng/dừng/thôi) (gửi/nhắn) (/tin/tin nhắn/email) | (tôi không muốn/không muốn) nhận (/thêm) (tin nhắn/tin/"
        "email/thư) | xóa (/số của) tôi (/khỏi danh sách) | đừng (làm phiền/liên lạc) | không nhận (/thêm) (tin nhắn/"
        "tin/email/thư) (/nữa) | (hủy/huỷ) (/các/mọi) (tin nhắn/lời nhắc/nhắc nhở)"
    ),
    "id, ms": (
        "(stop/stop langganan/berhenti berlangganan/berhenti melanggan) | (jangan/jgn/tolong jangan/usah) (/lagi) "
        "(kirim/kirimi/kirimkan/hubungi/chat/wa/sms/hantar/mesej/ganggu) | (berhenti/stop/setop) (kirim/mengirim/"
        "hantar/menghantar/mengirimi/kirimi) | hentikan (pesan/mesej/kiriman/semua/ini/sms) | saya (mau/ingin/mahu) "
        "berhenti | saya (tidak/tak/tidak lagi) (mau/ingin/mahu) (/lagi) (/menerima/terima) (/lagi) (pesan/mesej/sms/"
        "email/ini) | (hapus/buang/hapuskan/keluarkan) (saya/nomor saya/nombor saya/kontak saya/email saya/nama saya/"
        "no saya) | (batalkan/batal) (langganan/langganan saya) | tolong (hentikan/berhenti) | (jangan/jgn) "
        "(ingatkan/mengingatkan) (saya/kami) (/lagi) | (batalkan/matikan/hentikan) (/semua) (pengingat/pesan/"
        "notifikasi/mesej/peringatan) | (saya/kami) (tidak/tak) (mau/ingin/mahu) (/lagi) (dihubungi/diganggu/"
        "diingatkan) (/lagi) | (hapus/buang/hapuskan/keluarkan) (kami/nomor ini/nombor ini/no ini) | berhenti "
        "(mengingatkan/menghubungi/ganggu/mengganggu) | saya (mencabut/cabut/menarik/tarik) (/kembali) (persetujuan/"
        "izin) (/saya) | jangan ganggu kami"
    ),
    "fil": (
        "(stop/huwag na mag text/wag na mag text/wag nyo na ako i text/tigilan nyo na ako/tigilan mo na ako/alisin "
        "nyo ako/alisin ninyo ako/tanggalin nyo ako/ayoko na ng mensahe/ayaw ko na ng mensahe/huwag na kayong mag "
        "text)"
    ),
    "zh": (
        "(stop/退订/退訂/取消订阅/取消訂閱/拒收/停止发送/停止發送/停止订阅/停止訂閱/取消关注/停止推送) | (不要再/"
        "别再/別再/请勿再/勿再/不要/别/別) (发/發/给我发/給我發/发给我/發給我/联系我/聯絡我/联络我/打扰我/打擾我/寄/"
        "传/傳) | (把我/将我) (/从名单中/从列表中/从名单/从名单里/從名單中/从群里) (删除/删掉/移除/删了/刪除/移出) | "
        "(删除/刪除) (我/我的(号码/号/號碼/邮箱/信息/联系方式)) | (不想再/不想/不要再/不再希望/不希望再) (收到/接收/"
        "收) | 不需要再(发/發)"
    ),
    "ja": (
        "(stop/配信停止/配信解除/登録解除/退会/購読解除/購読停止/受信拒否/配信停止希望/配信不要/退会希望) | "
        "配信を(停止/止めて/解除/中止/ストップ) | (送らないで/送信しないで/配信しないで/送付しないで/連絡しないで/"
        "メールしないで) | (送信/送付/メール/メルマガ/メッセージ/通知/リマインダー/ご連絡)(は/を/の送信を/の配信を/"
        ")(不要/結構/停止/やめて/止めて/とめて/ストップ) | (リスト/名簿)から(削除/外して/はずして) | (登録/"
        "購読)を(解除/削除/取り消して)"
    ),
    "ko": (
        "(stop/수신거부/수신 거부/구독취소/구독 취소/구독해지/구독 해지/수신차단) | (그만/더 이상/더이상) (보내/"
        "연락) | (보내지/연락하지/보내지는) (마/말) | (명단/목록/리스트)에서 (삭제/제외/빼)"
    ),
}

#: Words that change nothing around a wish of the same language. No word that negates it, and none that could name
#: something else that should end.
AROUND = {
    "en": (
        "me | us | my | myself | all | any | any more | anymore | more | further | this | that | these | those | it "
        "| them | the | your | such | of | from | off | with | and | sending | texting | messaging | emailing | e "
        "mailing | mailing | writing | writing to | contacting | calling | spamming | bothering | harassing | "
        "pestering | annoying | receiving | reminding | notifying | text messages | getting | disturbing | to me | "
        "to us | to (my/this/our) (number/phone/email/address) | messages | message | emails | email | e mails | e "
        "mail | mails | mail | texts | text | sms | whatsapp | whatsapps | msgs | msg | reminders | reminder | "
        "notifications | notification | alerts | updates | newsletters | newsletter | communications | stuff | crap "
        "| shit | spam | ads | advertising | marketing | promotions | promos | nonsense | (from/out of/on/of) (/the/"
        "this/that/these/your/all/all your) (/mailing/email/distribution/contact/text/sms/marketing) (list/lists/"
        "database/system/contacts/records) | (take/get) (me/us/(my/our/this) (name/number/phone/phone number/email/e "
        "mail/address/email address/e mail address/mail address)) | subscription | subscriptions | number | phone | "
        "address | anything | anything else | everything | (i/we) (want/need/wish) (/you) to | (i/we) (d/would) like "
        "(/you) to | want to | to be | (can/could/would/will) (you/u) | you (can/may/must) | just | really | (i/we) "
        "(/have/already/have already) (asked/told) you to | i (said/say/repeat) | already | forever | for good | "
        "permanently | completely | right away | straight away | effective immediately | from now on | in (/the) "
        "future | ever | every day | daily | fucking | damn | stupid | unwanted | hereby | request to | i am writing "
        "to | would you mind | mind | as of now"
    ),
    "de": (
        "mich | mir | mein | meine | meinen | uns | ich (möchte/will/würde gern/würde gerne/wünsche/mag) | möchte | "
        "wir (möchten/wollen) | hiermit | den | die | das | der | dem | diese | dieser | diesem | diesen | ihre | "
        "ihren | ihrem | ihrer | eure | euren | eurem | eurer | allen | alle | aus | von | vom | newsletter | "
        "newslettern | verteiler | liste | listen | mailingliste | mailinglisten | nachrichten | mails | e mails | "
        "emails | mail | sms | erinnerungen | werbung | nummer | ab | endlich | umgehend | bitte | gern | gerne | "
        "einfach | (können/könnten) sie | (kannst/könntest) du | (könnt/könntet) ihr | (senden/schicken) sie | "
        "(schick/schicke/schickt/sende/sendet) | senden | schicken | zusenden | zuschicken | erhalten | bekommen | "
        "empfangen | zu | schreiben | texten | mailen | spammen | belästigen | zu senden | zu schicken | von ihnen | "
        "von euch | von dir | an mich | an diese (nummer/adresse) | mehr | künftig | zukünftig | in zukunft | ab "
        "heute | ab jetzt | damit | wieder | und | auch | so | solche | solchen | ständig | dauernd | immer | "
        "erinnern | zu erinnern | zu schreiben"
    ),
    "fr": (
        "me | m | moi | nous | de | d | la | le | les | l | des | du | vos | votre | ces | cette | ce | toutes | "
        "tous | tout | toute | liste | listes | diffusion | mailing | messages | message | mails | mail | e mails | "
        "emails | email | e mail | sms | textos | rappels | newsletter | newsletters | notifications | pubs | "
        "publicités | pub | spam | courriels | courriel | envois | base | données | contacts | je (veux/voudrais/"
        "souhaite/souhaiterais/désire) | j aimerais | nous souhaitons | (pouvez/pourriez) vous | veuillez | merci de "
        "| merci | prière de | envoyer | m envoyer | m écrire | écrire | recevoir | rien | jamais | désormais | à l "
        "avenir | dès maintenant | à | dans | par | et | vous | ça | cela | numéro | adresse | à ce numéro | à cette "
        "adresse"
    ),
    "es": (
        "me | mi | mis | de | la | las | los | el | su | sus | esta | estas | este | estos | esos | todas | todos | "
        "todo | lista | listas | correo | correos | mensaje | mensajes | mails | mail | emails | email | sms | "
        "whatsapp | recordatorios | electrónico | electrónicos | publicidad | boletín | newsletter | spam | "
        "notificaciones | suscripción | base | datos | difusión | distribución | contactos | más | mas | nada | "
        "nunca | (quiero/quisiera/deseo/necesito/solicito/pido) (/que) | me gustaría | (pueden/puede/puedes/podrían/"
        "podría) | recibir | enviarme | enviar | mandarme | escribirme | a | al | con | y | número | teléfono | "
        "inmediatamente | de inmediato | en el futuro | otra vez | ustedes | vuestra | vuestros | tu | tus"
    ),
    "pt": (
        "me | mim | meu | minha | de | da | das | do | dos | a | as | o | os | sua | suas | seu | seus | vossa | "
        "vossas | vosso | esta | estas | este | estes | essa | essas | esse | esses | dessa | desta | dessas | "
        "destas | todas | todos | tudo | lista | listas | mensagem | mensagens | e mail | e mails | email | emails | "
        "sms | lembretes | whatsapp | newsletter | spam | publicidade | notificações | mais | nada | nunca | nunca "
        "mais | (quero/queria/gostaria de/desejo/preciso) | (podem/pode/poderiam/poderia) | receber | enviar | "
        "mandar | escrever | envios | contatos | contactos | número | telefone | imediatamente | já | e | para | por "
        "| com | distribuição | cadastro | base | dados | daqui | favor"
    ),
    "it": (
        "mi | me | mio | mia | di | da | dalla | dalle | dal | dai | il | la | le | i | gli | vostra | vostre | "
        "vostro | vostri | tua | tuoi | sua | questa | queste | questo | questi | tutte | tutti | tutto | lista | "
        "liste | messaggio | messaggi | mail | email | e mail | sms | promemoria | newsletter | pubblicità | spam | "
        "notifiche | più | mai più | nulla | niente | (voglio/vorrei/desidero/chiedo di/vi prego di/ti prego di/"
        "prego di) | (potete/può/puoi/potreste) | ricevere | mandarmi | inviarmi | scrivermi | contattarmi | mandare "
        "| inviare | spedirmi | numero | indirizzo | immediatamente | subito | e | ed | a | con | distribuzione | "
        "iscrizione | altri | altre | ricordarmi | di ricordarmi | dal vostro elenco | elenco"
    ),
    "nl": (
        "me | mij | mijn | ons | de | het | een | deze | dit | die | uw | jullie | je | alle | alles | van | uit | "
        "voor | lijst | lijsten | mailinglijst | verzendlijst | nieuwsbrief | nieuwsbrieven | bericht | berichten | "
        "mail | mails | e mail | e mails | sms | appjes | herinneringen | reclame | spam | meer | ik (wil/zou/wens) "
        "| wil | willen | zou | graag | kunt u | kun je | kunnen jullie | wilt u | wil je | met | te | sturen | "
        "ontvangen | krijgen | mailen | schrijven | toesturen | stuur | stuurt | zend | nummer | adres | "
        "onmiddellijk | direct | en | aan mij | naar mij | niet meer | voortaan | u | naar dit nummer | naar dit "
        "adres"
    ),
    "sv": (
        "mig | mitt | min | mina | från | ur | av | listan | er lista | era listor | alla listor | listor | lista | "
        "alla | allt | er | era | ert | denna | dessa | det | den | här | meddelanden | meddelande | mejl | mail | e "
        "post | sms | påminnelser | nyhetsbrev | utskick | register | registret | adresslista | reklam | skräppost | "
        "till mig | jag vill | jag önskar | vill | kan ni | kan du | skicka | skriva | få | ha | fler | mer | längre "
        "| genast | omedelbart | nu | och | tack | bli | nummer"
    ),
    "da, nb": (
        "mig | meg | mit | min | mitt | fra | af | av | listen | jeres liste | deres liste | deres | jeres | lister "
        "| liste | alle | alt | denne | disse | det | den | de | beskeder | besked | meldinger | melding | mails | "
        "mail | e mails | e post | eposter | sms | sms er | påmindelser | påminnelser | nyhedsbrev | nyhetsbrev | "
        "reklamer | spam | til mig | til meg | jeg vil (/gerne) | jeg ønsker | kan i | kan du | kan dere | send | "
        "sende | skrive | modtage | motta | få | ha | flere | mere | mer | længere | lenger | straks | nu | nå | og "
        "| at | å | nummer"
    ),
    "fi": (
        "minut | minua | minulle | numeroni | listalta | listaltanne | postituslistalta | kaikilta listoilta | "
        "listoilta | kaikki | nämä | näitä | näiden | viestit | viestejä | viestien | sähköpostit | sähköposteja | "
        "muistutuksia | muistutukset | mainoksia | uutiskirje | uutiskirjeen | lähettäminen | lähettämästä | haluan "
        "| voitteko | enää | heti | ja | ole hyvä | olkaa hyvä"
    ),
    "pl": (
        "mnie | mi | mój | moje | do mnie | z | ze | od | listy | list | państwa | waszej | tej | wszystkich | "
        "wszystkie | wiadomości | wiadomość | maili | maile | mail | e maili | e maile | sms ów | smsów | smsy | sms "
        "| przypomnień | przypomnienia | newslettera | newsletter | reklam | reklamy | spamu | spam | mailingowej | "
        "subskrypcji | chcę | chciałbym | chciałabym | proszę (/o) | (czy/) (może/mogą/możecie) (/pan/pani/państwo) "
        "| wysyłać | przysyłać | wysyłanie | pisać | otrzymywać | dostawać | więcej | już | nigdy | natychmiast | "
        "teraz | i | się | numer | bazy | danych | tych | takich | te | to"
    ),
    "cs, sk": (
        "mě | mne | mi | mně | ma | se | sa | z | ze | zo | od | seznamu | zoznamu | listu | odběr | odběru | odber "
        "| odberu | vašeho | vášho | všech | všetkých | seznamů | zoznamov | zprávy | zpráv | správy | správ | maily "
        "| mailů | e maily | e mailů | emaily | emailov | sms | newsletter | newsletteru | newsletterů | upomínky | "
        "reklamy | reklamu | spam | další | ďalšie | více | viac | už | nic | nič | žádné | žiadne | chci | chcem | "
        "můžete | môžete | tyto | tieto | ty | tie | zasílat | zasielať | posílat | posielať | okamžitě | hned | o | "
        "mi | a | číslo | nikdy | přestaňte | prestaňte"
    ),
    "hu": (
        "engem | nekem | a | az | listáról | listájukról | levelezőlistáról | hírlevélről | minden | ezt | ezeket | "
        "több | többet | ilyen | üzenetet | üzeneteket | levelet | leveleket | e mailt | emailt | sms t | "
        "emlékeztetőt | szeretnék | kérem | hogy | azonnal | számomat | és"
    ),
    "ro": (
        "mă | mi | îmi | imi | mie | de la | de pe | din | la | pe | lista | listă | listele | toate | dumneavoastră "
        "| voastră | aceste | acest | alte | mesaje | mesajele | emailuri | e mailuri | mailuri | mailurile | sms "
        "uri | sms | newsletter | newsletterul | notificări | reclame | spam | vreau | doresc | aș dori | puteți | "
        "să | mai | nimic | numărul | meu | imediat | și | niciodată | primesc"
    ),
    "el": (
        "με | μου | από | τη | την | το | τα | τις | λίστα | λίστες | σας | όλες | αυτά | άλλα | άλλο | μηνύματα | "
        "μήνυμα | email | emails | mail | sms | υπενθυμίσεις | ενημερώσεις | διαφημίσεις | θέλω | θα ήθελα | "
        "μπορείτε | να | πια | πλέον | αμέσως | ποτέ | ξανά | και"
    ),
    "bg": (
        "ме | ми | мен | от | списъка | списък | списъците | бюлетина | вашия | всички | тези | повече | никога | "
        "вече | съобщения | съобщенията | имейли | имейлите | смс | напомняния | реклами | спам | искам | желая | "
        "бихте ли | можете ли | да | веднага | и | номера | се"
    ),
    "hr, sr, sl": (
        "me | mi | mene | s | sa | iz | z | od | liste | popisa | seznama | mailing | vaše | vašeg | vašega | svih | "
        "vseh | ovih | ove | teh | poruke | poruka | sporočila | sporočil | mailove | mailova | e mail | sms | sms a "
        "| obavijesti | podsjetnike | newslettera | newsletter | želim | hoću | molim vas | možete li | više | več | "
        "nikada | odmah | takoj | i | in | da | слати | писати | са | листе | поруке | порука | више | mene | broj | "
        "moj"
    ),
    "ru": (
        "мне | меня | мой | нас | нам | из | от | с | этой | этих | эти | это | этот | вашей | ваших | ваши | всех | "
        "все | рассылки | рассылок | рассылку | списка | списков | базы | данных | сообщения | сообщений | сообщение "
        "| письма | писем | смс | уведомления | уведомлений | напоминания | напоминаний | рекламу | рекламы | спам | "
        "спама | подписки | на | номер | адрес | почту | (я/) (хочу/хотел бы/хотела бы/желаю) | прошу | просьба | "
        "можете | можно | больше | никогда | никаких | ничего | немедленно | сейчас же | срочно | и | слать | писать "
        "| присылать | отправлять | получать | ваш | свои | уже | присылать мне | вас | сюда | такие | подобные | "
        "ваша | вашу | своей"
    ),
    "uk": (
        "мені | мене | мій | нам | зі | із | з | від | цієї | цих | ці | це | вашої | ваших | ваші | всіх | усіх | "
        "всі | розсилки | розсилку | розсилок | списку | списків | бази | повідомлення | повідомлень | листи | "
        "листів | смс | нагадування | нагадувань | рекламу | реклами | спам | підписки | номер | (я/) хочу | хотів "
        "би | хотіла б | прошу | можете | більше | ніколи | негайно | і | та | слати | писати | надсилати | "
        "отримувати | такі"
    ),
    "tr": (
        "bana | beni | bu | şu | artık | bir daha | daha fazla | lütfen | hemen | derhal | mesaj | mesajı | "
        "mesajları | mesajlar | mail | mailleri | e posta | e postaları | sms | listeden | listenizden | bütün | tüm "
        "| listelerden | hatırlatma | reklam | numaramı | istiyorum | misiniz | mısınız | kesin | sizden | gruptan | "
        "de | da | ve"
    ),
    "he": (
        "אותי | לי | אלי | מהרשימה | מרשימת | התפוצה | הרשימה | שלכם | מכל | הרשימות | הודעות | הודעה | מיילים | "
        "מייל | סמס | יותר | עוד | את | המספר | שלי | מיד | עכשיו | אני | רוצה | מבקש | מבקשת | אנא | נא | לשלוח | "
        "לקבל | האלה | ההודעות"
    ),
    "ar": (
        "لي | إلي | إلى | من | عن | القائمة | قائمتكم | قائمة | القوائم | جميع | كل | هذه | هذا | أي | من فضلكم | لو "
        "سمحتم | لو سمحت | الرسائل | رسائل | رسائلكم | رسالة | البريد | بريد | إشعارات | مرة أخرى | مجددا | بعد الآن "
        "| بعد اليوم | فورا | حالا | أريد | أرجو | أرجوكم | رجاء | المزيد | الإرسال | رقمي | و | يرجى | أود"
    ),
    "fa": (
        "دیگر | به من | برای من | من | مرا | را | از | لیست | فهرست | این | پیام | پیامها | پیامک | ایمیل | هیچ | "
        "فورا | بیشتر | خود | لطفا"
    ),
    "hi": (
        "मुझे | मेरा | मेरे | और | अब | ये | यह | इस | सूची से | लिस्ट से | संदेश | मैसेज | मेसेज | कोई | आगे से | "
        "तुरंत | नंबर | पर | mujhe | aur | ab | koi | mera | number"
    ),
    "th": (
        "ข้อความ | มา | อีก | ฉัน | ผม | ดิฉัน | ให้ | แล้ว | ได้ไหม | ได้แล้ว | ขอ | ช่วย | โปรด | การ | นี้ | "
        "เหล่านี้ | อีเมล | เมล | มาที่ | เบอร์นี้ | นะ | คะ | กรุณา | เถอะ"
    ),
    "vi": (
        "cho tôi | cho mình | tôi | mình | nữa | thêm | này | những | các | tin | tin nhắn | email | thư | khỏi | "
        "danh sách | ra | của bạn | xin | hãy | muốn | ngay | lập tức | đi | ạ | làm phiền | với tôi | tới tôi | đến "
        "tôi"
    ),
    "id, ms": (
        "saya | aku | ke saya | kepada saya | ke nomor ini | ke nomor saya | nomor | nombor | ini | itu | dari | "
        "daripada | daftar | senarai | semua | pesan | mesej | sms | wa | chat | email | notifikasi | pengingat | "
        "iklan | promosi | spam | lagi | apa pun | apa apa | apapun | dong | ya | yah | deh | lah | segera | "
        "sekarang | mohon | bisa | boleh | ingin | mau | mahu | kontak | anda | kalian | dan | terus | me | kami | "
        "ke kami"
    ),
    "fil": "ako | po | na | ng | sa | akin | mensahe | listahan | ninyo | nyo | mga | please | text | pa",
    "zh": (
        "我 | 给我 | 給我 | 请 | 請 | 了 | 吧 | 再 | 把 | 的 | 消息 | 信息 | 短信 | 邮件 | 郵件 | 訊息 | 简讯 | 簡訊 "
        "| 这些 | 這些 | 这种 | 这个 | 此类 | 广告 | 廣告 | 推送 | 通知 | 任何 | 要 | 想 | 我要 | 我想 | 从 | 列表 | "
        "名单 | 名單 | 群发 | 立即 | 马上 | 谢谢 | 拜托 | 给 | 你们 | 你們 | 帮我 | 一下 | 所有 | 电子 | 啊 | 啦 | "
        "服务 | 中 | 里 | td | 回复"
    ),
    "ja": (
        "今後 | 以後 | もう | これ以上 | この | これらの | メール | メルマガ | メッセージ | ショートメール | を | は "
        "| の | が | に | も | から | て | で | すべて | 全て | 一切 | ください | 下さい | お願いします | お願い | "
        "いたします | 致します | お願いいたします | お願い致します | します | したい | です | 希望 | 希望します | "
        "して | してください | して欲しい | 手続き | 至急 | すぐに | ご | リマインダー | 通知 | 私 | 宛 | 二度と | "
        "頂けますか | いただけますか | ね"
    ),
    "ko": (
        "메일 | 이메일 | 문자 | 메시지 | 카톡 | 알림 | 광고 | 이런 | 이 | 저에게 | 저한테 | 제 | 나한테 | 번호 | 더 "
        "이상 | 더이상 | 이제 | 다시 | 다시는 | 을 | 를 | 은 | 는 | 좀 | 요 | 세요 | 주세요 | 해주세요 | 해 주세요 | "
        "합니다 | 할게요 | 하겠습니다 | 부탁드려요 | 부탁합니다 | 바랍니다 | 지 | 시기 | 아 | 라고요 | 줘요 | "
        "원합니다 | 처리 | 신청 | 신청합니다 | 그만 | 시고 | 제발"
    ),
}

#: What a sentence names that asks to end messages, and whose it is. With both (or a word of courtesy) it is heard even
#: beside other sentences: “Please stop the reminders. I have paid.”
MESSAGES = (
    "message | messages | msgs | email | emails | mail | mails | text | texts | texting | messaging | emailing | "
    "sms | reminders | newsletter | newsletters | list | lists | unsubscribe | nachrichten | erinnerungen | "
    "verteiler | liste | listen | mailingliste | abmelden | rappels | courriels | désabonner | désinscrire | "
    "désinscrivez | désabonnez | mensajes | correos | lista | listas | recordatorios | de baja | mensagens | "
    "lembretes | messaggi | promemoria | berichten | lijst | herinneringen | meddelanden | mejl | listan | "
    "beskeder | meldinger | listen | viestejä | viestit | listalta | wiadomości | maili | listy | zprávy | správy "
    "| maily | seznamu | zoznamu | üzenetet | listáról | mesaje | listă | μηνύματα | λίστα | съобщения | списъка | "
    "poruke | poruka | сообщения | сообщений | рассылки | рассылку | списка | писем | письма | повідомлення | "
    "повідомлень | розсилки | списку | mesaj | mesajları | listeden | הודעות | מהרשימה | الرسائل | رسائل | القائمة "
    "| पیام | संदेश | मैसेज | ข้อความ | tin nhắn | danh sách | pesan | mesej | daftar | senarai | 短信 | 消息 | "
    "邮件 | 訊息 | 名单 | 退订 | 退訂 | 取消订阅 | メール | メルマガ | 配信 | リスト | 문자 | 메일 | 메시지 | "
    "수신거부"
)
#: Words that may change a wish from another part of its sentence: “stop the emails, text me instead”, “take me off the
#: list, I can't come”. A clause is not heard beside them.
CHANGES = (
    "but | instead | except | only | rather | prefer | until | till | unless | if | when | whenever | while | once | "
    "for | keep | use | send | text | texts | call | calls | phone | ring | write | whatsapp | telegram | sms | email "
    "| mail | post | letter | new | old | other | today | tomorrow | tonight | this week | next | week | monday | "
    "tuesday | wednesday | thursday | friday | saturday | sunday | before | after | then | later | again | back | "
    "kidding | joking | joke | haha | lol | will | ll | come | coming | came | see you | there | cannot | can t | cant "
    "| can | make it | sick | ill | late | place | appointment | meeting | aber | sondern | stattdessen | lieber | nur "
    "| außer | bis | wenn | falls | sobald | solange | statt | für | ruf | rufen | anrufen | schreib | schreiben | "
    "neue | neuen | alte | alten | heute | morgen | woche | montag | dienstag | mittwoch | donnerstag | freitag | "
    "komme | kommen | krank | spaß | scherz | kann | termin | mais (seulement/pas/je/j/juste/pour/gardez/laissez/"
    "continuez) | plutôt | sauf | seulement | uniquement | jusqu | si | quand | lorsque | pour | appelez | écrivez | "
    "nouveau | nouvelle | ancien | ancienne | demain | semaine | viens | malade | peux | blague | pero | sino | "
    "excepto | salvo | sólo | solo | solamente | hasta | cuando | mientras | para | llámame | llámenme | escríbanme | "
    "nuevo | nueva | viejo | mañana | hoy | semana | vengo | voy | enfermo | enferma | puedo | broma | cita | mas (só/"
    "não/quero/apenas/continue) | porém | exceto | apenas | somente | até | quando | se | enquanto | ligue | liguem | "
    "novo | nova | antigo | amanhã | hoje | venho | doente | posso | brincadeira | consulta | ma | però | invece | "
    "tranne | fino | mentre | per | chiamatemi | nuovo | nuova | vecchio | domani | oggi | settimana | vengo | malato "
    "| malata | scherzo | maar | behalve | alleen | tot | als | wanneer | voor | bel | nieuwe | oude | vandaag | week "
    "| kom | ziek | kan | grapje | men | utan | bara | om | tills | för | men kun | hvis | indtil | for | но | только "
    "| кроме | если | когда | пока | для | лучше | звоните | новый | старый | завтра | сегодня | приду | але | тільки "
    "| якщо | ale | tylko | jeśli | dopóki | dla | jutro | ama | sadece | için | yarın | bugün | tapi | tetapi | hanya "
    "| kalau | jika | sampai | untuk | besok | nhưng | chỉ | nếu | khi | cho"
)

#: Who asks for fewer messages does not ask for none: beside other sentences such a sentence is not heard.
FEWER = "every day | daily"

#: What is asked for another person. It counts only beside the news that this person died (DEATHS).
THEIRS = (
    "(remove/delete/take/unsubscribe) (her/him/them/(her/his) (name/number/email/address)) (/from/off/out of) (/your/"
    "the/this/all/all your) (/mailing/contact) (list/lists/database/records) | (remove/delete/unsubscribe) (her/him/"
    "(her/his) (name/number)) | (löschen sie/löscht/streichen sie/entfernen sie) (/bitte) (sie/ihn/(ihre/seine) "
    "(nummer/adresse)) (/aus (dem/ihrem) verteiler/(aus/von) (der/ihrer) liste) | nehmen sie (/bitte) (sie/ihn) (aus "
    "(dem/ihrem) verteiler/(aus/von) (der/ihrer) liste) | (retirez/supprimez) (la/le/(son/ce) numéro) (/de (votre/"
    "la) liste) | (bórrenla/bórrenlo/elimínenla/elimínenlo/quítenla/quítenlo) (/de (su/la) lista) | (eliminen/"
    "borren) su (número/nombre) (/de (su/la) lista) | (removam/retirem/tirem) (/o/a) (número (dela/dele)/na/no) (/da "
    "(sua/vossa/) lista) | (cancellatela/cancellatelo/toglietela/toglietelo/rimuovetela/rimuovetelo) (/(dalla/dal) (/"
    "vostra/vostro) (lista/elenco)) | (haal/verwijder) (haar/hem/(haar/zijn) nummer) (/van (de/uw/jullie) lijst) | "
    "(hapus/keluarkan) (nomornya/namanya/nomor beliau/dia) (/dari daftar) | (numarasını/onu) (/listeden/listenizden) "
    "(silin/çıkarın)"
)
MINE = (
    "me | my | us | i | we | this number | mich | mir | meine | ich | moi | me | m | je | mon | mi | yo | minha | "
    "meu | eu | mim | mij | mijn | ik | mig | meg | jag | jeg | minut | minulle | mnie | mi | mě | mne | ma | mă | "
    "îmi | με | μου | ме | ми | мне | меня | мой | мені | мене | beni | bana | אותי | לי | لي | مرا | मुझे | tôi | "
    "saya | aku | ako | bórrenme | bórrame | bórreme | quítenme | quítame | quíteme | sáquenme | sácame | elimínenme | "
    "elimíname | cancellatemi | cancellami | toglietemi | rimuovetemi | 我 | ください | 주세요 | 마세요"
)
