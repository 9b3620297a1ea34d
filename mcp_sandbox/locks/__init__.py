"""What packages exactly: locks of every usual form, read as data into one. No code of anybody's runs here."""
