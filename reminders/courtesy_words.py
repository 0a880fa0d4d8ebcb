"""Words that change nothing about an opt-out: courtesy, greetings, closings, remarks and the notices of companies.

Phrases are separated by bars, and (a/b) stands for either; case, accents and punctuation do not matter.
"""

from __future__ import annotations

#: Words that change nothing before and behind an opt-out.
COURTESY = (
    "please | pls | plz | plse | thanks | thank you | thx | ty | many thanks | thanks a lot | thank you very much "
    "| ok | okay | kindly | now | immediately | asap | right now | at once | again | sorry | hi | hello | hey | "
    "dear sir | dear sir or madam | sir | madam | good morning | good evening | good day | all right | yes please "
    "| bitte | bitte sehr | danke | vielen dank | danke schön | dankeschön | besten dank | sofort | hallo | guten "
    "tag | moin | servus | ab sofort | jetzt | s il vous plaît | s il te plaît | svp | stp | merci | merci "
    "beaucoup | merci d avance | bonjour | bonsoir | salut | tout de suite | immédiatement | por favor | porfavor "
    "| gracias | muchas gracias | hola | buenos días | buenas tardes | ya | ahora | obrigado | obrigada | muito "
    "obrigado | muito obrigada | olá | oi | bom dia | boa tarde | agora | per favore | per piacere | grazie | "
    "grazie mille | ciao | buongiorno | salve | subito | alstublieft | a u b | aub | alsjeblieft | graag | dank u "
    "| dank je | bedankt | dank u wel | dank je wel | tack | snälla | vänligen | hej | tak | venligst | takk | "
    "vennligst | kiitos | hei | moi | proszę | dziękuję | dzięki | dzień dobry | witam | prosím | děkuji | díky | "
    "dobrý den | ďakujem | kérem | köszönöm | vă rog | te rog | mulțumesc | bună ziua | παρακαλώ | ευχαριστώ | "
    "моля | благодаря | molim | hvala | пожалуйста | спасибо | здравствуйте | добрый день | прошу | будь ласка | "
    "дякую | добрий день | lütfen | teşekkürler | teşekkür ederim | merhaba | בבקשה | תודה | שלום | من فضلك | رجاء "
    "| الرجاء | شكرا | مرحبا | لطفا | ممنون | कृपया | धन्यवाद | नमस्ते | กรุณา | ขอบคุณ | ครับ | ค่ะ | vui lòng | "
    "làm ơn | cảm ơn | xin chào | tolong | mohon | terima kasih | makasih | halo | sila | paki | salamat | po | 请 "
    "| 請 | 谢谢 | 謝謝 | 您好 | 你好 | 麻烦 | お願いします | ください | ありがとうございます | 감사합니다 | "
    "부탁드립니다 | 안녕하세요"
)

#: Words that change nothing anywhere in a sentence.
PLEASE = "please pls plz kindly bitte svp lütfen proszę prosím пожалуйста tolong"

#: How a message begins; a name may follow.
GREETINGS = (
    "hi | hello | hey | hiya | dear | good (morning/afternoon/evening/day) | hallo | guten (tag/morgen/abend) | "
    "moin | servus | grüß gott | liebe | lieber | liebes | sehr (geehrte/geehrter/geehrtes) | bonjour | bonsoir | "
    "salut | cher | chère | madame | monsieur | hola | buenos días | buenas (tardes/noches) | estimado | estimada "
    "| estimados | olá | oi | bom dia | boa (tarde/noite) | caro | cara | prezado | prezada | ciao | buongiorno | "
    "buonasera | salve | gentile | gentili | beste | geachte | goedendag | goedemorgen | hej | hejsan | hei | kära "
    "| kære | kjære | moi | dzień dobry | witam | cześć | szanowni | dobrý den | ahoj | dobrý deň | üdvözlöm | "
    "tisztelt | jó napot | bună ziua | bună | stimate | stimată | γεια σας | καλημέρα | αγαπητέ | здравствуйте | "
    "здравей | здравейте | добрый (день/вечер) | доброе утро | привет | уважаемые | добрий день | вітаю | привіт | "
    "dobar dan | pozdrav | pozdravljeni | merhaba | selam | sayın | iyi günler | שלום | היי | مرحبا | السلام عليكم "
    "| سلام | नमस्ते | สวัสดี | xin chào | chào | halo | hai | selamat (pagi/siang/sore/malam) | kepada | yth | "
    "kumusta | magandang (araw/umaga) | 您好 | 你好 | こんにちは | お世話になっております | お世話になります | "
    "いつもお世話になっております | 안녕하세요"
)

