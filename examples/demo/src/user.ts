// The user of this tab. The server distinguishes users by their ids, so two tabs with the same name are two users.

const FIRST = ['Amber', 'Blue', 'Calm', 'Dark', 'Early', 'Fine', 'Green', 'High', 'Keen', 'Light', 'Mild', 'Quiet', 'Red', 'Swift', 'Warm', 'Young'];
const LAST = ['Auk', 'Bear', 'Crane', 'Dolphin', 'Egret', 'Finch', 'Gull', 'Heron', 'Ibis', 'Kite', 'Lynx', 'Otter', 'Seal', 'Swan', 'Tern', 'Whale'];
const KEPT = 'tidewire-demo/name';
/** The number of colours; the style sheet has one class for each. */
const COLOURS = 8;
export const NAME_CHARACTERS_MAX = 24;

const draw = (words: string[]): string => words[Math.floor(Math.random() * words.length)] ?? '';

/** The name of this tab: the name before a reload, or a new one. */
export function keptName(): string {
  return sessionStorage.getItem(KEPT) ?? `${draw(FIRST)} ${draw(LAST)}`;
}

export function keepName(name: string): void {
  sessionStorage.setItem(KEPT, name);
}

/** The name of the second user of the page: another one after each load. */
export function otherName(): string {
  return `${draw(FIRST)} ${draw(LAST)}`;
}

/** The name of the connections of bots, which are not people. */
export const BOT = 'Bots';

export function isBot(user: string): boolean {
  return nameOf(user) === BOT;
}

/** A user id that contains this name and that no other tab has. */
export function userId(name: string): string {
  return `${name}#${Math.random().toString(36).slice(2, 8)}`;
}

/** The name in a user id; ids of other programs are used as names. */
export function nameOf(user: string): string {
  const end = user.lastIndexOf('#');
  return end > 0 ? user.slice(0, end) : user;
}

/** The class of the colour that this user has in all tabs. */
export function colourOf(user: string): string {
  let sum = 0;
  for (const letter of user) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 65_521;
  return `colour-${sum % COLOURS}`;
}
