// Who sits before this tab. The server tells users apart by their ids, so that two tabs of one name are two users.

const FIRST = ['Amber', 'Blue', 'Calm', 'Dark', 'Early', 'Fine', 'Green', 'High', 'Keen', 'Light', 'Mild', 'Quiet', 'Red', 'Swift', 'Warm', 'Young'];
const LAST = ['Auk', 'Bear', 'Crane', 'Dolphin', 'Egret', 'Finch', 'Gull', 'Heron', 'Ibis', 'Kite', 'Lynx', 'Otter', 'Seal', 'Swan', 'Tern', 'Whale'];
const KEPT = 'tidewire-demo/name';
/** Different colours; the style sheet has one class for each. */
const COLOURS = 8;
export const NAME_CHARACTERS_MAX = 24;

const draw = (words: string[]): string => words[Math.floor(Math.random() * words.length)] ?? '';

/** The name of this tab, as it was before a reload, or a new one. */
export function keptName(): string {
  return sessionStorage.getItem(KEPT) ?? `${draw(FIRST)} ${draw(LAST)}`;
}

export function keepName(name: string): void {
  sessionStorage.setItem(KEPT, name);
}

/** A user id with this name that no other tab has. */
export function userId(name: string): string {
  return `${name}#${Math.random().toString(36).slice(2, 8)}`;
}

/** The name in a user id; ids of other programs are names as a whole. */
export function nameOf(user: string): string {
  const end = user.lastIndexOf('#');
  return end > 0 ? user.slice(0, end) : user;
}

/** The class of the colour that a user has in all tabs. */
export function colourOf(user: string): string {
  let sum = 0;
  for (const letter of user) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 65_521;
  return `colour-${sum % COLOURS}`;
}
