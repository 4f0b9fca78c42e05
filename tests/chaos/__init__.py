"""A fleet of real workers under injected faults, and an independent judge. Read `docs/design/chaos.md` first."""