#: What people say beside their wish; by itself it opts no one out.
REMARKS = (
    "no | no (thanks/thank you/thx/way) | nope | nah | yes | yep | (/i am/i m/im/sorry i am/we are/sorry) (not/no "
    "longer/not at all) interested (/anymore/in this/at all) | no (longer/more) interest | no interest | wrong "
    "(number/person/address) | you have (/got) the wrong (number/person) | this is (/not) (/the) (wrong number/her "
    "number/his number/spam/annoying/harassment/illegal) | (who is/who s/whos) this | not me | it (s/is) (/very/"
    "so) annoying | who are you | i (do not/don t/dont) know (you/who you are/who this is) | (how/where) did you "
    "get my (number/email/address) | i (did not/didn t/never) (sign up/signed up/subscribe/subscribed/ask/asked/"
    "register/registered/consent/agree) (/to this/to these/for this/for these/for these messages/for any of this/"
    "to your list) | (i/we) (do not/don t/dont) need (this/these/it/them) (/anymore/any more) | spam | enough | "
    "enough (already/is enough) | (i/we) (/have/ve) (/already) paid (/it/this) | already paid | that s enough | "
    "(last/final) (warning/time) | i said no | thanks anyway | thanks but no thanks | i (have/ve) moved (/away) | "
    "i (am/m) retired | i no longer work (here/there) | (way/far/) too many (messages/emails/mails/texts/"
    "reminders) | (very/so/really/) annoying | harassment | fuck (off/you) | go away | i am (not/no longer) a "
    "customer (/anymore) | nein | nein danke | ja | (/ich habe/habe) kein interesse (/mehr/daran) | (/ich bin) "
    "nicht (/mehr) interessiert | falsche nummer | sie haben die falsche nummer | wer (ist das/sind sie/bist du) | "
    "das ist spam | es (nervt/reicht) | jetzt reicht es | das nervt | ich habe mich nicht angemeldet | ich kenne "
    "sie nicht | nö | non | non merci | (je ne suis/je suis/) pas intéressé | je ne suis pas intéressée | pas "
    "intéressée | ça ne m intéresse pas | mauvais numéro | erreur de numéro | qui êtes vous | ça suffit | oui | je "
    "ne vous connais pas | no gracias | no (/me/nos) interesa | no estoy (interesado/interesada) | número "
    "equivocado | quién (eres/es/es usted) | ya basta | sí | es spam | no los conozco | não | não obrigado | não "
    "obrigada | não (tenho/tem) interesse | não estou (interessado/interessada) | número errado | quem é | sim | "
    "chega | no grazie | non (mi interessa/sono interessato/sono interessata) | numero sbagliato | chi (sei/siete/"
    "è) | sì | nee | nee (bedankt/dank u/dank je) | (/ik heb) geen interesse | niet geïnteresseerd | verkeerd "
    "nummer | wie (bent u/is dit/ben je) | ja | nej | nej (tack/tak) | inte intresserad | jag är inte intresserad "
    "| fel nummer | vem är det | ikke interesseret | jeg er ikke (interesseret/interessert) | ikke interessert | "
    "forkert nummer | feil nummer | nei | nei takk | ei | ei kiitos | ei kiinnosta | en ole kiinnostunut | väärä "
    "numero | nie | nie dziękuję | nie jestem (zainteresowany/zainteresowana) | nie interesuje mnie to | pomyłka | "
    "zły numer | kto to | tak | ne | ne děkuji | nie ďakujem | nemám (zájem/záujem) | špatné číslo | zlé číslo | "
    "kdo jste | nem | nem köszönöm | nem érdekel | téves szám | nu | nu mulțumesc | nu mă interesează | nu sunt "
    "(interesat/interesată) | număr greșit | όχι | όχι ευχαριστώ | δεν ενδιαφέρομαι | λάθος αριθμός | не | не "
    "благодаря | не ме интересува | ne hvala | ne zanima me | nisam (zainteresiran/zainteresirana/zainteresovan) | "
    "pogrešan broj | нет | нет спасибо | (/мне/меня) не (интересно/интересует/нужно/надо) | вы ошиблись (/номером) "
    "| ошиблись номером | кто (это/вы) | да | это спам | надоели | достали | ні | ні дякую | не цікавить | мені не "
    "цікаво | ви помилилися (/номером) | так | hayır | hayır teşekkürler | ilgilenmiyorum | yanlış numara | "
    "kimsiniz | evet | yeter | לא | לא תודה | לא מעוניין | לא מעוניינת | טעות במספר | מי זה | לא מעניין אותי | لا "
    "| لا شكرا | لست مهتما | غير مهتم | رقم خاطئ | الرقم غلط | من أنت | نعم | نه | نه ممنون | علاقه ندارم | نه "
    "مرسی | नहीं | नहीं धन्यवाद | गलत नंबर | रुचि नहीं है | nahi | nahi chahiye | ไม่ | ไม่สนใจ | ผิดเบอร์ | không "
    "| không cảm ơn | không quan tâm | nhầm số | sai số | tidak | tidak terima kasih | tidak (tertarik/berminat) | "
    "saya tidak (tertarik/berminat) | salah (nomor/sambung/nombor) | siapa (ini/anda) | gak | nggak | tak nak | "
    "tak berminat | hindi | hindi salamat | hindi ako interesado | 不用了 | 不用 | 不需要 | 没兴趣 | 沒興趣 | "
    "不感兴趣 | 打错了 | 发错了 | 你是谁 | 不是本人 | 結構です | 必要ありません | 不要です | 興味がありません | "
    "興味ありません | 人違いです | どなたですか | いいえ | 괜찮습니다 | 괜찮아요 | 관심 없습니다 | 관심없습니다 | "
    "필요 없습니다 | 필요없습니다 | 아니요 | 누구세요 | 잘못 보내셨습니다"
)

