"""The site's own list of opt-out phrases."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("reminders", "0006_part_templates")]

    operations = [
        migrations.CreateModel(
            name="OptOutPhrase",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "phrase",
                    models.CharField(
                        max_length=100,
                        help_text="A message that says only this. Case, accents, punctuation, “please” and “thank you” "
                        "do not matter.",
                    ),
                ),
                ("essence", models.CharField(editable=False, max_length=400)),
                (
                    "opts_out",
                    models.BooleanField(
                        "opts out",
                        db_default=True,
                        default=True,
                        help_text="Off: people who write this stay in, although the built-in list has it.",
                    ),
                ),
                ("note", models.CharField(blank=True, help_text="Why it is in the list.", max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"verbose_name": "opt-out phrase", "ordering": ["phrase"]},
        ),
        migrations.AddConstraint(
            model_name="optoutphrase",
            constraint=models.UniqueConstraint(fields=("essence",), name="opt_out_phrase_once"),
        ),
        migrations.AddConstraint(
            model_name="optoutphrase",
            constraint=models.CheckConstraint(
                condition=models.Q(("essence", ""), _negated=True), name="opt_out_phrase_says_something"
            ),
        ),
    ]
