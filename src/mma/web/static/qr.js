/** A QR code of a short text: byte mode, level L, versions 1 to 5 (at most 106 bytes), drawn as one path. ISO/IEC 18004. */

import { draw } from "./dom.js";

const SIZES = [[19, 7], [34, 10], [55, 15], [80, 20], [108, 26]]; // codewords of data and of correction, by version
const FORMAT = "111011111000100"; // level L, mask 0

/** Numbers of GF(256) by their logarithms. */
const POWERS = Array.from({ length: 255 });
POWERS.reduce((value, _, place) => { POWERS[place] = value; return value > 127 ? (value << 1) ^ 0x11d : value << 1; }, 1);
const times = (a, b) => (a && b ? POWERS[(POWERS.indexOf(a) + POWERS.indexOf(b)) % 255] : 0);

function correction(data, length) {
  let divisor = [1];
  for (let place = 0; place < length; place += 1) {
    divisor = [...divisor, 0].map((value, at) => value ^ times(divisor[at - 1] ?? 0, POWERS[place]));
  }
  const rest = [...data, ...Array.from({ length }, () => 0)];
  data.forEach((_, place) => { const lead = rest[place]; divisor.forEach((value, at) => { rest[place + at] ^= times(value, lead); }); });
  return rest.slice(data.length);
}

function codewords(bytes, [room, checks]) {
  const bits = `0100${bytes.length.toString(2).padStart(8, "0")}${bytes.map((byte) => byte.toString(2).padStart(8, "0")).join("")}0000`;
  const data = bits.padEnd(Math.ceil(bits.length / 8) * 8, "0").match(/.{8}/g).slice(0, room).map((byte) => Number.parseInt(byte, 2));
  for (let pad = 0; data.length < room; pad += 1) data.push(pad % 2 ? 0x11 : 0xec);
  return [...data, ...correction(data, checks)];
}

/** Return the rows of the code, true is dark; null when the text is too long. */
export function qrRows(text) {
  const bytes = [...new TextEncoder().encode(text)];
  const version = SIZES.findIndex(([room]) => bytes.length + 2 <= room) + 1;
  if (!version) return null;
  const size = 17 + 4 * version;
  const rows = Array.from({ length: size }, () => Array.from({ length: size }, () => null));
  const square = (top, left, reach, dark) => {
    for (let y = -reach; y <= reach; y += 1) {
      for (let x = -reach; x <= reach; x += 1) if (rows[top + y]?.[left + x] !== undefined) rows[top + y][left + x] = dark(Math.max(Math.abs(x), Math.abs(y)));
    }
  };
  for (const [top, left] of [[3, 3], [3, size - 4], [size - 4, 3]]) square(top, left, 4, (ring) => ring !== 2 && ring !== 4);
  if (version > 1) square(size - 7, size - 7, 2, (ring) => ring !== 1);
  for (let at = 8; at < size - 8; at += 1) rows[6][at] = rows[at][6] = at % 2 === 0;
  rows[size - 8][8] = true;
  [...FORMAT].forEach((bit, at) => {
    const dark = bit === "1";
    if (at < 6) rows[8][at] = dark;
    else if (at < 9) rows[at === 8 ? 7 : 8][at === 6 ? 7 : 8] = dark;
    else rows[14 - at][8] = dark;
    if (at < 7) rows[size - 1 - at][8] = dark;
    else rows[8][size - 15 + at] = dark;
  });
  const bits = codewords(bytes, SIZES[version - 1]).map((word) => word.toString(2).padStart(8, "0")).join("");
  let at = 0;
  for (let right = size - 1, up = true; right > 0; right -= 2, up = !up) {
    if (right === 6) right -= 1;
    for (let step = 0; step < size; step += 1) {
      const y = up ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (rows[y][x] === null) { rows[y][x] = (bits[at] === "1") !== ((y + x) % 2 === 0); at += 1; }
      }
    }
  }
  return rows;
}

export function qrCode(text, label) {
  const rows = qrRows(text);
  if (!rows) return null;
  const dots = rows.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ""))).join("");
  const side = rows.length + 8;
  return draw("svg", { class: "qr", viewBox: `-4 -4 ${side} ${side}`, role: "img", "aria-label": label }, draw("path", { d: dots }));
}
