"""What interrupted index builds leave behind."""
