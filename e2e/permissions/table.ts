// The table of permission cases: a rules file in deepstream's format, and for each rule a request that it allows and an opposite request
// that it denies. The suites of the client and of the HTTP API run all cases; `start.ts` starts the server.

/** The operation of a request. One rule of the file decides each operation. */
export type Operation =
  | 'publish' | 'subscribe' | 'listenEvents' | 'request' | 'provide'
  | 'read' | 'head' | 'open' | 'write' | 'patch' | 'erase' | 'delete' | 'listenRecords' | 'notify'
  | 'readList' | 'writeList' | 'deleteList'
  | 'queryUser' | 'queryAll' | 'watchUser';

/** The user who sends the request; `guest` has not logged in and has the id `open`. */
export type Asker = 'ann' | 'bob' | 'cid' | 'guest';

/** One request. */
export interface Ask {
  by: Asker;
  operation: Operation;
  name: string;
  /** The payload, the record, or the value at `path`. */
  data?: unknown;
  path?: string;
}

/** The code of a denied request. */
export type Refusal = 'MESSAGE_DENIED' | 'MESSAGE_PERMISSION_ERROR';

export interface Row {
  /** The content of the rule. */
  what: string;
  allowed: Ask;
  refused: Ask;
  refusal: Refusal;
}

type Rule = string | boolean;
type Section = 'record' | 'event' | 'rpc' | 'presence';
type Rules = Record<string, Rule>;

/** The data that the auth handler returns for users: `user.data`. */
export const SERVER_DATA: Record<Exclude<Asker, 'guest'>, object> = {
  ann: { role: 'admin', level: 5, tags: ['x', 'y'] },
  bob: { role: 'guest', level: 1, tags: [] },
  cid: { role: 'user', level: '7', tags: 'xyz' },
};

/** Records that exist before the first request. */
export const RECORDS: Record<string, object> = {
  'x/open': { open: true, to: 'closed', v: 1 },
  'x/closed': { open: false, to: 'open', v: 9 },
  'x/first': { to: 'second' },
  'x/second': { to: 'third', open: true },
  'x/third': { to: 'open', open: false },
  'x/ann': { admin: true },
  'x/bob': { admin: false },
};

const file: Record<Section, Record<string, Rules>> = {
  record: { '*': { create: true, read: true, write: true, delete: true, listen: true, notify: true } },
  event: { '*': { publish: true, subscribe: true, listen: true } },
  rpc: { '*': { provide: true, request: true } },
  presence: { '*': { allow: false } },
};

export const ROWS: Row[] = [];

function row(what: string, allowed: Ask, refused: Ask, refusal: Refusal = 'MESSAGE_DENIED'): void {
  ROWS.push({ what, allowed, refused, refusal });
}

const ALL: Array<[Operation, Section, string]> = [['publish', 'event', 'publish'], ['request', 'rpc', 'request'], ['write', 'record', 'write']];
let count = 0;

/** A rule about the payload, for events, rpcs and records in turn, each in a separate section. */
function data(expression: string, yes: unknown, no: unknown, refusal?: Refusal): void {
  count += 1;
  const isRecord = [yes, no].every((value) => typeof value === 'object' && value !== null);
  const [operation, section, rule] = ALL[count % (isRecord ? 3 : 2)] as (typeof ALL)[number];
  file[section][`d${count}/$id`] = { [rule]: expression };
  const ask = (name: string, payload: unknown): Ask => ({ by: 'ann', operation, name: `d${count}/${name}`, data: payload });
  row(`${rule} by data: ${expression}`, ask('open-1', yes), ask('open-2', no), refusal);
}

