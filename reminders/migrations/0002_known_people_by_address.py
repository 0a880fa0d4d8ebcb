"""What is known of new recipients is looked up address by address, whatever the statistics say.

While the statistics of a list that was deleted still called the table empty, PostgreSQL joined every new row with every
known one: 5,000 recipients who were known already took 20 seconds. Rows that would not change are left alone.
"""

from django.db import migrations

# `+ 0` keeps the primary key out of the search; it would find every earlier recipient for each new one.
BY_ADDRESS = """
CREATE OR REPLACE FUNCTION reminders_known_people() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE known record;
BEGIN
  FOR known IN
    SELECT added.id AS new_id, p.*, tells
      FROM added
     CROSS JOIN LATERAL (SELECT * FROM reminders_recipient p WHERE p.address = added.address AND p.id + 0 < added.id
                          ORDER BY p.id + 0 LIMIT 1) p
     CROSS JOIN LATERAL (SELECT added.status = 'active' AND (p.limited OR p.status = 'opted_out') AS tells) q
     WHERE tells OR (p.follow_up_attempts, p.attempts_reset_at, p.cooldown_until, p.replied_at) IS DISTINCT FROM
           (added.follow_up_attempts, added.attempts_reset_at, added.cooldown_until, added.replied_at)
  LOOP
    UPDATE reminders_recipient r
       SET follow_up_attempts = known.follow_up_attempts,
           attempts_reset_at = known.attempts_reset_at,
           cooldown_until = known.cooldown_until,
           replied_at = known.replied_at,
           status = CASE WHEN known.tells THEN known.status ELSE r.status END,
           limited = CASE WHEN known.tells THEN known.limited ELSE r.limited END
     WHERE r.id = known.new_id;
  END LOOP;
  RETURN NULL;
END $$;
"""
BY_JOIN = """
CREATE OR REPLACE FUNCTION reminders_known_people() RETURNS trigger LANGUAGE plpgsql
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
"""


class Migration(migrations.Migration):
    dependencies = [("reminders", "0001_version_1_0")]

    operations = [migrations.RunSQL(BY_ADDRESS, BY_JOIN)]
