"""Our models under other servers: each module needs its package, and imports it when it is imported."""
