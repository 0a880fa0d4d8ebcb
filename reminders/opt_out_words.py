"""Words and short sentences by which people opt out, by language. Phrases are separated by bars; case, accents and
punctuation do not matter. To support another language, add a line to each table; tests/inbound/reply_formats.py has the
matching examples.
"""

from __future__ import annotations

#: A message that is only one of these opts its sender out.
WORDS = {
    "en": (
        "stop | stopp | stopall | stop all | unsubscribe | unsub | cancel | end | quit | revoke | optout | "
        "opt out | opt me out | remove | remove me | delete me | do not contact | do not disturb"
    ),
    "de": "abmelden | abbestellen | abmeldung | austragen | abbestellung | stoppen | beenden | kündigen | halt",
    "fr": (
        "arrêt | arrêter | arrêtez | stopper | désabonner | désabonnement | désinscrire | désinscription | "
        "se désabonner"
    ),
    "es": "baja | darse de baja | cancelar | parar | salir | detener | desuscribir | desuscribirse | basta",
    "pt": "parar | sair | pare | cancelar | descadastrar | remover | cancelar inscrição | descadastre | stop tudo",
    "it": (
        "disiscrivi | disiscrivimi | cancella | cancellami | annulla | fermare | ferma | disiscrizione | "
        "basta | rimuovimi"
    ),
    "nl": "afmelden | uitschrijven | stoppen | opzeggen | afmelding | meld me af",
    "sv": "avregistrera | avsluta | stoppa | sluta | avanmälan | avprenumerera | avbeställ",
    "da": "afmeld | frameld | stop alt | afslut | afmeldt",
    "nb": "avmeld | stopp alt | avslutt | meld meg av | avregistrer",
    "fi": "lopeta | peruuta | poista | seis | peru tilaus",
    "is": "hætta | afskrá | stöðva",
    "pl": "wypisz | wypisz mnie | rezygnuję | rezygnacja | anuluj | zatrzymaj | koniec | wyrejestruj | usuń",
    "cs": "odhlásit | odhlásit se | zrušit | konec | ukončit | odhlášení | odhlaste",
    "sk": "odhlásiť | odhlásiť sa | zrušiť | koniec | ukončiť | odhláste",
    "hu": "leiratkozás | leiratkozom | leiratkozni | állj | vége | lemondás | lemondom",
    "ro": "dezabonare | dezabonați | dezabonează | renunț | oprește | opriți | anulare",
    "bg": "стоп | отписване | отпиши | отпиши ме | спри | спрете | край",
    "el": "διακοπή | σταματήστε | σταμάτα | απεγγραφή | διαγραφή | στοπ",
    "hr, sr": "odjava | odjavi | odjavi me | prekini | kraj | одјава | одјави | прекини | стоп",
    "sl": "odjava | odjavi me | konec | prekini",
    "lt": "atsisakyti | atsisakau | nutraukti | stabdyti",
    "lv": "atteikties | atrakstīties | pārtraukt | beigt",
    "et": "lõpeta | loobu | lahku | peata",
    "ca": "baixa | aturar | atura | cancel·la | cancel·lar | donar-me de baixa",
    "eu": "gelditu | baja eman",
    "ru": "стоп | отписаться | отписка | отпишите | отписать | отпишите меня | отмена | прекратить | хватит",
    "uk": "стоп | відписатися | відписатись | відписка | відпишіть | відпишіть мене | скасувати | припинити",
    "kk": "тоқтату | бас тарту",
    "tr": "dur | durdur | iptal | çık | abonelikten çık | üyelikten çık",
    "az": "dayandır | ləğv et | imtina",
    "he": "הסר | הסרה | הסירו | הסר אותי | עצור | די | בטל | ביטול",
    "ar": "إيقاف | توقف | أوقف | الغاء | إلغاء | إلغاء الاشتراك | الغاء الاشتراك | قف | وقف | ايقاف | كفى",
    "fa": "توقف | لغو | لغو اشتراک | انصراف | قطع",
    "ur": "بند کرو | روکیں | بند کریں",
    "hi": "रोकें | रोको | बंद करो | बंद करें | सदस्यता समाप्त | सदस्यता रद्द",
    "bn": "বন্ধ করুন | থামুন",
    "ta": "நிறுத்து | நிறுத்தவும்",
    "te": "ఆపు | ఆపండి",
    "th": "หยุด | ยกเลิก | ยกเลิกการรับข่าวสาร | เลิกรับ | ยกเลิกการติดตาม",
    "vi": "dừng | hủy | huỷ | hủy đăng ký | ngừng | dừng lại",
    "id": "berhenti | henti | stop langganan | berhenti berlangganan | hentikan | batalkan",
    "ms": "berhenti | henti | hentikan | berhenti melanggan",
    "fil": "itigil | tigil | huminto | ihinto | tama na",
    "sw": "acha | simama | sitisha | jiondoe",
    "af": "staak | kanselleer | teken uit",
    "zh": (
        "退订 | 退訂 | 取消订阅 | 取消訂閱 | 停止 | 拒收 | 取消 | 停止发送 | 停止發送 | 不要再发 | 不要再發 | "
        "停止订阅 | 停止訂閱 | 取消关注 | td | 退出 | 别再发了 | 不要再发了"
    ),
    "ja": "停止 | 配信停止 | 配信解除 | 解除 | 登録解除 | 退会 | ストップ | 購読解除 | 購読停止 | 中止 | 受信拒否",
    "ko": "수신거부 | 수신 거부 | 중지 | 중단 | 해지 | 취소 | 구독취소 | 구독 취소 | 거부 | 그만 | 탈퇴 | 구독해지",
}

