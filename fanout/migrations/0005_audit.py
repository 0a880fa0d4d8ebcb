from django.db import migrations, models

# Retention deletes old entries; nothing changes one.
NEVER_CHANGED = """
CREATE FUNCTION fanout_trail_never_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'entries of the audit trail are never changed';
END $$;
CREATE TRIGGER fanout_trail_never_changed BEFORE UPDATE ON fanout_trailentry
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_trail_never_changed();
"""
UNDO = """
DROP TRIGGER fanout_trail_never_changed ON fanout_trailentry;
DROP FUNCTION fanout_trail_never_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("fanout", "0004_lookups")]

    operations = [
        migrations.CreateModel(
            name="TrailEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(verbose_name="when")),
                ("actor_id", models.BigIntegerField(blank=True, null=True)),
                ("actor_name", models.CharField(max_length=150, verbose_name="who")),
                ("address", models.CharField(blank=True, max_length=45, verbose_name="from")),
                ("verb", models.CharField(max_length=40, verbose_name="what")),
                ("kind", models.CharField(blank=True, max_length=40)),
                ("subject_id", models.CharField(blank=True, max_length=40)),
                ("subject", models.CharField(blank=True, max_length=200)),
                ("detail", models.TextField(blank=True)),
            ],
            options={
                "verbose_name": "audit trail entry",
                "verbose_name_plural": "audit trail",
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["at"], name="trail_at"),
                    models.Index(fields=["verb", "at"], name="trail_verb"),
                    models.Index(fields=["kind", "at"], name="trail_kind"),
                ],
            },
        ),
        migrations.RunSQL(NEVER_CHANGED, UNDO),
    ]
