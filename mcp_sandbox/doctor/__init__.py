"""Tells whether this machine can run sandboxes, and proves that they hold.

Above: `cli.doctor`. Below: `app` and what it builds.
"""
