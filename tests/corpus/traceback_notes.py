error = ValueError("with notes")
error.add_note("first note")
error.add_note("second note\nof two lines: \u00fc")
raise error