data('data.a === 1', { a: 1 }, { a: '1' });
data('data.a !== 1', { a: '1' }, { a: 1 });
data('data.a == 1', { a: '1' }, { a: 'x' });
data('data.a != null', { a: 0 }, { a: null });
data('data.a < 10', { a: 9 }, { a: 10 });
data("data.a > 'b'", { a: 'c' }, { a: 'B' });
data("data.a <= '9'", { a: '10' }, { a: 10 });
data('data.a >= 0', { a: [] }, { a: -1 });
data('data.a && data.b', { a: 1, b: 1 }, { a: 1, b: 0 });
data('data.a || data.b', { a: 0, b: 1 }, { a: 0, b: '' });
data('!data.a', {}, { a: 1 });
data("data.a + data.b === '12'", { a: '1', b: 2 }, { a: 1, b: 2 });
data('data.a - data.b === 1', { a: '3', b: 2 }, { a: 3, b: 3 });
data('data.a * 2 === 6', { a: 3 }, { a: 4 });
data('data.a / 0 === Infinity', { a: 1 }, { a: -1 });
data('data.a % 3 === -1', { a: -7 }, { a: 7 });
data('-data.a === 5 && +data.b === 6', { a: -5, b: '6' }, { a: -5, b: 'six' });
data('data.a ? data.b : data.c', { a: 1, b: 1, c: 0 }, { a: 0, b: 1, c: 0 });
data("typeof data.a === 'string'", { a: '' }, { a: 1 });
data("typeof data.a === 'undefined'", {}, { a: null });
data("typeof data.a === 'object'", { a: null }, { a: true });
data("'a' in data", { a: null }, { b: 1 });
data("data['a b'] === 1", { 'a b': 1 }, { a: 1 });
data("data.list[1] === 'x'", { list: ['y', 'x'] }, { list: ['x', 'y'] });
data('data.list.length > 2', { list: [1, 2, 3] }, { list: [1, 2] });
data("data.list.includes('x')", { list: ['x'] }, { list: ['xx'] });
data('data.list.indexOf(2) === 1', { list: [1, 2] }, { list: [1, '2'] });
data("data.t.startsWith('ab')", { t: 'abc' }, { t: 'xab' });
data("data.t.endsWith('ab')", { t: 'xab' }, { t: 'abc' });
data("data.t.includes('ab')", { t: 'xabc' }, { t: 'acb' });
data("data.t.indexOf('b') === 1", { t: 'ab' }, { t: 'ba' });
data('data.t.match(/^[a-z]+$/)', { t: 'abc' }, { t: 'ab1' });
data("data.t.match('^x')", { t: 'xa' }, { t: 'ax' });
data("data.t.match(/^(a)b$/i)[1] === 'A'", { t: 'AB' }, { t: 'ab' });
data("data.t.match(/x/)[0] === 'x'", { t: 'axb' }, { t: 'ab' }, 'MESSAGE_PERMISSION_ERROR');
data("data.t.toUpperCase() === 'STRASSE'", { t: 'straße' }, { t: 'strase' });
data("data.t.toLowerCase() === 'ab'", { t: 'AB' }, { t: 'ac' });
data("data.t.trim() === 'a'", { t: ' a\n' }, { t: 'a b' });
data('data.t.length === 2', { t: '😀' }, { t: 'a' });
data("data.t[0] + data.t[1] === '😀'", { t: '😀' }, { t: '😃' });
data('data.s > data.t', { s: '\ue000', t: '😀' }, { s: '😀', t: '\ue000' });
data('data.a.b.c === 1', { a: { b: { c: 1 } } }, { a: {} }, 'MESSAGE_PERMISSION_ERROR');
data('data.a.b', { a: { b: 1 } }, {}, 'MESSAGE_PERMISSION_ERROR');
data('data.t.trim()', { t: 'a' }, { t: 1 }, 'MESSAGE_PERMISSION_ERROR');
data("'a' in data.o", { o: { a: 1 } }, { o: 'a' }, 'MESSAGE_PERMISSION_ERROR');
data('data === null', null, 0);
data('data === undefined', undefined, null);
data('data === 5', 5, '5');
data('data.a == data.b', { a: [1], b: 1 }, { a: [1], b: [1] });
data('[1, 2].includes(data.a)', { a: 2 }, { a: '2' });
data('{x: 1}[data.k] === 1', { k: 'x' }, { k: 'y' });
data('data.a > NaN || data.a === 1', { a: 1 }, { a: 2 });
data('(data.a || data.b) && data.c', { a: 1, c: 1 }, { a: 1, c: 0 });
data('data.a || data.b && data.c', { a: 1, c: 0 }, { b: 1, c: 0 });
data("data.text.length < 5 && $id.startsWith('open-')", { text: 'four' }, { text: 'fives' });
data('!data.value || data.value > 3', { value: 4 }, { value: 3 });
data('data.a', { a: 1 }, { a: 0 });
data('data.b', { b: 'x' }, { b: '' });
data('data.c', { c: [] }, { c: null });
data('data.d', { d: {} }, {});
data('data.e - 1', { e: 3 }, { e: 'x' });
data("'' + data.list === '1,2'", { list: [1, 2] }, { list: ['1 ', 2] });
data('data.a === 9007199254740993', { a: 9007199254740992 }, { a: 9007199254740994 });
data('data.deep[0][1] === 2', { deep: [[1, 2]] }, { deep: [[2, 1]] });
data("data.o['k' + data.n] === 1", { o: { k2: 1 }, n: 2 }, { o: { k2: 1 }, n: 3 });
data('data.user.id === user.id', { user: { id: 'ann' } }, { user: { id: 'bob' } });
data('data.sent <= now && data.sent > now - 1e15', { sent: 1 }, { sent: 9e15 });
data('data.a === true', { a: true }, { a: 1 });
data("'1' == data.a && 1 == data.a", { a: true }, { a: [2] });
data('(data.a ?? 1) === 1', {}, { a: 0 });
data('data.a?.b === 1', { a: { b: 1 } }, { a: null });
data("data.t.indexOf('a', 1) === 2", { t: 'aba' }, { t: 'ab' });
data("data.t.includes('a', 1)", { t: 'ba' }, { t: 'ab' });
data("data.t.startsWith('b', 1)", { t: 'ab' }, { t: 'ba' });
data("data.t.endsWith('a', 1)", { t: 'ab' }, { t: 'ba' });
data('data.t.match(/a/g).length === 2', { t: 'aba' }, { t: 'ab' });
data('data.t.match(/^a.b$/)', { t: 'axb' }, { t: 'a\nb' });
data('data.t.match(/^a.b$/s)', { t: 'a\nb' }, { t: 'a\n\nb' });
data('data.t.match(/^(?:[0-9]{3}-)+x?$/)', { t: '123-456-' }, { t: '123-45-x' });
data('data.a >= 0 && data.a != 0', { a: null }, { a: 0 });
data('+data.a !== +data.a', { a: 'x' }, { a: '1' });
data('0x10 + 1e1 + .5 === data.a', { a: 26.5 }, { a: 26 });
data("data.t === '\\u00e4\\n\\x41'", { t: 'ä\nA' }, { t: 'ä\\nA' });
data('!data.list.length', { list: [] }, { list: [''] });
data("'length' in data.list", { list: [] }, { list: {} });
data('1 in data.list', { list: [0, null] }, { list: [0] });
data('!!data.a === data.b', { a: 'x', b: true }, { a: '', b: true });
data('(data.a > data.b ? data.a : data.b) === 5', { a: 3, b: 5 }, { a: 6, b: 5 });
data('data.a % 2 === 0.5', { a: 2.5 }, { a: 3.25 });
data('data.a + 0.2 === 0.30000000000000004', { a: 0.1 }, { a: 0.09999999999999998 });
data("'' + data.a === '1e+21'", { a: 1e21 }, { a: 1e20 });
data("data.a / 10 + '' === '900719925474099.2'", { a: 9007199254740992 }, { a: 9007199254740994 });
data("'' == data.a", { a: [] }, { a: [0] });
data("data.list[data.list.length - 1] === 'z'", { list: ['a', 'z'] }, { list: ['z', 'a'] });
data("data.t.toUpperCase().startsWith('AB')", { t: 'aBc' }, { t: 'bab' });
data('data.tags.includes(user.id)', { tags: ['bob', 'ann'] }, { tags: ['bob'] });
data('user.data.tags.includes(data.tag)', { tag: 'y' }, { tag: 'z' });
data('user.data.level >= data.level', { level: 5 }, { level: 6 });
data("$id + '-' + data.a === 'open-1-x'", { a: 'x' }, { a: 'y' });
data('typeof data.a === typeof data.b', { a: null, b: [] }, { a: null });
data("data.a > 1 === true && data.b === !data.c", { a: 2, b: true, c: 0 }, { a: 2, b: true, c: 1 });

