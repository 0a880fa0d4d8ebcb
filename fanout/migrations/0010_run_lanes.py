import django.contrib.postgres.indexes
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('fanout', '0009_run_is_test'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='run',
            index=django.contrib.postgres.indexes.GinIndex(fastupdate=False, fields=['lanes'], name='run_lanes'),
        ),
    ]
