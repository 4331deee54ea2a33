"""A server that checks the signature of each request with botocore: aws_witness.py FOLDER.

It prints its port, and appends one line of JSON per request to FOLDER/seen.jsonl. The first request of a path with `busy` is
answered with 429. The key AKIDOLD expires after three requests; FOLDER/renewed then replaces FOLDER/.aws/credentials.
"""

import datetime
import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

folder = sys.argv[1]
SECRETS = {"AKIDEXAMPLE": "secret/of+example", "AKIDOLD": "secret-of-old", "AKIDNEW": "secret-of-new"}
CHUNK = '{"id":"r","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}'
lock = threading.Lock()
seen = []


def verify(method, path, headers, body):
    """Why a signature is wrong, or None."""
    scheme, _, rest = headers["authorization"].partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    key, day, region, service, kind = parts["Credential"].split("/")
    names = parts["SignedHeaders"].split(";")
    if scheme != "AWS4-HMAC-SHA256" or kind != "aws4_request":
        return "scheme"
    unsigned = [name for name in headers if name.startswith("x-amz-") and name not in names]
    if unsigned or "host" not in names:
        return f"unsigned {unsigned}"
    date = headers["x-amz-date"]
    sent = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if abs((datetime.datetime.now(datetime.timezone.utc) - sent).total_seconds()) > 300 or date[:8] != day:
        return "date"
    request = AWSRequest(method, f"http://{headers['host']}{path}", data=body)
    for name in names:
        request.headers[name] = headers[name]
    request.context["timestamp"] = date
    request.context["payload_signing_enabled"] = True
    signer = SigV4Auth(Credentials(key, SECRETS[key], headers.get("x-amz-security-token")), service, region)
    canonical = signer.canonical_request(request)
    if not canonical.endswith(hashlib.sha256(body).hexdigest()):
        return "payload"
    if signer.signature(signer.string_to_sign(request, canonical), request) != parts["Signature"]:
        return f"signature of {canonical}"
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.check(b"")

    def do_POST(self):
        self.check(self.rfile.read(int(self.headers.get("content-length", 0))))

    def check(self, body):
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = "no signature"
        if "authorization" in headers:
            fault = verify(self.command, self.path, headers, body)
        entry = {
            "method": self.command,
            "path": self.path,
            "fault": fault,
            "date": headers.get("x-amz-date"),
            "authorization": headers.get("authorization", ""),
            "token": headers.get("x-amz-security-token"),
            "body": hashlib.sha256(body).hexdigest(),
        }
        with lock:
            again = any(other["body"] == entry["body"] for other in seen)
            seen.append(entry)
            with open(os.path.join(folder, "seen.jsonl"), "a") as log:
                log.write(json.dumps(entry) + "\n")
        if fault:
            self.answer(403, json.dumps({"message": fault, "sent": headers.get("x-amz-security-token")}))
        elif sum("AKIDOLD" in other["authorization"] for other in seen) > 3 and "AKIDOLD" in entry["authorization"]:
            time.sleep(0.02)
            with lock:
                renewed = os.path.join(folder, "renewed")
                if os.path.exists(renewed):
                    os.rename(renewed, os.path.join(folder, ".aws/credentials"))
            self.answer(403, json.dumps({"message": "The security token included in the request is expired"}))
        elif "busy" in self.path and not again:
            self.answer(429, "{}")
        elif self.command == "GET":
            self.answer(200, json.dumps({"data": [{"id": "m"}]}))
        else:
            self.answer(200, f"data: {CHUNK}\n\ndata: [DONE]\n\n", "text/event-stream")

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
