"""Phrases that mail programs write into replies, by language: above a quotation, in header blocks, below a message, and
in the subject of automatic mail. To support another language or program, add a line; tests/inbound/reply_formats.py
has the matching examples. Phrases are separated by bars and compared in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping

#: How a line above a quotation ends or goes on: “On … Bob wrote:”. Needed where the line has no mail address.
WROTE = {
    "en": "wrote | writes | said",
    "de": "schrieb | schreibt",
    "fr": "a écrit | écrit",
    "es": "escribió | escribio",
    "pt": "escreveu",
    "it": "ha scritto | scrive",
    "nl": "schreef | geschreven",
    "sv, da, nb": "skrev",
    "fi": "kirjoitti",
    "is": "skrifaði",
    "pl": "napisał | napisał(a) | napisała | pisze",
    "cs": "napsal | napsal(a) | napsala",
    "sk": "napísal | napísal(a) | napísala",
    "hu": "írta",
    "ro": "a scris",
    "bg": "написа",
    "el": "έγραψε",
    "hr, sr": "napisao | napisao/la | napisala | je napisao/la | написао/ла",
    "sl": "napisal | napisala",
    "lt": "rašė",
    "lv": "rakstīja",
    "et": "kirjutas",
    "ca, gl": "va escriure | escribiu",
    "ru": "написал | написал(а) | написала | пишет | писал",
    "uk": "пише | написав | написав(-ла)",
    "tr": "yazdı",
    "he": "כתב | כתבה | כתב/ה | מאת",
    "ar": "كتب | كتبت | كتابة",
    "fa": "نوشت",
    "hi": "लिखा",
    "th": "เขียนว่า | เขียน",
    "vi": "đã viết | viết",
    "id, ms": "menulis",
    "fil": "sinulat",
    "zh": "写道 | 寫道",
    "ja": "書きました | 書いた | のメール",
    "ko": "작성 | 썼습니다",
}

#: How such a line begins. Needed where programs break it before the mail address, or where it has none.
BEGINS = {
    "en": "on | at",
    "de": "am",
    "fr": "le",
    "es": "el",
    "pt": "em | no dia | a",
    "it": "il | in data",
    "nl": "op",
    "sv, da, nb": "den",
    "is": "þann",
    "pl": "w dniu | dnia",
    "cs, sk": "dne | dňa",
    "ro": "în | pe",
    "bg": "на",
    "el": "στις",
    "sl": "v",
    "et": "kuupäev",
    "ca, gl": "missatge de | o",
    "he": "בתאריך | ב",
    "ar": "في | بتاريخ",
    "fa": "در تاریخ | در",
    "th": "ในวันที่ | เมื่อ",
    "vi": "vào | ngày",
    "id, ms": "pada tanggal | pada",
    "fil": "noong",
    "zh": "在 | 于 | 於",
}

#: Labels of the block that Outlook and others put above the original: sender, time, recipient, subject.
HEADER_BLOCKS = {
    "en": ("from", "sent|date", "to", "subject"),
    "de": ("von", "gesendet|datum", "an", "betreff"),
    "fr": ("de|expéditeur", "envoyé|date|envoyé le|date d'envoi", "à|pour", "objet|sujet"),
    "es": ("de", "enviado|enviado el|fecha", "para", "asunto"),
    "pt": ("de", "enviado|enviada|enviada em|enviado em|data", "para", "assunto"),
    "it": ("da", "inviato|data", "a", "oggetto"),
    "nl": ("van", "verzonden|datum", "aan", "onderwerp"),
    "sv": ("från", "skickat|datum", "till", "ämne"),
    "da, nb": ("fra", "sendt|dato", "til", "emne"),
    "fi": ("lähettäjä", "lähetetty|päivämäärä", "vastaanottaja|kohde", "aihe"),
    "is": ("frá", "sent|dagsetning", "til", "efni"),
    "pl": ("od", "wysłano|wysłane|data", "do", "temat"),
    "cs": ("od", "odesláno|datum", "komu", "předmět"),
    "sk": ("od", "odoslané|dátum", "komu|pre", "predmet"),
    "hu": ("feladó", "elküldve|küldve|dátum", "címzett", "tárgy"),
    "ro": ("de la", "trimis|data", "către|catre", "subiect"),
    "bg": ("от", "изпратено|дата", "до", "относно|тема"),
    "el": ("από", "στάλθηκε|ημερομηνία|εστάλη", "προς", "θέμα"),
    "hr": ("šalje|od", "poslano|datum", "prima|za", "predmet"),
    "sr": (
        "šalje|od|од|пошиљалац",
        "poslato|datum|послато|датум",
        "prima|za|за|прима",
        "naslov|predmet|наслов|предмет",
    ),
    "sl": ("od", "poslano|datum", "za", "zadeva"),
    "lt": ("nuo", "išsiųsta|data", "kam", "tema"),
    "lv": ("no", "nosūtīts|datums", "kam", "tēma"),
    "et": ("saatja", "saadetud|kuupäev", "adressaat", "teema"),
    "ca, gl": ("de", "enviat|enviado|data", "per a|para|a", "tema|assumpte|asunto"),
    "ru": ("от|отправитель|от кого", "отправлено|дата", "кому", "тема"),
    "uk": ("від|від кого", "надіслано|дата", "кому", "тема"),
    "tr": ("kimden|gönderen", "gönderildi|gönderme tarihi|tarih", "kime|alıcı", "konu"),
    "he": ("מאת", "נשלח|תאריך", "אל|נמען", "נושא"),
    "ar": ("من", "تم الإرسال|تاريخ الإرسال|أرسلت|التاريخ", "إلى", "الموضوع"),
    "fa": ("از|فرستنده", "ارسال شده|ارسال|تاریخ", "به|گیرنده", "موضوع"),
    "hi": ("प्रेषक|से|द्वारा", "भेजा गया|दिनांक", "प्रति|को", "विषय"),
    "th": ("จาก", "ส่ง|ส่งเมื่อ|วันที่", "ถึง", "เรื่อง|หัวเรื่อง"),
    "vi": ("từ", "đã gửi|ngày|gửi", "đến|tới", "chủ đề|tiêu đề"),
    "id": ("dari", "dikirim|terkirim|tanggal", "kepada|ke|untuk", "subjek|perihal"),
    "ms": ("daripada|dari", "dihantar|tarikh", "kepada", "subjek|perkara"),
    "zh-cn": ("发件人", "发送时间|发送日期|日期|时间", "收件人", "主题"),
    "zh-tw": ("寄件者|寄件人", "寄件日期|日期|傳送時間", "收件者|收件人", "主旨|主題"),
    "ja": ("差出人|送信者|from", "送信日時|日付|日時|sent", "宛先|to", "件名|subject"),
    "ko": ("보낸 사람|보낸사람|발신", "보낸 날짜|날짜|보낸날짜|일시", "받는 사람|받는사람|수신", "제목"),
}

#: Lines above a forwarded message that end in a colon and have no dashes.
FORWARDED = (
    "begin forwarded message | anfang der weitergeleiteten nachricht | anfang der weitergeleiteten e-mail | début "
    "du message réexpédié | début du message transféré | inicio del mensaje reenviado | inizio messaggio inoltrato "
    "| início da mensagem encaminhada | início da mensagem reencaminhada | begin doorgestuurd bericht | "
    "vidarebefordrat brev | начало переадресованного сообщения | 以下は、転送されたメールです | 下面是被转发的邮件"
)

#: How the line below a message begins or ends: “Sent from my iPhone”. It counts only with one of PROGRAMS.
SENT = {
    "en": "sent",
    "de": "gesendet | geschickt | verschickt",
    "fr": "envoyé | envoyée",
    "es, pt": "enviado | enviada",
    "it": "inviato | inviata",
    "nl": "verstuurd | verzonden",
    "sv": "skickat | skickades",
    "da, nb": "sendt",
    "fi": "lähetetty",
    "is": "sent úr | sent frá",
    "pl": "wysłane | wysłano | wiadomość wysłana",
    "cs": "odesláno | odoslané z | posláno",
    "sk": "odoslané | poslané",
    "hu": "elküldve | küldve | küldve az | iphone-ról küldve",
    "ro": "trimis",
    "bg": "изпратено",
    "el": "στάλθηκε | εστάλη | απεσταλμένο",
    "hr, sl": "poslano",
    "sr": "poslato | послато",
    "ca": "enviat",
    "et": "saadetud",
    "lt": "išsiųsta | siųsta",
    "lv": "nosūtīts | sūtīts",
    "ru": "отправлено",
    "uk": "надіслано | відправлено",
    "tr": "gönderildi",
    "he": "נשלח | נשלחה",
    "ar": "أرسلت | أُرسلت | أرسل | أُرسل | تم الإرسال | مرسل | مرسلة",
    "fa": "ارسال شده | ارسال شد | فرستاده شده",
    "hi": "भेजा गया | से भेजा गया | भेजा",
    "th": "ส่งจาก",
    "vi": "đã gửi từ | được gửi từ | gửi từ",
    "id": "dikirim | terkirim",
    "ms": "dihantar",
    "zh": "发自 | 發自 | 傳送 | 发送 | 來自 | 来自",
    "ja": "送信 | 送信しました",
    "ko": "보냄 | 보냈습니다 | 보낸 메일",
}

#: Invitations to install a program, which end or begin a line with the program's name.
GET = (
    "get | download | beziehen | herunterladen | obtenir | obtenez | télécharger | téléchargez | obtener | "
    "descargar | obtén | obter | obtenha | baixar | scarica | ottieni | downloaden | hämta | hent | skaff | skaff "
    "deg | få | hanki | lataa | pobierz | získat | získajte | získejte | stáhnout | letöltése | töltse | obțineți "
    "| descărcați | изтеглете | получить | скачать | загрузить | завантажити | отримати | edinin | indir | alın | "
    "הורד | קבל | احصل | الحصول | प्राप्त करें | รับ | ดาวน์โหลด | tải | nhận | dapatkan | unduh | 获取 | 下载 | "
    "取得 | 下載 | 入手 | を入手 | ダウンロード | 다운로드 | 받기 | preuzmite | λήψη | αποκτήστε | aconsegueix | "
    "baixa"
)

#: Devices and programs in such lines.
PROGRAMS = (
    "iphone | iphona | iphonu | ipad | ipod | ios | apple watch | macbook | android | samsung | galaxy | "
    "blackberry | huawei | xiaomi | redmi | oppo | vivo | oneplus | pixel | nokia | motorola | honor | sony | "
    "xperia | lg | htc | zte | realme | windows phone | windows | mobile | smartphone | handy | téléphone | "
    "portable | móvil | celular | cellulare | telefoon | telefon | mobiltelefon | mobil | 手机 | 手機 | 小米 | "
    "华为 | スマートフォン | 携帯 | 휴대 | yahoo | outlook | gmail | hotmail | aol | gmx | web.de | t-online | "
    "proton | protonmail | tutanota | tuta | fastmail | spark | edison | aquamail | k-9 | thunderbird | mail.ru | "
    "яндекс | yandex | rambler | почты | mail orange | sfr | laposte | libero | virgilio | email.cz | seznam | "
    "onet | wp poczta | interia | bluemail | newton | superhuman | mailbird | zoho | naver | kakao | qq | 网易 | "
    "网易邮箱 | foxmail | mail app | mail for | webmail | tablet"
)

#: Subjects of absence notes and other automatic answers, at their beginning and without “Re:”.
ABSENCE = {
    "en": (
        "automatic reply | auto reply | auto-reply | autoreply | automated reply | automatic response | auto "
        "response | auto-response | automated response | out of office | out of the office | out-of-office | out "
        "of my office | ooo: | ooo - | vacation reply | vacation notice | vacation response | on vacation | away "
        "from my mail | away from the office | away notice | on holiday | on leave | i am away | i'm away | i am "
        "out of | i'm out of | on annual leave | annual leave | parental leave | maternity leave | [auto-reply] | "
        "[autoreply] | auto: | absence: | absent: | away: | currently out of | thank you for your email | thank "
        "you for contacting | we have received your | we received your | ticket received | vacation: | holiday: | "
        "holidays: | away from my desk | not in the office | business trip: | travelling: | autoresponder"
    ),
    "de": (
        "automatische antwort | automatische rückantwort | abwesenheitsnotiz | abwesenheit | abwesend | "
        "automatische abwesenheit | ich bin im urlaub | im urlaub | urlaub: | nicht im büro | nicht im haus | "
        "außer haus | ausser haus | autom. antwort | eingangsbestätigung | automatische eingangs | elternzeit | "
        "ferien: | dienstreise | mutterschutz | krank: | krankmeldung: | resturlaub: | abwesenheitsassistent | "
        "automatische rückmeldung"
    ),
    "fr": (
        "réponse automatique | reponse automatique | absence du bureau | absent du bureau | absence | absent(e) | "
        "message d'absence | message d’absence | en congé | en vacances | en congés | accusé de réception | "
        "notification d'absence | je suis absent | hors du bureau | congés: | congé: | vacances: | congés annuels "
        "| absence pour congés"
    ),
    "es": (
        "respuesta automática | respuesta automatica | fuera de la oficina | fuera de oficina | ausente | ausencia "
        "| de vacaciones | estoy de vacaciones | contestación automática | vacaciones: | ausencia temporal | "
        "mensaje automático"
    ),
    "pt": (
        "resposta automática | resposta automatica | fora do escritório | fora do escritorio | ausência | ausente "
        "do escritório | de férias | em férias | ausencia temporária | ausência temporária | férias: | fora do "
        "escritório | mensagem automática"
    ),
    "it": (
        "risposta automatica | fuori sede | fuori ufficio | assente | assenza | in ferie | messaggio automatico | "
        "risponditore automatico | ferie: | fuori dall'ufficio | sono in ferie | assenza dall'ufficio"
    ),
    "nl": (
        "automatisch antwoord | automatische reactie | automatisch bericht | afwezig | niet aanwezig | met "
        "vakantie | op vakantie | buiten kantoor | automatische beantwoording | vakantie: | niet op kantoor | "
        "verlof: | afwezigheid"
    ),
    "sv": (
        "autosvar | automatiskt svar | frånvaro | frånvarande | ej på kontoret | på semester | semester: | "
        "frånvaromeddelande | föräldraledig | tjänstledig"
    ),
    "da, nb": (
        "automatisk svar | autosvar | fravær | ikke til stede | ikke på kontoret | på ferie | fraværsmeddelelse | "
        "ferie: | fraværsassistent | ute av kontoret | ude af kontoret | på barsel"
    ),
    "fi": (
        "automaattinen vastaus | poissa | poissaolo | lomalla | olen lomalla | loma: | vuosilomalla | poissa "
        "toimistosta"
    ),
    "is": "sjálfvirkt svar",
    "pl": (
        "automatyczna odpowiedź | odpowiedź automatyczna | autoodpowiedź | nieobecność | poza biurem | urlop | "
        "nieobecny | nieobecna | na urlopie | jestem na urlopie"
    ),
    "cs, sk": (
        "automatická odpověď | automatická odpoveď | mimo kancelář | mimo kanceláriu | nepřítomnost | dovolená | "
        "neprítomnosť | dovolenka"
    ),
    "hu": (
        "automatikus válasz | házon kívül | irodán kívül | szabadságon | távollét | szabadság: | nem vagyok az irodában"
    ),
    "ro": (
        "răspuns automat | raspuns automat | în afara biroului | plecat din birou | în concediu | concediu: | "
        "absent din birou"
    ),
    "bg": "автоматичен отговор | извън офиса | отпуск: | в отпуск",
    "el": "αυτόματη απάντηση | εκτός γραφείου | απουσία | άδεια: | σε άδεια",
    "hr, sr, sl": (
        "automatski odgovor | automatsko odgovaranje | samodejni odgovor | odsutan | odsotnost | izvan ureda | "
        "godišnji odmor | dopust: | ван канцеларије | аутоматски одговор | na godišnjem odmoru"
    ),
    "lt, lv, et": (
        "automatinis atsakymas | automātiska atbilde | automātiskā atbilde | automaatvastus | kontorist väljas"
    ),
    "ca, gl, eu": "resposta automàtica | fora de l'oficina | erantzun automatikoa",
    "ru": (
        "автоматический ответ | автоответ | нет на месте | в отпуске | отсутствую | вне офиса | отпуск | я в "
        "отпуске | отсутствие: | нахожусь в отпуске"
    ),
    "uk": "автоматична відповідь | автовідповідь | у відпустці | поза офісом | відпустка: | я у відпустці",
    "tr": (
        "otomatik yanıt | otomatik cevap | ofis dışında | ofis dışı | izinde | işyeri dışında | izin: | tatil: | "
        "yıllık izin | ofis dışındayım"
    ),
    "he": "תשובה אוטומטית | מענה אוטומטי | מחוץ למשרד | חופשה: | בחופשה | הודעת היעדרות",
    "ar": "رد تلقائي | الرد التلقائي | خارج المكتب | إجازة: | في إجازة",
    "fa": "پاسخ خودکار",
    "hi": "स्वचालित उत्तर | स्वत: उत्तर | कार्यालय से बाहर | अवकाश: | छुट्टी पर",
    "th": "ตอบกลับอัตโนมัติ | การตอบกลับอัตโนมัติ | ไม่อยู่ที่สำนักงาน | ลาพักร้อน | ไม่อยู่ที่ทำงาน",
    "vi": "trả lời tự động | tự động trả lời | vắng mặt | nghỉ phép | không có mặt tại văn phòng",
    "id, ms": (
        "balasan otomatis | jawaban otomatis | balasan automatik | di luar kantor | sedang cuti | di luar pejabat "
        "| cuti: | jawapan automatik | tidak di kantor"
    ),
    "zh": "自动答复 | 自动回复 | 自動回覆 | 自動回复 | 外出 | 不在办公室 | 休假 | 不在辦公室 | 外出自动回复 | 度假",
    "ja": "自動応答 | 自動返信 | 不在 | 不在通知 | 外出中 | 休暇 | 不在のお知らせ | 自動返信メール",
    "ko": "자동 회신 | 자동 응답 | 자동회신 | 자동응답 | 부재중 | 부재 중 | 휴가 | 외근 중",
}

#: Subjects of read receipts, without “Re:”.
READ_RECEIPT = (
    "read: | not read: | return receipt | read receipt | gelesen: | ungelesen gelöscht: | lesebestätigung | lu : | "
    "lu\u00a0: | lu: | non lu | accusé de lecture | leído: | no leído: | acuse de recibo | lida: | lido: | recibo "
    "de leitura | letto: | non letto: | ricevuta di ritorno | gelezen: | ongelezen | leesbevestiging | läst: | "
    "oläst: | læst: | lest: | luettu: | przeczytane: | přečteno: | prečítané: | olvasott: | citit: | прочтено: | "
    "прочитано: | okundu: | διαβάστηκε: | נקרא: | 已读: | 已讀: | 已读： | 已讀： | 開封済み: | 开封 | 읽음: | "
    "dibaca: | đã đọc: | تمت القراءة:"
)

#: Words before the end of an absence: “until 12 June”, “back on Monday, 15 June”.
UNTIL = (
    "until | till | through | back on | back in the office on | back in the office | returning on | return on | "
    "returning | bis einschließlich | bis zum | bis | wieder ab | wieder am | zurück am | ab dem | jusqu'au | "
    "jusqu’au | de retour le | retour le | hasta el | hasta | vuelvo el | regreso el | até o dia | até ao dia | "
    "até | retorno em | fino al | sino al | rientro il | rientrerò il | tot en met | t/m | tot | terug op | till "
    "och med | t.o.m. | t o m | åter | tilbage | til og med | tilbake | asti | saakka | do dnia | do | до | по | "
    "μέχρι | έως | până pe | până la | au | al | til | tillbaka den | åter den | tilbage den | tilbake den | "
    "aanwezig op | aanwezig vanaf | terug vanaf | volto no dia | volto dia | volto em | retorno dia | return to "
    "the office on | back to the office on | back at work on | à partir du | ab dem | 至 | 到 | jusque | bis und "
    "mit | bis inkl. | bis einschl. | till den | inntil | indtil | frem til | back from | back | wieder da ab | "
    "wieder erreichbar ab | erreichbar ab | zurück ab | hingga | sampai | đến ngày | đến"
)


def spoken(phrases: str | Mapping[str, str]) -> tuple[str, ...]:
    """Return the phrases of a table in all its languages, each once, in lower case."""
    rows = [phrases] if isinstance(phrases, str) else phrases.values()
    return tuple(dict.fromkeys(phrase.strip().casefold() for row in rows for phrase in row.split("|")))