/** A rule about the user who sends the request. */
function user(expression: string, yes: Asker, no: Asker, refusal?: Refusal): void {
  count += 1;
  const path = `u${count}/$id`;
  // deepstream uses the text `['data']` to detect rules about the payload, and a read has none.
  const isEvent = count % 2 === 0 || expression.includes("['data']");
  if (isEvent) file.event[path] = { publish: expression };
  else file.record[path] = { read: expression };
  const ask = (by: Asker): Ask => ({ by, operation: isEvent ? 'publish' : 'read', name: `u${count}/ann` });
  row(`by user: ${expression}`, ask(yes), ask(no), refusal);
}

user("user.id === 'ann'", 'ann', 'bob');
user('user.isAuthenticated', 'cid', 'guest');
user("user.id === 'open'", 'guest', 'ann');
user("user.data.role === 'admin'", 'ann', 'bob');
user("user.data.tags.includes('x')", 'cid', 'bob');
user('user.data.level >= 3', 'cid', 'bob');
user('user.data.level === 5', 'ann', 'cid');
user('user.data === null', 'guest', 'ann');
user('user.data.missing === undefined', 'ann', 'guest', 'MESSAGE_PERMISSION_ERROR');
user('user.data.tags[1].length === 1', 'ann', 'bob', 'MESSAGE_PERMISSION_ERROR');
user('user.id === $id', 'ann', 'bob');
user("user['data']['role'] !== 'guest'", 'cid', 'bob');
user("user.id === 'bob' || user.data.role === 'admin'", 'bob', 'cid');
user('user.id in {ann: 0, cid: 0}', 'cid', 'bob');
user("user.data && user.data.role === 'user'", 'cid', 'guest');
user('(user.data || {}).role === undefined', 'guest', 'cid');
user("user.data.tags == 'x,y'", 'ann', 'cid');
user("user.id > 'ann'", 'bob', 'ann');

