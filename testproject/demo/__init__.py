"""`make demo`: a fleet of workers with live traffic from the shop, and pods that are killed while you watch.

    python -m testproject.demo

What a run is to change comes from the environment:

DEMO_SECONDS    stop the traffic after so many seconds, finish what is under way, and end (default: go on until Ctrl-C)
DEMO_ADDRESS    where the admin listens: "127.0.0.1:8000", "0.0.0.0:8000" (default: a free port of 127.0.0.1)
DEMO_LOG        a file for what the workers say (default: one in the temporary folder, removed at the end)
DATABASE_URL    a database to use (default: a PostgreSQL of its own, removed at the end)
RELIABLE_JOBS_JSON, SHOP_LATENCY, SHOP_TROUBLE    as everywhere in the test project
"""
