from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "tests.admin.people"
    label = "people"
