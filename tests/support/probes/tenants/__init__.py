"""A backend whose connections keep a setting of the project's in themselves, as multi-tenant apps have."""