/** Patterns of records with their rule for reading, and two names. */
function path(what: string, rules: Record<string, Rule>, yes: string, no: string): void {
  for (const [text, rule] of Object.entries(rules)) file.record[text] = { ...file.record[text], read: rule };
  const ask = (name: string): Ask => ({ by: 'ann', operation: 'read', name });
  row(`path: ${what}`, ask(yes), ask(no));
}

path('a longer pattern forbids', { 'p1/*': true, 'p1/x/*': false }, 'p1/y', 'p1/x/1');
path('a longer pattern allows', { 'p2/*': false, 'p2/x/*': true }, 'p2/x/1', 'p2/y');
path('of patterns of equal length the later one decides', { 'p3/*b': true, 'p3/a*': false }, 'p3/xb', 'p3/ab');
path('a variable matches no slash', { 'p4/*': false, 'p4/$id': true }, 'p4/a', 'p4/a/b');
path('a star matches slashes', { 'p5/*/end': true, 'p5/*': false }, 'p5/a/b/end', 'p5/a/b/end/x');
path('two variables', { 'p6/$a/$b': '$a === $b' }, 'p6/x/x', 'p6/x/y');
path('a variable in the middle', { 'p7/$id/end': "$id === 'x'", 'p7/*': true }, 'p7/x/end', 'p7/y/end');
path('a dot matches any one character', { 'p8/a.c': true, 'p8/*': false }, 'p8/abc', 'p8/abbc');
path('a star also matches the empty text', { 'p9*': true, 'p9/x*': false }, 'p9', 'p9/x');
path('the pattern must match the whole name', { 'p10/*': false, 'p10/a': true }, 'p10/a', 'p10/ab');
path('the first of two variables is greedy', { 'p11/$a-$b': "$a === 'x-y'" }, 'p11/x-y-z', 'p11/x-z');
path('a variable is a text', { 'p12/$id': "$id === '7' && typeof $id === 'string'" }, 'p12/7', 'p12/07');
path('the name', { 'p13/*': "name === 'p13/a/b'" }, 'p13/a/b', 'p13/a');
path('the name and its end', { 'p14/*': "name.endsWith('/ok')" }, 'p14/a/ok', 'p14/a/ko');
path('patterns are case-sensitive', { 'p15/Ab': true, 'p15/*': false }, 'p15/Ab', 'p15/ab');
path('other scripts', { 'p16/ü/$id': "$id === '😀'" }, 'p16/ü/😀', 'p16/ü/😃');
path('a variable and a star', { 'p18/$id/*': "$id === 'a'" }, 'p18/a/b/c', 'p18/b/a/c');
path('the longer text, not the better match', { 'p19/ab': true, 'p19/$aLongName': "$aLongName !== 'ab'" }, 'p19/x', 'p19/ab');
path('digits in the names of variables', { 'p20/$a1.$b2': "$a1 < $b2" }, 'p20/1.2', 'p20/2.1');
file.record['p17/$id'] = { write: false };
path('a pattern without the rule leaves the decision to a shorter one', { 'p17*': "name === 'p17/a'" }, 'p17/a', 'p17/b');