#: Sentences that mean only that. Words of courtesy before and behind them do not matter.
SENTENCES = {
    "en": (
        "unsubscribe me | please unsubscribe | take me off | remove my number | delete my number | "
        "remove my email | remove my address | delete my data | delete my address | opt me out of this | "
        "no more messages | no more emails | no more texts | no messages | do not contact me | "
        "do not contact me again | dont contact me | don t contact me | do not text me | don t text me | "
        "dont text me | do not write to me | do not write to me again | don t write to me | don t message me | "
        "do not message me | do not email me | don t email me | leave me alone | don t send me messages | "
        "do not send me messages | don t send me any more messages | do not send me any more messages | "
        "don t send me anything | do not send me anything | do not send me emails | don t send me emails | "
        "i don t want these messages | i do not want these messages | i don t want any more messages | "
        "i do not want any more messages | i don t want to receive these messages | "
        "i do not want to receive these messages | i don t want to receive messages | "
        "i no longer want to receive these messages | i no longer wish to receive these messages | "
        "i no longer wish to receive these emails | i no longer want to receive these emails | "
        "i no longer wish to receive emails | cancel my subscription | cancel subscription | "
        "end my subscription | end subscription | stop this | stop now | please no more messages | "
        "opt out please | i opt out | i want out | get me off this list | get me off your list"
    ),
    "de": (
        "keine nachrichten mehr | keine weiteren nachrichten | keine mails mehr | keine e mails mehr | "
        "keine sms mehr | bitte nicht mehr schreiben | nicht mehr schreiben | schreiben sie mir nicht mehr | "
        "schreib mir nicht mehr | ich möchte keine nachrichten mehr | "
        "ich möchte keine nachrichten mehr erhalten | ich möchte keine mails mehr erhalten | "
        "ich möchte keine e mails mehr erhalten | ich will keine nachrichten mehr | ich möchte mich abmelden | "
        "ich will mich abmelden | ich melde mich ab | melden sie mich ab | melde mich ab | mich abmelden | "
        "mich abbestellen | hiermit melde ich mich ab | newsletter abbestellen | newsletter abmelden | "
        "nehmen sie mich von der liste | nehmen sie mich aus dem verteiler | nimm mich von der liste | "
        "löschen sie mich | löschen sie mich aus dem verteiler | lösche mich | löschen sie meine nummer | "
        "löschen sie meine daten | von der liste streichen | von der liste nehmen | aus dem verteiler nehmen | "
        "aus dem verteiler löschen | kein interesse mehr stop | keine werbung | keine werbung mehr | "
        "hören sie auf | lassen sie mich in ruhe | hör auf | ich möchte nichts mehr erhalten | "
        "ich möchte nichts mehr bekommen"
    ),
    "fr": (
        "désabonnez moi | désinscrivez moi | arrêtez de m écrire | arrêtez de m envoyer des messages | "
        "arrêtez vos messages | arrêtez les messages | arrêtez ça | plus de messages | plus de mails | "
        "plus d e mails | ne m écrivez plus | ne me contactez plus | ne m envoyez plus de messages | "
        "ne m envoyez plus rien | ne plus recevoir de messages | je ne veux plus recevoir de messages | "
        "je ne souhaite plus recevoir de messages | je ne souhaite plus recevoir vos messages | "
        "je ne veux plus recevoir vos messages | je ne souhaite plus recevoir vos mails | "
        "je souhaite me désabonner | je veux me désabonner | je souhaite me désinscrire | "
        "je veux me désinscrire | me désabonner | me désinscrire | me désabonner svp | "
        "retirez moi de la liste | retirez moi de votre liste | supprimez moi de votre liste | "
        "supprimez mon numéro | retirez mon numéro | enlevez moi de la liste | merci de me désabonner | "
        "merci de me désinscrire | merci de ne plus m écrire | laissez moi tranquille | merci d arrêter"
    ),
    "es": (
        "dar de baja | darme de baja | dame de baja | deme de baja | denme de baja | quiero darme de baja | "
        "deseo darme de baja | quiero la baja | no más mensajes | no mas mensajes | no quiero más mensajes | "
        "no quiero recibir más mensajes | no quiero recibir mensajes | no deseo recibir más mensajes | "
        "no me escriban más | no me escribas más | no me escriba más | no me envíen más mensajes | "
        "no me envíe más mensajes | dejen de escribirme | deje de escribirme | deja de escribirme | "
        "dejen de enviarme mensajes | bórrenme de la lista | bórrame de la lista | quítenme de la lista | "
        "sáquenme de la lista | elimíneme de la lista | eliminar mi número | cancelar suscripción | "
        "cancelar mi suscripción | anular suscripción | no me contacten | no me contacten más | "
        "cancelar la suscripción"
    ),
    "pt": (
        "não quero mais receber mensagens | não quero receber mensagens | não quero mais mensagens | "
        "não desejo receber mensagens | não desejo mais receber mensagens | não me envie mais mensagens | "
        "não me enviem mais mensagens | não me mande mais mensagens | não mande mais mensagens | "
        "pare de me enviar mensagens | parem de me enviar mensagens | pare de enviar mensagens | "
        "pare de mandar mensagens | quero sair | quero me descadastrar | me descadastre | me descadastrar | "
        "me remova | me remova da lista | remova me da lista | me tire da lista | me retire da lista | "
        "remover da lista | remova meu número | cancelar subscrição | cancelar minha inscrição | "
        "cancelar assinatura | sem mais mensagens | chega de mensagens | não me contacte mais | "
        "não me escreva mais | quero cancelar"
    ),
    "it": (
        "non scrivetemi più | non scrivermi più | non voglio più ricevere messaggi | "
        "non voglio ricevere messaggi | non desidero più ricevere messaggi | non inviatemi più messaggi | "
        "non mandatemi più messaggi | basta messaggi | niente più messaggi | smettete di scrivermi | "
        "smettetela | cancellatemi | disiscrivetemi | cancellatemi dalla lista | cancellami dalla lista | "
        "toglietemi dalla lista | toglimi dalla lista | rimuovetemi dalla lista | rimuovimi dalla lista | "
        "voglio disiscrivermi | vorrei disiscrivermi | cancellate il mio numero | annulla iscrizione | "
        "cancella iscrizione | non contattatemi più"
    ),
    "nl": (
        "geen berichten meer | geen mails meer | geen e mails meer | stuur mij geen berichten meer | "
        "stuur me geen berichten meer | ik wil geen berichten meer | ik wil geen berichten meer ontvangen | "
        "ik wil me afmelden | ik wil mij afmelden | ik wil me uitschrijven | meld mij af | schrijf me uit | "
        "schrijf mij uit | haal me van de lijst | haal mij van de lijst | verwijder mij | verwijder me | "
        "verwijder mij van de lijst | verwijder mijn nummer | stop met berichten | stop met sturen | "
        "niet meer sturen | niet meer mailen | mij afmelden | abonnement opzeggen"
    ),
    "sv": (
        "avregistrera mig | ta bort mig | ta bort mig från listan | inga fler meddelanden | inga fler mejl | "
        "sluta skicka | sluta skicka meddelanden | skicka inga fler meddelanden | "
        "jag vill inte ha fler meddelanden | jag vill avregistrera mig | kontakta mig inte"
    ),
    "da, nb": (
        "afmeld mig | frameld mig | slet mig | slet mig fra listen | fjern mig | fjern mig fra listen | "
        "ikke flere beskeder | ingen flere beskeder | send ikke flere beskeder | stop med at skrive | "
        "jeg vil afmeldes | jeg vil gerne afmeldes | fjern meg | fjern meg fra listen | slett meg | "
        "ingen flere meldinger | ikke send flere meldinger | ikke flere meldinger | jeg vil melde meg av"
    ),
    "fi": (
        "poista minut | poista minut listalta | ei enää viestejä | ei enempää viestejä | lopettakaa viestit | "
        "lopeta viestit | en halua viestejä | en halua enää viestejä | peru tilaukseni"
    ),
    "pl": (
        "proszę mnie wypisać | wypisać mnie | chcę się wypisać | usuń mnie z listy | "
        "proszę usunąć mnie z listy | usunąć mnie z listy | usuń mój numer | nie piszcie do mnie | "
        "nie pisz do mnie | proszę nie wysyłać więcej wiadomości | nie chcę więcej wiadomości | "
        "nie chcę otrzymywać wiadomości | żadnych więcej wiadomości | proszę przestać | przestańcie | "
        "anuluj subskrypcję"
    ),
    "cs, sk": (
        "odhlaste mě | odhlaste mne | odhláste ma | chci se odhlásit | chcem sa odhlásiť | odhlásit odběr | "
        "zrušit odběr | vymažte mě | smažte mě ze seznamu | nepište mi | už mi nepište | už žádné zprávy | "
        "neposílejte mi zprávy | neposielajte mi správy | nechci dostávat zprávy | nechcem dostávať správy"
    ),
    "hu": (
        "kérem töröljön | töröljenek | töröljenek a listáról | nem kérek több üzenetet | ne írjanak többet | "
        "leiratkozom a listáról"
    ),
    "ro": (
        "dezabonați mă | dezabonează mă | vreau să mă dezabonez | nu mai vreau mesaje | "
        "nu îmi mai trimiteți mesaje | scoateți mă din listă | ștergeți mă din listă | fără mesaje"
    ),
    "el": (
        "διαγράψτε με | διαγραφή από τη λίστα | όχι άλλα μηνύματα | σταματήστε τα μηνύματα | μη μου στέλνετε μηνύματα"
    ),
    "bg": "отпишете ме | не ми пишете | не искам повече съобщения | махнете ме от списъка | спрете съобщенията",
    "hr, sr, sl": (
        "odjavite me | želim se odjaviti | uklonite me s liste | ne šaljite mi poruke | ne želim više poruka | "
        "nema više poruka | одјавите ме | не шаљите ми поруке | želim se odjaviti s liste | "
        "ne pošiljajte mi več sporočil"
    ),
    "ru": (
        "не пишите мне | не пишите мне больше | больше не пишите | больше не пишите мне | не пишите больше | "
        "не присылайте мне сообщения | не присылайте больше | не присылайте мне больше сообщений | "
        "не хочу получать сообщения | не хочу больше получать сообщения | я хочу отписаться | "
        "хочу отписаться | прошу отписать меня | прошу отписать | отпишите меня от рассылки | "
        "отписаться от рассылки | уберите меня из списка | удалите меня | удалите меня из списка | "
        "удалите мой номер | удалите меня из рассылки | прекратите | прекратите рассылку | прекратите писать | "
        "хватит писать | отмена подписки | отменить подписку | не беспокоить | не беспокойте меня"
    ),
    "uk": (
        "не пишіть мені | більше не пишіть | не надсилайте мені повідомлення | не надсилайте більше | "
        "хочу відписатися | я хочу відписатися | відпишіть мене від розсилки | видаліть мене | "
        "видаліть мене зі списку | припиніть | скасувати підписку | не турбуйте мене"
    ),
    "tr": (
        "mesaj istemiyorum | mesaj almak istemiyorum | artık mesaj istemiyorum | artık mesaj göndermeyin | "
        "mesaj göndermeyin | bana mesaj atmayın | bana yazmayın | beni listeden çıkarın | "
        "beni listeden çıkar | listeden çıkarın | aboneliği iptal et | aboneliğimi iptal edin | "
        "üyelikten çıkmak istiyorum | rahatsız etmeyin"
    ),
    "he": (
        "הסירו אותי | תסירו אותי | אנא הסירו אותי | הסר אותי מהרשימה | הסירו אותי מהרשימה | תפסיקו | "
        "די לשלוח | אל תשלחו לי הודעות | לא רוצה הודעות"
    ),
    "ar": (
        "توقف عن الإرسال | توقفوا عن الإرسال | أوقفوا الرسائل | اوقفوا الرسائل | أوقف الرسائل | "
        "لا أريد رسائل | لا اريد رسائل | لا أريد المزيد من الرسائل | أريد إلغاء الاشتراك | "
        "اريد الغاء الاشتراك | احذفني | احذفوني | احذف رقمي | احذفني من القائمة | لا ترسل لي رسائل | "
        "لا ترسلوا لي رسائل | الرجاء التوقف"
    ),
    "fa": "پیام نفرستید | دیگر پیام نفرستید | لطفا پیام نفرستید | نمیخواهم پیام دریافت کنم | مرا حذف کنید",
    "hi": (
        "मुझे मैसेज मत भेजो | मुझे संदेश मत भेजो | मैसेज मत भेजो | संदेश न भेजें | मुझे संदेश न भेजें | "
        "मैसेज बंद करो | संदेश बंद करें | मुझे हटा दो | मुझे हटाएं | मेरा नंबर हटाएं | "
        "mujhe message mat bhejo | message band karo | band karo"
    ),
    "th": ("ไม่ต้องส่งมาอีก | หยุดส่งข้อความ | อย่าส่งข้อความมาอีก | ไม่ต้องการรับข้อความ | ขอยกเลิก | ยกเลิกการสมัคร"),
    "vi": (
        "đừng gửi nữa | đừng nhắn tin nữa | đừng nhắn tin cho tôi nữa | ngừng gửi tin nhắn | "
        "dừng gửi tin nhắn | tôi không muốn nhận tin nhắn | tôi muốn hủy đăng ký | xóa tôi khỏi danh sách | "
        "hủy theo dõi"
    ),
    "id, ms": (
        "jangan kirim pesan lagi | jangan kirim lagi | berhenti kirim pesan | berhenti mengirim pesan | "
        "stop kirim pesan | hentikan pesan | saya mau berhenti | saya ingin berhenti | "
        "saya ingin berhenti berlangganan | saya tidak mau menerima pesan | saya tidak ingin menerima pesan | "
        "saya tidak mau pesan lagi | hapus nomor saya | hapus saya dari daftar | keluarkan saya dari daftar | "
        "jangan hubungi saya | jangan hubungi saya lagi | batalkan langganan | batal langganan | "
        "jangan hantar mesej lagi | jangan hantar mesej | berhenti hantar mesej | buang nombor saya | "
        "saya mahu berhenti | tolong hentikan | tidak mau lagi"
    ),
    "fil": (
        "huwag na mag text | wag na mag text | tigilan nyo na ako | alisin nyo ako | ayoko na ng mensahe | "
        "tanggalin nyo ako sa listahan"
    ),
    "zh": (
        "请退订 | 我要退订 | 请取消订阅 | 我要取消订阅 | 不要再发消息了 | 不要再发信息了 | 别再发消息了 | "
        "请停止发送 | 请不要再发了 | 请不要再给我发消息 | 不要再联系我 | 把我删除 | 请删除我 | 退订谢谢 | "
        "我想退订 | 請退訂 | 我要退訂 | 請取消訂閱 | 我要取消訂閱 | 不要再發訊息了 | 請停止發送 | "
        "請不要再發了 | 不要再聯絡我 | 不想再收到消息 | 不想再收到訊息"
    ),
    "ja": (
        "配信停止希望 | 配信を停止してください | 配信停止してください | 配信停止をお願いします | "
        "配信停止お願いします | 配信を止めてください | 停止してください | メールを送らないでください | "
        "もう送らないでください | 送らないでください | 解除してください | 登録解除してください | 退会します | "
        "退会したい | 退会希望 | やめてください | もういりません"
    ),
    "ko": (
        "수신거부합니다 | 수신 거부합니다 | 수신거부 해주세요 | 수신거부해주세요 | 그만 보내세요 | "
        "그만보내세요 | 그만 보내주세요 | 보내지 마세요 | 더 이상 보내지 마세요 | 문자 보내지 마세요 | "
        "메시지 보내지 마세요 | 구독 취소해주세요 | 구독취소해주세요 | 해지해주세요 | 중단해주세요 | "
        "멈춰주세요 | 연락하지 마세요"
    ),
}

