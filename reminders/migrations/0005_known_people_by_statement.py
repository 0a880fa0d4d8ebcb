"""What is known of an address goes to new recipients once per statement, not once per row.

The trigger for each row kept the plan that it had made for a small table: it read the whole table for every row of a long
list, and 50,000 new recipients took five minutes. With transition tables they are looked up together.
"""

from django.db import migrations

# As before: the recipient with the address that was there first is what is known. A new plan for every statement, because
# the number of new rows and the size of the table decide which one is good.
BY_STATEMENT = """
DROP TRIGGER reminders_recipient_known ON reminders_recipient;
DROP FUNCTION reminders_known_person();
CREATE FUNCTION reminders_known_people() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  UPDATE reminders_recipient r
     SET follow_up_attempts = known.follow_up_attempts,
         attempts_reset_at = known.attempts_reset_at,
         cooldown_until = known.cooldown_until,
         replied_at = known.replied_at,
         status = CASE WHEN known.tells THEN known.status ELSE r.status END,
         limited = CASE WHEN known.tells THEN known.limited ELSE r.limited END
    FROM (SELECT DISTINCT ON (added.id) added.id AS new_id, p.*,
                 added.status = 'active' AND (p.limited OR p.status = 'opted_out') AS tells
            FROM added JOIN reminders_recipient p ON p.address = added.address AND p.id < added.id
           ORDER BY added.id, p.id) AS known
   WHERE r.id = known.new_id;
  RETURN NULL;
END $$;
CREATE TRIGGER reminders_recipient_known AFTER INSERT ON reminders_recipient
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION reminders_known_people();
"""
BY_ROW = """
DROP TRIGGER reminders_recipient_known ON reminders_recipient;
DROP FUNCTION reminders_known_people();
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


class Migration(migrations.Migration):
    dependencies = [("reminders", "0004_part_text_limits")]

    operations = [migrations.RunSQL(BY_STATEMENT, BY_ROW)]
