// Classify photos with a model that `mma serve` answers for: node serve_client.mjs ADDRESS KEY_FILE PHOTO [PHOTO ...]
// Each photo is sent as it is, in a request of its own; the server puts what comes together into one computation.
import { readFile } from "node:fs/promises";

const [address, keyFile, ...photos] = process.argv.slice(2);
const key = (await readFile(keyFile, "utf8")).trim();

async function classify(photo) {
  const response = await fetch(`${address.replace(/\/$/, "")}/predict`, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/octet-stream" },
    body: await readFile(photo),
  });
  const answer = await response.json();
  return response.ok ? answer : { label: answer.error, confidence: null };
}

const answers = await Promise.all(photos.map(classify));
photos.forEach((photo, place) => console.log([photo, answers[place].label, answers[place].confidence].join("\t")));
