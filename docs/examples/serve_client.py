"""Classify photos with a model that `mma serve` answers for: python serve_client.py ADDRESS KEY_FILE PHOTO [PHOTO ...]

Only the standard library is used. All photos go in one request.
"""

import base64
import json
import sys
import urllib.request
from pathlib import Path

address, key_file, *photos = sys.argv[1:]
body = {"images": [base64.b64encode(Path(photo).read_bytes()).decode() for photo in photos], "top": 1}
headers = {"Authorization": f"Bearer {Path(key_file).read_text().strip()}", "Content-Type": "application/json"}
request = urllib.request.Request(f"{address.rstrip('/')}/predict", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as response:
    answers = json.load(response)["predictions"]
for photo, answer in zip(photos, answers, strict=True):
    print(photo, answer["label"] or answer["problem"], answer["confidence"], sep="\t")