/** A case with a constant for each kind of rule. */
function kind(section: Section, rule: string, operation: Operation): void {
  for (const [name, value] of Object.entries({ yes: true, no: false })) {
    file[section][`k/${name}/${operation}`] = { [rule]: value };
  }
  const ask = (name: string): Ask => ({ by: 'ann', operation, name: `k/${name}/${operation}`, data: { a: 1 }, path: 'a' });
  row(`${section}: ${rule}`, ask('yes'), ask('no'));
}

kind('event', 'publish', 'publish');
kind('event', 'subscribe', 'subscribe');
kind('event', 'listen', 'listenEvents');
kind('rpc', 'provide', 'provide');
kind('rpc', 'request', 'request');
kind('record', 'read', 'head');
kind('record', 'create', 'open');
kind('record', 'write', 'write');
kind('record', 'delete', 'erase');
kind('record', 'listen', 'listenRecords');
kind('record', 'notify', 'notify');
RECORDS['k/yes/erase'] = { a: 1, b: 2 };
RECORDS['k/no/erase'] = { a: 1, b: 2 };
RECORDS['k/yes/notify'] = { a: 1 };

Object.assign(file.presence, {
  'friend-$id': { allow: "$id !== 'none'" },
  'ask-$id': { allow: 'action === 4' },
  'watch-$id': { allow: 'action === 10' },
  'team-$id': { allow: "user.data.role === 'admin'" },
  '*': { allow: "action === 2 && name === undefined && user.id === 'ann'" },
});
const presence = (operation: Operation, name: string, by: Asker = 'ann'): Ask => ({ by, operation, name });
row('presence: a user by the id', presence('queryUser', 'friend-bob'), presence('queryUser', 'friend-none'));
row('presence: asking, not watching', presence('queryUser', 'ask-a'), presence('watchUser', 'ask-a'));
row('presence: watching, not asking', presence('watchUser', 'watch-a'), presence('queryUser', 'watch-a'));
row('presence: by whom', presence('queryUser', 'team-a'), presence('queryUser', 'team-a', 'cid'));
row('presence: all, by whom', presence('queryAll', ''), presence('queryAll', '', 'bob'));

/** A rule for a record with an initial value, and two requests, for this record or another one. */
function record(what: string, rule: string, expression: Rule, value: object | null, yes: Partial<Ask>, no: Partial<Ask>, refusal?: Refusal): void {
  count += 1;
  file.record[`o${count}/$id`] = { [rule]: expression };
  const ask = (id: string, part: Partial<Ask>): Ask => ({ by: 'ann', operation: 'write', name: `o${count}/${id}`, ...part });
  const [allowed, refused] = [ask('yes', yes), ask('no', no)];
  if (value !== null) for (const { name } of [allowed, refused]) RECORDS[name] = value;
  row(`record: ${what}`, allowed, refused, refusal);
}

