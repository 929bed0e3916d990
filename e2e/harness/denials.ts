// The rules of the permission tests, which decide by the beginning of the name: `denied/` allows nothing, `noread/` denies reads
// and subscriptions, `nowrite/` denies changes and publishing, in `broken/` the rule itself fails, and `needs/RECORD/` is allowed
// while the field `open` of the record RECORD is true. All other names are free.

type Rules = Record<string, boolean | string>;
type Section = Record<string, Rules>;

const RECORD = ['create', 'read', 'write', 'delete', 'listen', 'notify'];
const EVENT = ['publish', 'subscribe', 'listen'];
const RPC = ['provide', 'request'];
const PRESENCE = ['allow'];

/** A member of `undefined`, at the latest of a member that no user's data has. */
const FAILS = 'user.data.missing.member === true';
const WHILE_OPEN = "_($record) !== null && _($record).open === true";

/** The same `answer` for all `kinds` of rules, except for the rules in `others`. */
function every(kinds: string[], answer: boolean | string, others: Rules = {}): Rules {
  return { ...Object.fromEntries(kinds.map((kind) => [kind, answer])), ...others };
}

/** What deepstream's own server can decide as Tidewire does. */
export const DENIALS = {
  record: {
    '*': every(RECORD, true),
    'denied/*': every(RECORD, false),
    'nowrite/*': every(RECORD, true, { write: false, delete: false }),
  },
  event: {
    '*': every(EVENT, true),
    'denied/*': every(EVENT, false),
    'nowrite/*': every(EVENT, true, { publish: false }),
  },
  rpc: { '*': every(RPC, true), 'denied/*': every(RPC, false) },
  presence: { '*': every(PRESENCE, true), 'denied/*': every(PRESENCE, false) },
} satisfies Record<string, Section>;

function withFailures(section: Section, kinds: string[]): Section {
  return { ...section, 'broken/*': every(kinds, FAILS), 'needs/$record/*': every(kinds, WHILE_OPEN) };
}

/** All rules of the permission tests. */
export const ALL_DENIALS = {
  record: { ...withFailures(DENIALS.record, RECORD), 'noread/*': every(RECORD, true, { read: false }) },
  event: { ...withFailures(DENIALS.event, EVENT), 'noread/*': every(EVENT, true, { subscribe: false }) },
  rpc: withFailures(DENIALS.rpc, RPC),
  presence: withFailures(DENIALS.presence, PRESENCE),
} satisfies Record<string, Section>;
