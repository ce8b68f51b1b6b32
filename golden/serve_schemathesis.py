"""Asks servers of each kind of model what their `/openapi.json` allows and forbids, by schemathesis: no 5xx, no answer that is not as
described, none that takes forever.

    pip install schemathesis==4.32.5 openai==3.57.0
    python serve_schemathesis.py WEIGHBRIDGE SECONDS MODEL...

It starts a server of each model, and ends it. `SECONDS` are for each.
"""

import json
import os
import subprocess
import sys
import urllib.request

from serve_openai import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"


def main():
    program, seconds, *models = sys.argv[1:]
    for model in models:
        more = ["--deadline", "20", "--queue", "200", "--quiet", "--sound-seconds", "30"]
        with serving(program, model, *more, ctx=()) as address:
            paths = json.load(urllib.request.urlopen(address + "/openapi.json"))["paths"]
            program_beside = os.path.join(os.path.dirname(sys.executable), "schemathesis")
            command = [program_beside, "run", address + "/openapi.json", "--checks", CHECKS, "--max-time", seconds, "--workers", "4",
                       "--continue-on-failure", "--request-timeout", "30", "--warnings", "off", "--no-color", "--generation-database", "none"]
            subprocess.run(command, check=True)
            # It is there after all of that.
            assert json.load(urllib.request.urlopen(address + "/health", timeout=5)) == {"status": "ok"}
            print(f"ok {model}: {len(paths)} paths")


if __name__ == "__main__":
    main()