record('a price only rises', 'write', 'data.price > oldData.price', { price: 5 }, { data: { price: 6 } }, { data: { price: 5 } });
record('the owner stays', 'write', 'data.owner === oldData.owner', { owner: 'ann' }, { data: { owner: 'ann', b: 1 } }, { data: { owner: 'bob' } });
record('idiom for a first value', 'write', '!oldData.value || data.value > oldData.value', { value: 3 }, { data: { value: 4 } }, { data: { value: 2 } });
record('old data of a missing record is null', 'write', 'oldData === null || data.force', null, { data: { a: 1 } }, { data: { a: 1 }, name: 'x/closed-not' });
RECORDS['x/closed-not'] = { a: 0 };
file.record['x/closed-not'] = { write: 'oldData === null || data.force' };
record('members of missing old data fail', 'write', "data.a === 1 || oldData.a === 1", null, { data: { a: 1 } }, { data: { a: 2 } }, 'MESSAGE_PERMISSION_ERROR');
record('the rule sees the whole value after a patch', 'write', 'data.a === 1 && data.b === 2', { a: 1 }, { operation: 'patch', path: 'b', data: 2 }, { operation: 'patch', path: 'b', data: 3 });
record('the rule sees the whole value after a deep patch', 'write', 'data.list.length === 3 && data.list[0] === 1', { list: [1, 2] }, { operation: 'patch', path: 'list[2]', data: 3 }, { operation: 'patch', path: 'list[0]', data: 3 });
record('whole values, not patches', 'write', 'action === 18', { a: 1 }, { data: { a: 2 } }, { operation: 'patch', path: 'a', data: 2 });
record('patches, not whole values', 'write', 'action === 19', { a: 1 }, { operation: 'patch', path: 'a', data: 2 }, { data: { a: 2 } });
record('reading, not asking for the version', 'read', 'action === 3', { a: 1 }, { operation: 'read' }, { operation: 'head' });
record('asking for the version, not reading', 'read', 'action === 5', { a: 1 }, { operation: 'head' }, { operation: 'read' });
record('erasing, not deleting', 'delete', 'action === 20', { a: 1, b: 1 }, { operation: 'erase', path: 'a' }, { operation: 'delete' });
record('deleting, not erasing', 'delete', 'action === 9', { a: 1, b: 1 }, { operation: 'delete' }, { operation: 'erase', path: 'a' });
record('a public record is read', 'read', 'oldData.public', { public: true }, { operation: 'read' }, { operation: 'read', name: 'x/private' });
RECORDS['x/private'] = { public: false };
file.record['x/private'] = { read: 'oldData.public' };
record('a missing record may be read', 'read', 'oldData === null', null, { operation: 'read' }, { operation: 'read', name: 'x/there' });
RECORDS['x/there'] = {};
file.record['x/there'] = { read: 'oldData === null' };
record('the owner deletes', 'delete', 'oldData.owner === user.id', { owner: 'ann' }, { operation: 'delete' }, { operation: 'delete', by: 'bob' });
record('a locked record is not erased', 'delete', '!oldData.locked', { a: 1 }, { operation: 'erase', path: 'a' }, { operation: 'erase', path: 'a', name: 'x/locked' });
RECORDS['x/locked'] = { a: 1, locked: true };
file.record['x/locked'] = { delete: '!oldData.locked' };
record('creating by the name', 'create', "$id === 'yes'", null, { operation: 'open' }, { operation: 'open' });
record('creating by writing', 'create', "$id === 'yes'", null, { data: { a: 1 } }, { data: { a: 1 } });
record('creating by the user', 'create', 'user.isAuthenticated', null, { operation: 'open' }, { operation: 'open', by: 'guest' });