#: News of a death, and of a request that was not heard before: remarks, too.
DEATHS = (
    "(/unfortunately/sadly) (she/he/my (mother/father/mum/mom/dad/wife/husband/son/daughter/brother/sister/"
    "grandmother/grandfather/grandma/grandpa/aunt/uncle/partner)) (/has/sadly/has sadly) (died/passed/passed away) (/"
    "last (week/month/year)/recently) | (she/he/my (mother/father/mum/mom/dad/wife/husband/son/daughter/brother/"
    "sister)) is (dead/deceased/no longer with us/no longer alive) | (sie/er/meine (mutter/frau/schwester/tochter/"
    "oma)/mein (vater/mann/bruder/sohn/opa)) ist (/leider) (gestorben/verstorben/tot) | (elle/il/ma (mère/femme/sœur/"
    "soeur/fille)/mon (père/mari/frère/fils)) est (décédé/décédée/mort/morte) | (/ella/él/mi (madre/padre/mamá/papá/"
    "esposa/esposo/marido/mujer/hermana/hermano/hijo/hija)) (/ha/ya) (falleció/murió/fallecido/muerto) | (/ela/ele/(/"
    "a) minha (mãe/esposa/mulher/irmã)/(/o) meu (pai/marido/irmão)) (/já) (faleceu/morreu) | (/lei/lui/mia (madre/"
    "moglie/sorella/mamma)/mio (padre/marito/fratello/papà)) è (morto/morta/deceduto/deceduta/mancato/mancata) | "
    "(zij/ze/hij/mijn (moeder/vader/vrouw/man/zus/broer)) is (/helaas) (overleden/dood) | (dia/beliau/(ibu/ayah/"
    "bapak/istri/suami) saya) (/sudah/telah) (meninggal/meninggal dunia/wafat) | (annem/babam/eşim/kardeşim/kendisi) "
    "(/maalesef) (vefat etti/öldü)"
)
ASKED_BEFORE = (
    "i (/have/ve) (/already) (asked/told) you (/to stop/this/before/already) (/before/already/twice/(2/3/4/5/two/three/"
    "four/five/several/many/multiple/so many) times/repeatedly/again and again) | i (/have/ve) (/already) asked (/"
    "before/already/twice/(2/3/4/5/two/three/four/five/several/many/multiple/so many) times/repeatedly) | (/why do) "
    "you (keep/kept) (/on) (writing/texting/messaging/emailing/contacting/bothering/spamming/reminding/sending) (/to) "
    "(/me/us) (/messages/emails/texts/reminders/these) | (this is/for) the (second/third/fourth/last) time (/i ask/i "
    "am asking/i have asked/i write) | (ich habe/habe) (/es/sie/euch/ihnen) (/schon/bereits) (2/3/4/zwei/drei/mehrere/"
    "mehrmals/zweimal/dreimal/oft) (/mal) (gesagt/geschrieben/gebeten/darum gebeten) | je vous l ai (/déjà) (dit/"
    "demandé) (/(2/3/deux/trois/plusieurs) fois) | (/ya) (lo/se lo/les) (he pedido/pedí/dije) (/(2/3/dos/tres/varias/"
    "muchas) veces) | já (/lhes/vos) (pedi/disse) (/(2/3/duas/três/várias) vezes) | (/ve) l ho già (chiesto/detto) (/"
    "(2/3/due/tre/più) volte) | (ik heb/heb) (/het) (/u/jullie) (/al) (2/3/twee/drie/meerdere) keer (gevraagd/gezegd) "
    "| (/saya) sudah (2/3/dua/tiga/beberapa) kali (minta/bilang/meminta) | (2/3/iki/üç/kaç) (kere/kez/defa) (söyledim/"
    "yazdım)"
)

