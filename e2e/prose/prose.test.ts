// No file contains a banned phrase, and the others are as rare as in good technical prose.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { files, findings, format, GROUPS, rate, read } from './count.ts';
import { countWords, passages } from './passage.ts';
import { BANNED, OBLIQUE } from './phrase.ts';

const namesIn = (path: string, content: string): string[] => findings(passages(path, content)).map(({ phrase }) => phrase.name);

/** Phrases of both lists in 10,000 words. */
const RATE_MAX = 2;

test('no file has a banned phrase, and few have others', (t) => {
  const text = read(files());
  const found = findings(text);
  assert.deepEqual(found.filter(({ isBanned }) => isBanned).map(format), []);
  for (const group of GROUPS) {
    const { words, count, per10000 } = rate(text, found, group);
    t.diagnostic(`${group}: ${per10000.toFixed(1)} phrases per 10,000 words (${count} in ${words})`);
    assert.ok(words > 10_000, `${group} is read`);
    assert.ok(per10000 <= RATE_MAX, found.filter(({ passage }) => passage.group === group).map(format).join('\n'));
  }
});

test('a planted sentence is found in each kind of file', () => {
  const planted = 'Closes the session: nobody may read it any more.';
  for (const [path, content] of [
    ['crates/planted/src/lib.rs', `/// ${planted}\nfn f() {}\n`],
    ['crates/planted/src/lib.rs', `fn f() { tracing::warn!("${planted}"); }\n`],
    ['crates/planted/src/lib.rs', `const HELP: &str = r#"${planted}"#;\n`],
    ['packages/planted/src/index.ts', `// Closes the session: nobody may\n// read it any more.\n`],
    ['packages/planted/src/index.ts', 'throw new Error(`' + planted.replace('it', '${name}') + '`);\n'],
    ['packages/planted/src/page.tsx', `const page = <p class="hint">${planted}</p>;\n`],
    ['packages/planted/public/index.html', `<p>${planted}</p>\n`],
    ['docs/planted.md', `# Planted\n\nCloses the session: nobody may\nread it any more.\n`],
    ['docs/planted.md', `| a | b |\n|---|---|\n| x | ${planted} |\n`],
    ['spec/errors.toml', `cause = "${planted}"\n`],
    ['tidewire.yml', `  # ${planted}\n`],
    ['Makefile', `close: ## ${planted}\n`],
    ['crates/planted/openapi.json', `"description": "${planted}"\n`],
  ] as const) {
    assert.deepEqual(namesIn(path, content), ['nobody', 'any more'], `${path}: ${content}`);
  }
});

test('code, names and addresses are not prose', () => {
  for (const [path, content] of [
    ['docs/planted.md', '```js\n// nobody\n```\n\nCall `nobody()`; see [the page](https://example.com/nobody).\n'],
    ['crates/planted/src/lib.rs', `/// \`nobody\`\nfn f() { let x = "nobody"; let c = '"'; }\nfn nobody<'a>(s: &'a str) {}\n`],
    ['crates/planted/src/lib.rs', `/// \`\`\`\n/// nobody.connect();\n/// \`\`\`\nfn f() {}\n`],
    ['crates/planted/tests/case.rs', `#[test]\nfn f() { send("a name that nobody has"); }\n`],
    ['packages/planted/src/index.ts', 'const found = /["\'`]nobody/.test(text); const name = `${nobody}`;\n'],
  ] as const) {
    assert.deepEqual(namesIn(path, content), [], content);
  }
});

for (const [name, sentence] of [
  ['somebody', 'Somebody is connected.'],
  ['nobody', 'Nobody subscribes.'],
  ['no one', 'No one subscribes.'],
  ['anyone', 'The server answers anyone.'],
  ['whoever', 'Sends it to whoever listens.'],
  ['whom', 'The user whom it concerns.'],
  ['so many', 'The server closes so many connections.'],
  ['is told', 'The client is told the reason.'],
  ['beside', 'The key is beside the certificate.'],
  ['lies in', 'The file lies in the data folder.'],
  ['any more', 'The store does not answer any more.'],
  ['that there is not', 'A topic that there is not.'],
  ['What is ... as a subject', 'What is stored does not pass its checksum.'],
  ['Who has ... as a subject', 'Who has no permission gets an error.'],
  ['it is not known who', 'It is not known who connects.'],
  ['what is ... as an object', 'The client sends what is missing.'],
  ['and what', 'The name and what it holds.'],
  ['who without a noun', 'The log says who connects.'],
  ['has the server keep', 'A client has the server keep a name.'],
  ['of its own', 'The store has a thread of its own.'],
  ['is none', 'The address is none.'],
  ['is no ...', 'The text is no JSON.'],
  ['is over', 'The token is over.'],
  ['nothing of', 'The server keeps nothing of it.'],
  ['stands', 'The name stands in the first column.'],
  ['goes on', 'The server goes on.'],
  ['anew', 'The connection is made anew.'],
  ['says so', 'The metric says so.'],
  ['is asked', 'The store is asked.'],
  ['judges', 'The rule judges the write.'],
  ['let in', 'The server lets them in.'],
  ['told apart', 'The client cannot tell them apart.'],
  ['meanwhile', 'The name was taken meanwhile.'],
  ['under way', 'A request is under way.'],
  ['left out', 'The session is left out.'],
  ['from now on', 'It counts from now on.'],
  ['has come', 'The message has come.'],
  ['is meant', 'The record is meant.'],
  ['looked at', 'The file is looked at.'],
  ['one after the other', 'Shards stop one after the other.'],
  ['those of', 'The limits are those of the server.'],
  ['mend', 'Mend the rule.'],
  ['wants', 'The client wants nothing.'],
] as const) {
  test(`"${name}" is found`, () => assert.ok(namesIn('docs/planted.md', sentence).includes(name), sentence));
}

test('each phrase has a sentence that shows it, and a name for itself', () => {
  const names = [...BANNED, ...OBLIQUE].map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  // The table above; a phrase that is added here is added there.
  assert.equal(names.length, 43);
});

test('plain sentences are clean', () => {
  for (const sentence of [
    'If the token has expired, the server closes the session.',
    'Revokes a user or credential and closes its sessions.',
    'Users who log in get an id.',
    'What is Tidewire?',
    'The stand-in answers.',
    'The server has no more permits than connections.',
  ]) {
    assert.deepEqual(namesIn('docs/planted.md', sentence), []);
    assert.ok(countWords(sentence) >= 3);
  }
});