#: English sentences are put together: an opening, a request and what it is about.
OPENINGS = (
    " | i want to | i d like to | i would like to | i wish to | i want you to | can you | could you | "
    "would you | you can | just | how do i | how can i | i need to | want to | i would like you to | "
    "i asked you to | i said | kindly"
)
REQUESTS = {
    "stop": (
        " | all | this | these | messages | the messages | these messages | all messages | your messages | "
        "sending | sending me | sending messages | sending me messages | sending these messages | "
        "sending me these messages | sending me emails | sending emails | sending me mails | "
        "sending me texts | sending me this | sending this | sending me stuff | sending me anything | "
        "messaging | messaging me | texting | texting me | emailing | emailing me | mailing me | "
        "contacting me | writing me | writing to me | writing | spamming | spamming me | emails | "
        "these emails | the emails | texts | these texts | reminders | the reminders | these reminders | "
        "notifications | the notifications | calling me | bothering me | receiving messages | "
        "receiving these messages | receiving these emails | receiving emails | getting these messages | "
        "getting these emails | getting messages"
    ),
    "unsubscribe": (
        " | me | myself | from this | from all | from this list | from the list | from your list | "
        "from your mailing list | from these emails | from these messages | from all emails | "
        "from all messages | from everything | me from this list | me from the list | me from your list | "
        "me from your mailing list | me from this | me from this mailing list | me from these emails | "
        "me from these messages | me from all | me from all emails | me from all messages | "
        "me from everything | me from your emails | me from your messages | my number | my email | my address"
    ),
    "remove me": (
        " | from this | from list | from this list | from the list | from your list | from your lists | "
        "from all lists | from your mailing list | from this mailing list | from the mailing list | "
        "from mailing list | from your database | from your contacts | from these emails | "
        "from these messages | from your records"
    ),
    "take me off": (" | this list | the list | your list | your lists | this mailing list | your mailing list | this"),
    "delete me": " | from this list | from the list | from your list | from your mailing list | from your database",
    "opt out": (
        " | of this | of these messages | of these emails | of all messages | of all | of your messages | of everything"
    ),
    "be removed": " | from this list | from the list | from your list | from your mailing list",
    "be taken off": " this list | the list | your list | your mailing list",
    "be unsubscribed": " | from this list | from your list",
}