record('a deep patch of a missing record creates the value that the rule sees', 'write', 'data.a.b === 1', null, { operation: 'patch', path: 'a.b', data: 1 }, { operation: 'patch', path: 'a.b', data: 2 });
record('one member never changes', 'write', 'data.a.b === oldData.a.b', { a: { b: 1 } }, { operation: 'patch', path: 'a.c', data: 2 }, { operation: 'patch', path: 'a.b', data: 2 });
record('steps of one', 'write', 'data.n === oldData.n + 1', { n: 1 }, { data: { n: 2 } }, { data: { n: 3 } });
record('a state follows another', 'write', "data.state === {draft: 'open', open: 'closed'}[oldData.state]", { state: 'draft' }, { data: { state: 'open' } }, { data: { state: 'closed' } });
record('the owner or an admin writes', 'write', "oldData.owner === user.id || user.data.role === 'admin'", { owner: 'bob' }, { by: 'bob', data: {} }, { by: 'cid', data: {} });
record('an expired record is written', 'write', 'now > oldData.until', { until: 1 }, { data: {} }, { data: {}, name: 'x/until' });
RECORDS['x/until'] = { until: 9e15 };
file.record['x/until'] = { write: 'now > oldData.until' };
record('a user who sets an existing record may create it, too', 'create', "user.data.role === 'admin'", { a: 0 }, { data: { a: 1 } }, { data: { a: 1 }, by: 'cid' });
record('a list only grows', 'write', 'data.length >= oldData.length', ['a'], { operation: 'writeList', data: ['a', 'b'] }, { operation: 'writeList', data: [] });
record('a list has this entry', 'write', "data.includes('x')", null, { operation: 'writeList', data: ['y', 'x'] }, { operation: 'writeList', data: ['xx'] });
record('a user on the list reads it', 'read', 'oldData.includes(user.id)', ['ann', 'bob'], { operation: 'readList' }, { operation: 'readList', by: 'cid' });
record('an empty list is deleted', 'delete', 'oldData.length === 0', [], { operation: 'deleteList' }, { operation: 'deleteList', name: 'x/list' });
RECORDS['x/list'] = ['a'];
file.record['x/list'] = { delete: 'oldData.length === 0' };

/** A rule that reads other records, for events, rpcs and records in turn. */
function reference(expression: string, yes: Partial<Ask>, no: Partial<Ask>, refusal?: Refusal): void {
  count += 1;
  const [operation, section, rule] = ALL[count % 3] as (typeof ALL)[number];
  file[section][`x${count}/$id`] = { [rule]: expression };
  const ask = (part: Partial<Ask>): Ask => ({ by: 'ann', operation, data: {}, ...part, name: `x${count}/${part.name ?? 'any'}` });
  row(`other records: ${expression}`, ask(yes), ask(no), refusal);
}

reference("_('x/' + $id).open", { name: 'open' }, { name: 'closed' });
reference("_('x/' + $id) === null", { name: 'missing' }, { name: 'open' });
reference("_('x/' + $id).open !== true", { name: 'closed' }, { name: 'missing' }, 'MESSAGE_PERMISSION_ERROR');
reference("_('x/' + data.item).open", { name: 'a', data: { item: 'open' } }, { name: 'b', data: { item: 'closed' } });
reference("_('x/' + user.id).admin", {}, { by: 'bob' });
reference("_('x/' + _('x/' + $id).to).open", { name: 'closed' }, { name: 'open' });
reference("_('x/' + _('x/' + $id).to).open === true", { name: 'first' }, { name: 'second' });
reference("$id === 'free' || _('x/' + _('x/' + _('x/' + $id).to).to).open", { name: 'free' }, { name: 'first' }, 'MESSAGE_PERMISSION_ERROR');
reference("[_('x/open').v, _('x/closed').v].includes(data.v)", { name: 'a', data: { v: 9 } }, { name: 'b', data: { v: 2 } });
reference("_('x/open').open && _('x/' + $id).open", { name: 'open' }, { name: 'closed' });
reference("data.v > _('x/open').v && data.v < _('x/closed').v", { name: 'a', data: { v: 5 } }, { name: 'b', data: { v: 9 } });
reference("_(data.name) === null", { name: 'a', data: { name: 'x/none' } }, { name: 'b', data: { name: 5 } }, 'MESSAGE_PERMISSION_ERROR');
reference("(_('x/' + $id) || { open: 1 }).open === 1", { name: 'none' }, { name: 'open' });

/** The rules file. JSON is valid YAML, so deepstream 10 reads this text unchanged. */
export const PERMISSIONS = JSON.stringify(file, null, 1);