#: Closings of a letter: they and what is below them say nothing about the wish.
CLOSINGS = (
    "regards | best regards | kind regards | best | best wishes | sincerely | yours sincerely | yours faithfully | "
    "cheers | thanks | thank you | many thanks | warm regards | respectfully | mit freundlichen grüßen | mit "
    "freundlichem gruß | freundliche grüße | viele grüße | liebe grüße | beste grüße | herzliche grüße | schöne "
    "grüße | gruß | grüße | mfg | vg | lg | hochachtungsvoll | danke | vielen dank | cordialement | bien "
    "cordialement | bien à vous | sincères salutations | salutations | merci | saludos | un saludo | saludos "
    "cordiales | atentamente | cordialmente | gracias | atenciosamente | cumprimentos | abraços | att | obrigado | "
    "obrigada | melhores cumprimentos | cordiali saluti | distinti saluti | saluti | un saluto | grazie | met "
    "vriendelijke groet | vriendelijke groet | met vriendelijke groeten | groeten | groet | mvg | bedankt | med "
    "vänliga hälsningar | vänliga hälsningar | mvh | hälsningar | venlig hilsen | med venlig hilsen | hilsen | "
    "vennlig hilsen | med vennlig hilsen | terveisin | ystävällisin terveisin | z poważaniem | pozdrawiam | s "
    "pozdravem | s pozdravom | üdvözlettel | cu stimă | cu respect | με εκτίμηση | с уважением | с наилучшими "
    "пожеланиями | спасибо | з повагою | поздрави | s poštovanjem | lep pozdrav | saygılarımla | saygılarımızla | "
    "teşekkürler | בברכה | תודה | مع التحية | مع أطيب التحيات | شكرا | با احترام | धन्यवाद | mit freundlichen "
    "(grüssen/grüßen) | (viele/liebe/beste/freundliche/schöne) grüsse | (danke/vielen dank) und (gruß/viele grüße/"
    "liebe grüße) | besten dank | best | rgds | br | kr | thx | ty | thanks again | thanks in advance | thank you "
    "in advance | all the best | take care | merci d avance | merci et bonne journée | bonne journée | bonne "
    "soirée | bien à toi | muchas gracias | un cordial saludo | um abraço | abraço | grato | grata | grazie mille "
    "| buona giornata | bedankt alvast | alvast bedankt | hartelijke groet | hartelijke groeten | vriendelijke "
    "groeten | gr | tack | vänligen | tak | vh | takk | kiitos | terveisin | dziękuję | dzięki | z góry dziękuję | "
    "děkuji | díky | ďakujem | s úctou | köszönettel | köszönöm | mulțumesc | toate cele bune | ευχαριστώ | "
    "благодаря | hvala | дякую | с наилучшими | iyi günler | iyi çalışmalar | תודה רבה | شكرا لكم | cảm ơn | xin "
    "cảm ơn | makasih | hormat kami | salamat | 谢谢 | 謝謝 | 祝好 | よろしくお願いします | "
    "よろしくお願いいたします | 고맙습니다 | 수고하세요 | ขอแสดงความนับถือ | trân trọng | hormat saya | salam | "
    "terima kasih | 此致 | 敬上 | 敬具 | 감사합니다"
)

#: How the notices begin that companies put below every mail.
NOTICES = (
    "disclaimer | confidential | confidentiality | this email and | this e mail and | this message and | this "
    "email is | this e mail is | this message is | this email contains | this message contains | the information "
    "contained in | the contents of this | please consider the environment | think before you print | caution "
    "external | diese e mail | diese nachricht ist | vertraulich | hinweis | der inhalt dieser | ce message | cet "
    "e mail | ce courriel | este mensaje | este correo | aviso | esta mensagem | este e mail | questo messaggio | "
    "questa e mail | dit bericht | deze e mail | detta meddelande | denne e mail | ta wiadomość | tento e mail | "
    "это сообщение | bu e posta"
)
