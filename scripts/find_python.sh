#!/bin/sh
# Print the first interpreter that can build this project, or say what is missing.
# The argument, when not empty, is the only one tried.
set -u

check='
import sys
if sys.version_info < (3, 11):
    sys.exit("is Python %d.%d" % sys.version_info[:2])
import importlib.util, os, sysconfig
if importlib.util.find_spec("ensurepip") is None:
    sys.exit("has no ensurepip (Debian and Ubuntu: install python3-venv)")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit("has no Python.h (Debian and Ubuntu: install python3-dev)")
print(sys.executable)
'

tried=""
for candidate in ${1:-python3 python3.11 python3.12 python3.13 python3.14}; do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    if answer=$("$path" -c "$check" 2>&1); then
        printf '%s\n' "$answer" | tail -n 1
        exit 0
    fi
    tried="$tried
  $path $(printf '%s\n' "$answer" | tail -n 1)"
done

{
    echo "Python 3.11 or newer with headers and venv is needed, and none was found."
    [ -n "$tried" ] && echo "Looked at:$tried"
    echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..."
} >&2
exit 1
