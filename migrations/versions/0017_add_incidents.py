"""Group alerts into incidents, with what people write about them.

Revision 0017. Adds two tables and a column of the alerts. Stored episodes are grouped as ``backend.alerting.incidents``
does it if no cause is known: episodes of one subject that overlap, or are at most 10 minutes apart. Older processes can
write at the same time as newer ones; the newer evaluator assigns their open episodes to incidents.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)
_STATES = "state IN ('inactive', 'pending', 'firing', 'resolved')"

_ASSIGN = """
WITH placed AS (
    SELECT id, began_at, coalesce(ended_at, 'infinity') AS ended_at,
           coalesce('job:' || job_id, 'target:' || target_id, 'rule:' || rule) AS subject
    FROM alerts
), marked AS (
    SELECT id, began_at, subject,
           began_at > max(ended_at) OVER (
               PARTITION BY subject ORDER BY began_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) + interval '10 minutes' AS is_new
    FROM placed
), numbered AS (
    SELECT id, began_at, subject,
           count(*) FILTER (WHERE is_new) OVER (PARTITION BY subject ORDER BY began_at, id) AS number
    FROM marked
)
SELECT id AS alert_id, subject,
       first_value(id) OVER (PARTITION BY subject, number ORDER BY began_at, id) AS first_id
INTO TEMPORARY assigned_alerts
FROM numbered
"""

_FILL = """
INSERT INTO incidents (id, subject, job_id, target_id, labels, began_at, fired_at, ended_at, state, severity, rank,
                       alert_count, open_count, lead_alert_id, rules)
SELECT 'i' || substr(first.id, 2), members.subject, first.job_id, first.target_id,
       first.labels - 'alertname' - 'severity', first.began_at, members.fired_at, members.ended_at, members.state,
       members.severity,
       CASE members.state WHEN 'firing' THEN 2 + (members.severity = 'critical')::int WHEN 'pending' THEN 1
                          WHEN 'resolved' THEN 0 ELSE -1 END,
       members.alert_count, members.open_count, members.lead_alert_id, members.rules
FROM (
    SELECT s.first_id, s.subject, count(*) AS alert_count, count(*) FILTER (WHERE a.ended_at IS NULL) AS open_count,
           min(a.fired_at) AS fired_at,
           CASE WHEN bool_or(a.ended_at IS NULL) THEN NULL ELSE max(a.ended_at) END AS ended_at,
           CASE WHEN bool_or(a.state = 'firing') THEN 'firing' WHEN bool_or(a.state = 'pending') THEN 'pending'
                WHEN bool_or(a.state = 'resolved') THEN 'resolved' ELSE 'inactive' END AS state,
           CASE WHEN bool_or(a.severity = 'critical') THEN 'critical'
                WHEN bool_or(a.severity = 'warning') THEN 'warning' ELSE 'none' END AS severity,
           (array_agg(a.id ORDER BY array_position('{firing,pending,resolved,inactive}', a.state),
                      array_position('{critical,warning,none}', a.severity), a.began_at DESC, a.id))[1]
               AS lead_alert_id,
           array_agg(DISTINCT a.rule ORDER BY a.rule) AS rules
    FROM assigned_alerts s JOIN alerts a ON a.id = s.alert_id
    GROUP BY s.first_id, s.subject
) members JOIN alerts first ON first.id = members.first_id
"""

_LINK = """
UPDATE alerts SET incident_id = 'i' || substr(s.first_id, 2) FROM assigned_alerts s WHERE s.alert_id = alerts.id
"""


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text()),
        sa.Column("target_id", sa.Text()),
        sa.Column("labels", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("cause", sa.Text()),
        sa.Column("vertex", sa.Text()),
        sa.Column("phase", sa.Text()),
        sa.Column("began_at", _INSTANT, nullable=False),
        sa.Column("fired_at", _INSTANT),
        sa.Column("ended_at", _INSTANT),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("rank", sa.SmallInteger(), nullable=False),
        sa.Column("alert_count", sa.Integer(), nullable=False),
        sa.Column("open_count", sa.Integer(), nullable=False),
        sa.Column("lead_alert_id", sa.Text()),
        sa.Column("rules", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("acknowledged_at", _INSTANT),
        sa.Column("acknowledged_by", sa.Text()),
        sa.Column("claimed_at", _INSTANT),
        sa.Column("claimed_by", sa.Text()),
        sa.CheckConstraint(_STATES, name=op.f("ck_incidents_state_known")),
        sa.CheckConstraint(
            "(acknowledged_at IS NULL) = (acknowledged_by IS NULL)", name=op.f("ck_incidents_acknowledged_whole")
        ),
        sa.CheckConstraint("(claimed_at IS NULL) = (claimed_by IS NULL)", name=op.f("ck_incidents_claimed_whole")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    op.create_table(
        "incident_notes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("incident_id", sa.Text(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('comment', 'acknowledged', 'claimed', 'released')", name=op.f("ck_incident_notes_kind_known")
        ),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name=op.f("fk_incident_notes_incident_id_incidents"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident_notes")),
    )
    op.add_column("alerts", sa.Column("incident_id", sa.Text()))
    for statement in (_ASSIGN, _FILL, _LINK, "DROP TABLE assigned_alerts"):
        op.execute(statement)
    op.create_foreign_key(op.f("fk_alerts_incident_id_incidents"), "alerts", "incidents", ["incident_id"], ["id"])
    op.create_index("ix_alerts_incident_id", "alerts", ["incident_id"])
    op.create_index("ix_incidents_rank", "incidents", ["rank", "began_at", "id"])
    op.create_index("ix_incidents_subject", "incidents", ["subject", "ended_at"])
    op.create_index("ix_incident_notes_incident_id", "incident_notes", ["incident_id"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_constraint(op.f("fk_alerts_incident_id_incidents"), "alerts", type_="foreignkey")
    op.drop_index("ix_alerts_incident_id", "alerts")
    op.drop_column("alerts", "incident_id")
    op.drop_table("incident_notes")
    op.drop_table("incidents")
