from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fanout', '0007_opt_outs_first'),
    ]

    operations = [
        migrations.AddField(
            model_name='lanestate',
            name='timeouts',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
    ]