#: Words that change nothing before and behind an opt-out.
COURTESY = (
    "please | pls | plz | plse | thanks | thank you | thx | ty | many thanks | thanks a lot | "
    "thank you very much | ok | okay | kindly | now | immediately | asap | right now | at once | "
    "again | sorry | hi | hello | hey | dear sir | dear sir or madam | sir | madam | good morning | "
    "good evening | good day | all right | yes please | bitte | bitte sehr | danke | vielen dank | "
    "danke schön | dankeschön | besten dank | sofort | hallo | guten tag | moin | servus | ab sofort | jetzt | "
    "s il vous plaît | s il te plaît | svp | stp | merci | merci beaucoup | merci d avance | bonjour | "
    "bonsoir | salut | tout de suite | immédiatement | por favor | porfavor | gracias | muchas gracias | "
    "hola | buenos días | buenas tardes | ya | ahora | obrigado | obrigada | muito obrigado | muito obrigada | "
    "olá | oi | bom dia | boa tarde | agora | per favore | per piacere | grazie | grazie mille | ciao | "
    "buongiorno | salve | subito | alstublieft | a u b | aub | alsjeblieft | graag | dank u | dank je | "
    "bedankt | dank u wel | dank je wel | tack | snälla | vänligen | hej | tak | venligst | takk | vennligst | "
    "kiitos | hei | moi | proszę | dziękuję | dzięki | dzień dobry | witam | prosím | děkuji | díky | "
    "dobrý den | ďakujem | kérem | köszönöm | vă rog | te rog | mulțumesc | bună ziua | παρακαλώ | ευχαριστώ | "
    "моля | благодаря | molim | hvala | пожалуйста | спасибо | здравствуйте | добрый день | прошу | "
    "будь ласка | дякую | добрий день | lütfen | teşekkürler | teşekkür ederim | merhaba | בבקשה | תודה | "
    "שלום | من فضلك | رجاء | الرجاء | شكرا | مرحبا | لطفا | ممنون | कृपया | धन्यवाद | नमस्ते | กรุณา | "
    "ขอบคุณ | ครับ | ค่ะ | vui lòng | làm ơn | cảm ơn | xin chào | tolong | mohon | terima kasih | makasih | "
    "halo | sila | paki | salamat | po | 请 | 請 | 谢谢 | 謝謝 | 您好 | 你好 | 麻烦 | お願いします | "
    "ください | ありがとうございます | 감사합니다 | 부탁드립니다 | 안녕하세요"
)

