"""A bookshop whose work is done by jobs: what a project that uses django_reliable_jobs looks like."""
