"""The host side of egress: what a run may reach, decided, dialled and recorded outside the sandbox.

The sandbox has no network. Connections made inside arrive here as byte streams, and `proxy` answers them:

    proxy ── asks ──▶ policy      which host and port (pure)
          ── reads ─▶ head, sni   what the program sent: HTTP request head, TLS ClientHello (pure)
          ── asks ──▶ addresses   whether what a name resolved to may be dialled
          ── uses ──▶ dial        resolve and connect, directly or through an upstream proxy
          ── uses ──▶ relay       move the bytes, counted and bounded
          ── writes ▶ record      one value for every decision
"""
