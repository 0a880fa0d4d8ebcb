from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fanout', "0009_offloads_under_way"),
    ]

    operations = [
        migrations.AddField(
            model_name="runtarget",
            name="part_ids",
            field=models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict),
        ),
    ]
