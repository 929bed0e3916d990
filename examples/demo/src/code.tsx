// The code of a card, as an app would write it.

import type { ComponentChildren } from 'preact';

/** On a wide page the code is open. */
const IS_WIDE = matchMedia('(min-width: 801px)').matches;

/** Comments, strings, keywords and numbers, and the text between them. */
const TOKENS = /(\/\/.*)|('[^']*')|\b(const|await|for|of|new|let)\b|\b(\d[\d_]*)\b/g;
const KINDS = ['', 'comment', 'string', 'keyword', 'number'];

function coloured(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const kind = match.findIndex((group, index) => index > 0 && group !== undefined);
    parts.push(text.slice(end, match.index), <span class={`code-${KINDS[kind]}`}>{match[0]}</span>);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

export function Code({ of, text }: { of: string; text: string }) {
  return (
    <details class="code" open={IS_WIDE}>
      <summary>Code of {of}</summary>
      {/* Long lines scroll, so the keyboard has to reach them. */}
      <pre tabIndex={0}>{coloured(text)}</pre>
    </details>
  );
}

export const LIST = `const client = new Client<App>()
await client.connect({ auth: { username } })

const list = client.record.open('todos')
list.subscribe((value) => draw(value))

// Shows at once, here and everywhere.
list.set(['items', id, 'done'], true)

// Refused edits are taken back.
await list.setWithAck(['items', id], entry)
  .catch(({ code }) => alert(code))`;

export const PRICE = `const price = client.record.open('prices', {
  merge: 'remote', // the first writer wins
})

price.subscribe('points', plot)

setInterval(() => {
  price.update(({ points = [] }) => ({
    points: [...points, next(points)],
  })).catch(() => {}) // another tab won
}, 500)`;

export const CALL = `// Every tab offers to throw ...
provide(client.rpc, 'throw', () => ({
  number: 1 + Math.floor(Math.random() * 6),
  by: 'ada',
}))

// ... and the server asks one of them.
const { by, number } =
  await client.rpc.call('throw')
console.log(by, 'threw', number)`;

export const BOTS = `const name = 'bots'
client.event.subscribe(name, (sent) => {
  if (sent.page !== page) return
  delays.push(performance.now() - sent.at)
})

for (const bot of bots) {
  setInterval(() => {
    const at = performance.now()
    client.event.emit(name, { page, at })
  }, 2_000)
}`;

export const CRASH = `const list = client.record.open('crash')
for (const id of ids) {
  list.setWithAck(id, true)
    .then(() => acknowledged.add(id))
}

// Like kill -9, and a start afterwards.
await fetch('/crash', { method: 'POST' })

// The client returns and sends the rest.
await list.saved()
const now = await other.record.get('crash')`;