#: Words that change nothing anywhere in a sentence.
PLEASE = "please pls plz kindly bitte svp lütfen proszę prosím пожалуйста tolong"

#: Closings of a letter: they and what is below them say nothing about the wish.
CLOSINGS = (
    "regards | best regards | kind regards | best | best wishes | sincerely | yours sincerely | "
    "yours faithfully | cheers | thanks | thank you | many thanks | warm regards | respectfully | "
    "mit freundlichen grüßen | mit freundlichem gruß | freundliche grüße | viele grüße | liebe grüße | "
    "beste grüße | herzliche grüße | schöne grüße | gruß | grüße | mfg | vg | lg | hochachtungsvoll | danke | "
    "vielen dank | cordialement | bien cordialement | bien à vous | sincères salutations | salutations | "
    "merci | saludos | un saludo | saludos cordiales | atentamente | cordialmente | gracias | atenciosamente | "
    "cumprimentos | abraços | att | obrigado | obrigada | melhores cumprimentos | cordiali saluti | "
    "distinti saluti | saluti | un saluto | grazie | met vriendelijke groet | vriendelijke groet | "
    "met vriendelijke groeten | groeten | groet | mvg | bedankt | med vänliga hälsningar | "
    "vänliga hälsningar | mvh | hälsningar | venlig hilsen | med venlig hilsen | hilsen | vennlig hilsen | "
    "med vennlig hilsen | terveisin | ystävällisin terveisin | z poważaniem | pozdrawiam | s pozdravem | "
    "s pozdravom | üdvözlettel | cu stimă | cu respect | με εκτίμηση | с уважением | "
    "с наилучшими пожеланиями | спасибо | з повагою | поздрави | s poštovanjem | lep pozdrav | saygılarımla | "
    "saygılarımızla | teşekkürler | בברכה | תודה | مع التحية | مع أطيب التحيات | شكرا | با احترام | धन्यवाद | "
    "ขอแสดงความนับถือ | trân trọng | hormat saya | salam | terima kasih | 此致 | 敬上 | 敬具 | 감사합니다"
)

#: How the notices begin that companies put below every mail.
NOTICES = (
    "disclaimer | confidential | confidentiality | this email and | this e mail and | this message and | "
    "this email is | this e mail is | this message is | this email contains | this message contains | "
    "the information contained in | the contents of this | please consider the environment | "
    "think before you print | caution external | diese e mail | diese nachricht ist | vertraulich | hinweis | "
    "der inhalt dieser | ce message | cet e mail | ce courriel | este mensaje | este correo | aviso | "
    "esta mensagem | este e mail | questo messaggio | questa e mail | dit bericht | deze e mail | "
    "detta meddelande | denne e mail | ta wiadomość | tento e mail | это сообщение | bu e posta"
)
