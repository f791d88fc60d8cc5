// What the server tells once: where the data comes from, how often it is read, and the boards.

import * as api from "/js/api.js";

let told = null;

/** The order in which a tired operator wants them: users, then along a request, then around it. */
const ORDER = [
  "overview", "queue", "pd", "kv-pools", "hicache", "transfer", "router", "instances", "node", "observability",
];

function place({ uid }) {
  const found = ORDER.findIndex((name) => uid.includes(name));
  return found < 0 ? ORDER.length : found;
}

function sorted(facts) {
  const boards = [...facts.boards].sort((a, b) =>
    facts.targets.indexOf(a.target) - facts.targets.indexOf(b.target) || place(a) - place(b) || a.title.localeCompare(b.title));
  return { ...facts, boards };
}

/** The facts, with the board of that uid where one is named; asked for once, and again for other
 * boards only. */
export async function facts(uid = null) {
  if (told && uid !== null) {
    const known = await told;
    if (known.board?.uid === uid) return known;
    return { ...known, board: await api.board(uid) };
  }
  told ??= api.start(uid).then(sorted).catch((error) => {
    told = null;
    throw error;
  });
  return told;
}

/** The boards, in the order of the home page. */
export async function listed() {
  return (await facts()).boards;
}
