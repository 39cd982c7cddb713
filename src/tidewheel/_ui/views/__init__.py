"""What each view of the page shows, as plain data: functions of what is stored, for JSON."""
