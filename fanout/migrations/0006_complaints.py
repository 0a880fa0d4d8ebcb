from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("fanout", "0005_known_ids"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="inboundevent",
            index=models.Index(
                condition=Q(("kind", "complaint")),
                fields=["account", "happened_at"],
                name="inbound_complaint",
            ),
        ),
    ]
