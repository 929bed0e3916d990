// Elements of a page in WebKit, located as in Playwright: by role and name, by label, by text, by selector.

import { eventually } from '../harness/wait.ts';
import type { Send } from './webkit-session.ts';

/** The functions of a page that its locators use. */
export interface Actor {
  evaluate(script: string): Promise<any>;
  /** Runs commands in the page's window. */
  act<T>(commands: (send: Send) => Promise<T>): Promise<T>;
}

type Words = string | RegExp;
/** One step of a locator: descendants of the elements found so far, or a subset of them. */
type Step =
  | { role: string; name?: Words | undefined; exact?: boolean | undefined }
  | { label: Words }
  | { text: Words }
  | { css: string }
  | { hasText: Words }
  | { and: Step[] }
  | { at: number };

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** Runs in the page: returns the elements of `steps`, in which a pattern is `{ source, flags }`. */
const FIND = `((steps) => {
  const roles = {
    button: 'button', checkbox: 'input[type=checkbox]', list: 'ul, ol', listitem: 'li', status: 'output', alert: '', heading: 'h1, h2, h3', img: 'img',
  };
  const normal = (text) => (text ?? '').replace(/\\s+/g, ' ').trim();
  const says = (text, words, exact) => {
    if (typeof words === 'object') return new RegExp(words.source, words.flags).test(text);
    return exact ? text === words : text.toLowerCase().includes(words.toLowerCase());
  };
  const labelled = (element) => (element.getAttribute('aria-labelledby') ?? '').split(' ').map((id) => document.getElementById(id)?.textContent).join(' ');
  const labels = (element) => element.getAttribute('aria-label') ?? (labelled(element) || [...(element.labels ?? [])].map((label) => label.textContent).join(' '));
  const name = (element) => normal(labels(element) || element.textContent);
  const isShown = (element) => element.getClientRects().length > 0;
  const below = (scopes, selector, wanted) => {
    const all = new Set(scopes.flatMap((scope) => [...scope.querySelectorAll(selector)]));
    return [...document.querySelectorAll('*')].filter((element) => all.has(element) && wanted(element));
  };
  const take = (scopes, step) => {
    if (step.role) {
      const selector = [roles[step.role], '[role=' + step.role + ']'].filter(Boolean).join(',');
      return below(scopes, selector, (element) => isShown(element) && (step.name === undefined || says(name(element), step.name, step.exact)));
    }
    if (step.label !== undefined) return below(scopes, 'input, textarea, select, [aria-label]', (element) => says(normal(labels(element)), step.label));
    if (step.text !== undefined) {
      const has = (element) => says(normal(element.textContent), step.text);
      return below(scopes, '*', (element) => has(element) && ![...element.children].some(has));
    }
    if (step.css !== undefined) return below(scopes, step.css, () => true);
    if (step.hasText !== undefined) return scopes.filter((element) => says(normal(element.textContent), step.hasText));
    if (step.and !== undefined) {
      const others = new Set(step.and.reduce(take, [document]));
      return scopes.filter((element) => others.has(element));
    }
    return scopes.slice(step.at, step.at + 1);
  };
  return steps.reduce(take, [document]);
})`;

export class Locator {
  constructor(
    private readonly page: Actor,
    private readonly steps: Step[] = [],
  ) {}

  getByRole(role: string, { name, exact }: { name?: Words; exact?: boolean } = {}): Locator {
    return this.#narrowed({ role, name, exact });
  }
  getByLabel(label: Words): Locator {
    return this.#narrowed({ label });
  }
  getByText(text: Words): Locator {
    return this.#narrowed({ text });
  }
  locator(css: string): Locator {
    return this.#narrowed({ css });
  }
  filter({ hasText }: { hasText: Words }): Locator {
    return this.#narrowed({ hasText });
  }
  and(other: Locator): Locator {
    return this.#narrowed({ and: other.steps });
  }
  first(): Locator {
    return this.nth(0);
  }
  nth(at: number): Locator {
    return this.#narrowed({ at });
  }

  /** Applies `use`, the source of a function, to the elements. */
  #all(use: string): Promise<any> {
    return this.page.evaluate(`(${use})(${FIND}(${JSON.stringify(this.steps, patterns)}))`);
  }
  /** Waits for exactly one element, and returns the result of `use`. */
  async #one(use: string): Promise<any> {
    let found: { count: number; value?: unknown } = { count: 0 };
    const look = `(found) => ({ count: found.length, value: found.length === 1 ? (${use})(found[0]) : undefined })`;
    const isThere = async (): Promise<boolean> => (found = await this.#all(look)).count === 1;
    await eventually(isThere, `the page has ${JSON.stringify(this.steps, patterns)}`).catch(({ message }: Error) => {
      throw new Error(`${message}; it has ${found.count}`);
    });
    return found.value;
  }
  /** Sends a command to the one element, as a user's action. */
  async #command(path: string, body: object): Promise<void> {
    await this.#one('(element) => element.scrollIntoView({ block: "nearest" })');
    await this.page.act(async (send) => {
      const script = `return ${FIND}(${JSON.stringify(this.steps, patterns)})[0]`;
      const element = (await send('POST', '/execute/sync', { script, args: [] })) as Record<string, string>;
      await send('POST', `/element/${element[ELEMENT]}${path}`, body);
    });
  }

  waitFor(): Promise<void> {
    return this.#one('(element) => { if (!element.getClientRects().length && element.textContent === "") throw new Error("nothing is shown") }');
  }
  count(): Promise<number> {
    return this.#all('(found) => found.length');
  }
  textContent(): Promise<string> {
    return this.#one('(element) => element.textContent');
  }
  allTextContents(): Promise<string[]> {
    return this.#all('(found) => found.map((element) => element.textContent)');
  }
  isChecked(): Promise<boolean> {
    return this.#one('(element) => element.checked');
  }
  focus(): Promise<void> {
    return this.#one('(element) => element.focus()');
  }
  click(): Promise<void> {
    return this.#command('/click', {});
  }
  tap(): Promise<void> {
    return this.click();
  }
  async setChecked(wanted: boolean): Promise<void> {
    if ((await this.isChecked()) !== wanted) await this.click();
  }
  check(): Promise<void> {
    return this.setChecked(true);
  }
  uncheck(): Promise<void> {
    return this.setChecked(false);
  }
  async fill(text: string): Promise<void> {
    await this.#one('(element) => { element.focus(); element.select() }');
    await this.#command('/value', { text });
  }

  #narrowed(step: Step): Locator {
    return new Locator(this.page, [...this.steps, step]);
  }
}

/** Serializes patterns in the format of `FIND`. */
function patterns(_: string, value: unknown): unknown {
  return value instanceof RegExp ? { source: value.source, flags: value.flags } : value;
}
