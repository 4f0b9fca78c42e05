"""python -m testproject.demo.serve FD: the admin site and its static files, on a socket that listens already."""

from __future__ import annotations

import os
import socket
import sys

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    listener = socket.socket(fileno=int(sys.argv[1]))
    address = listener.getsockname()
    server = ThreadedWSGIServer(address, WSGIRequestHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = address
    server.setup_environ()
    server.set_app(StaticFilesHandler(get_wsgi_application()))
    server.serve_forever()


if __name__ == "__main__":
    main()
