"""A trigger: the database itself gives every new recipient what is known of the address."""

from django.db import migrations

# What follow-ups know of a person belongs to the address, whoever's list it is in. In the database, because recipients
# come by forms, imports, scripts and the synchronisation of groups.
SAME_FOR_ALL = """
CREATE FUNCTION reminders_known_person() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE known reminders_recipient;
BEGIN
  SELECT * INTO known FROM reminders_recipient WHERE address = NEW.address ORDER BY id LIMIT 1;
  IF FOUND THEN
    NEW.follow_up_attempts = known.follow_up_attempts;
    NEW.attempts_reset_at = known.attempts_reset_at;
    NEW.cooldown_until = known.cooldown_until;
    NEW.replied_at = known.replied_at;
    IF NEW.status = 'active' AND (known.limited OR known.status = 'opted_out') THEN
      NEW.status = known.status;
      NEW.limited = known.limited;
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER reminders_recipient_known BEFORE INSERT ON reminders_recipient
  FOR EACH ROW EXECUTE FUNCTION reminders_known_person();
"""
NOT_ANY_MORE = """
DROP TRIGGER reminders_recipient_known ON reminders_recipient;
DROP FUNCTION reminders_known_person();
"""


class Migration(migrations.Migration):
    dependencies = [("reminders", "0001_initial")]

    operations = [migrations.RunSQL(SAME_FOR_ALL, NOT_ANY_MORE)]
