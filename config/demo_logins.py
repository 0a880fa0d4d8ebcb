"""The demo's users and their passwords, which the README prints: made by `demo_data`, refused by `check --deploy`."""

LOGINS = [("admin", "crier-admin"), ("mei", "crier-mei"), ("jonas", "crier-jonas")]
