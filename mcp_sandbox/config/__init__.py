"""The configuration: keys, profiles, and the policy that they come to. Finding the file is `workspace`'s."""

from mcp_sandbox.config.policy import Configuration, Policy

__all__ = ["Configuration", "Policy"]
