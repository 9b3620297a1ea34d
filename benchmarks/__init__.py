"""What it costs, against what else there is."""
