"""What runs in isolated processes, and imports nothing from outside here."""
