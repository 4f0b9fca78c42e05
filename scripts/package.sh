#!/usr/bin/env bash
# Builds the wheel, looks into it, and runs a fresh project with it on a server of its own.
# The argument is a Python that has the dev extra.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
wheel=$(echo "$work"/dist/*.whl)
"$python" - "$wheel" <<'PYTHON'
import subprocess, sys, zipfile

packed = set(zipfile.ZipFile(sys.argv[1]).namelist())
tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "django_reliable_jobs"],
                         capture_output=True, text=True, check=True).stdout.split()
missing = sorted(set(tracked) - packed)
foreign = sorted(name for name in packed if not name.startswith(("django_reliable_jobs/", "django_reliable_jobs-")))
if missing or foreign:
    sys.exit(f"The wheel lacks {missing} and has {foreign}, which does not belong into it.")
print(f"{len(packed)} files in the wheel")
PYTHON

"$python" -m testproject.postgres --fast -- scripts/fresh_project.sh "$python" "$wheel"
