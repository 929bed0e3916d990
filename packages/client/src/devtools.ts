// A panel for developers at the bottom of a page, with what `inspect` records. A separate entry, `@tidewire/client/devtools`.

import type { Client } from './client.js';
import { inspect, type InspectedEntry, type Inspector } from './inspect.js';
import type { Schema } from './schema.js';

const NAME = 'tidewire-devtools';
/** Pending edits change without a message too, so the panel is drawn at this interval while it is open. */
const REDRAW_MS = 500;
/** The most rows of a view. */
const ROWS_MAX = 200;

/** Which entries a view shows; the view of pending edits shows no entries. */
const VIEWS: Record<string, (entry: InspectedEntry) => boolean> = {
  messages: () => true,
  pending: () => false,
  retries: ({ isRetry, kind }) => isRetry === true || kind === 'state',
  merges: ({ isMerge }) => isMerge === true,
  refusals: ({ code, kind }) => code !== undefined && kind !== 'state',
};

const STYLE = `
  :host { position: fixed; inset: auto 0 0 0; z-index: 2147483647; font: 12px/1.5 ui-monospace, monospace; color: #e8eaed; background: #202124; color-scheme: dark }
  header { display: flex; flex-wrap: wrap; gap: 4px; padding: 4px 8px; border-top: 1px solid #5f6368 }
  button, input { font: inherit; color: inherit; background: #303134; border: 1px solid #5f6368; border-radius: 4px; padding: 2px 8px }
  button[aria-pressed=true] { background: #174ea6 }
  input { flex: 1 1 8em; min-width: 4em }
  section { max-height: 40vh; overflow: auto }
  table { border-collapse: collapse; width: 100% }
  th, td { text-align: left; vertical-align: top; padding: 1px 8px; border-bottom: 1px solid #3c4043; overflow-wrap: anywhere }
  th { position: sticky; top: 0; background: #202124 }
  .bad td { color: #f6aea9 }
`;

/** Shows the panel for `client` at the end of `parent`, by default the body of the page; returns the removal. */
export function showDevtools<App extends Schema>(client: Client<App>, parent: Element = document.body): () => void {
  const isNew = customElements.get(NAME) === undefined;
  if (isNew) customElements.define(NAME, panelClass());
  const panel = document.createElement(NAME) as Panel;
  panel.inspector = inspect(client);
  parent.append(panel);
  return () => panel.remove();
}

interface Panel extends HTMLElement {
  inspector: Inspector | undefined;
}

/** The class of the element. It is made at the first use, because only pages have `HTMLElement`. */
function panelClass(): new () => Panel {
  return class extends HTMLElement implements Panel {
    inspector: Inspector | undefined;
    #view = 'messages';
    #isOpen = true;
    #timer: ReturnType<typeof setInterval> | undefined;
    #shown = '';
    readonly #buttons = new Map<string, HTMLButtonElement>();
    readonly #filter = document.createElement('input');
    readonly #body = document.createElement('section');

    connectedCallback(): void {
      if (!this.shadowRoot) this.#build(this.attachShadow({ mode: 'open' }));
      this.#draw();
      this.#timer = setInterval(() => this.#draw(), REDRAW_MS);
    }

    disconnectedCallback(): void {
      clearInterval(this.#timer);
    }

    #build(root: ShadowRoot): void {
      // Unlike a style element, this needs no permission by the policy of the page.
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(STYLE);
      root.adoptedStyleSheets = [sheet];
      this.setAttribute('role', 'region');
      this.setAttribute('aria-label', 'Tidewire devtools');
      const header = document.createElement('header');
      for (const view of Object.keys(VIEWS)) header.append(this.#button(view, () => (this.#view = view)));
      this.#filter.setAttribute('aria-label', 'Filter by name or action');
      this.#filter.placeholder = 'name or action';
      this.#filter.addEventListener('input', () => this.#draw());
      header.append(this.#filter, this.#button('hide', () => (this.#isOpen = !this.#isOpen)));
      this.#body.tabIndex = 0;
      this.#body.setAttribute('aria-label', 'Entries');
      root.append(header, this.#body);
    }

    #button(text: string, click: () => void): HTMLButtonElement {
      const button = document.createElement('button');
      button.textContent = text;
      button.addEventListener('click', () => {
        click();
        this.#draw();
      });
      this.#buttons.set(text, button);
      return button;
    }

    #draw(): void {
      for (const [text, button] of this.#buttons) button.setAttribute('aria-pressed', String(text === 'hide' ? !this.#isOpen : text === this.#view));
      this.#body.hidden = !this.#isOpen;
      if (!this.#isOpen || !this.inspector) return;
      const rows = (this.#view === 'pending' ? pendingRows(this.inspector) : this.#entryRows(this.inspector)).filter((row) => row.join(' ').includes(this.#filter.value));
      // A table that is drawn again would lose the selection of its text.
      const shown = JSON.stringify([this.#view, rows]);
      if (shown === this.#shown) return;
      this.#shown = shown;
      this.#body.replaceChildren(table(this.#view === 'pending' ? ['record', 'path', 'value', 'sent'] : ['time', '', 'what', 'name', 'data'], rows));
    }

    #entryRows({ entries }: Inspector): string[][] {
      const fits = VIEWS[this.#view] ?? (() => true);
      return entries.filter(fits).slice(-ROWS_MAX).reverse().map(entryRow);
    }
  };
}

function pendingRows({ pending }: Inspector): string[][] {
  return pending.flatMap(({ name, changes, isSent }) => {
    const sent = isSent ? 'yes' : 'no';
    if (changes.length === 0) return [[name, '', 'an update', sent]];
    return changes.map(({ path, value }) => [name, path === undefined ? '' : String(path), JSON.stringify(value) ?? 'removed', sent]);
  });
}

function entryRow({ at, kind, what, name = '', data = '', version, code, rule, isRetry, isMerge }: InspectedEntry): string[] {
  const marks = [code, isRetry && 'retry', isMerge && 'merge', version !== undefined && `version ${version}`].filter(Boolean).join(', ');
  const direction = { sent: '→', received: '←', state: 'state', error: 'error' }[kind];
  const by = rule === undefined ? '' : ` by ${rule}`;
  return [new Date(at).toISOString().slice(11, 23), direction, (marks === '' ? what : `${what} (${marks})`) + by, name, data];
}

function table(heads: string[], rows: string[][]): HTMLTableElement {
  const made = document.createElement('table');
  const head = made.createTHead().insertRow();
  for (const text of heads) {
    const cell = document.createElement('th');
    cell.textContent = text;
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    // The text of a refusal has its code, in capitals.
    if (row.some((text) => /\([A-Z][A-Z_]{3,}/.test(text))) line.className = 'bad';
    for (const text of row) line.insertCell().textContent = text;
  }
  return made;
}
