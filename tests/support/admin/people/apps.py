from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "tests.support.admin.people"
    label = "people"
