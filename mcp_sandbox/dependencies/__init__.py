"""Packages for programs: installed from a lock in a sandbox of their own, and kept as one layer over an image."""
