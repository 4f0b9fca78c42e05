"""A small shop that uses every feature of django_reliable_jobs: the demo, and what the tests run in."""
