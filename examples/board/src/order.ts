// The order of cards: each has a number as its position, so that a move changes one card.

export interface Placed {
  readonly id: string;
  readonly position: number;
}

/**
 * The new positions for a card that moves to `index` among the `others` of its column. It is one position, between its neighbours; if there
 * is no number between them, all cards of the column get new ones.
 */
export function positions(others: readonly Placed[], id: string, index: number): Placed[] {
  const before = others[index - 1]?.position;
  const after = others[index]?.position;
  const position = before === undefined ? (after ?? 1) - 1 : after === undefined ? before + 1 : (before + after) / 2;
  if (position !== before && position !== after) return [{ id, position }];
  return others.toSpliced(index, 0, { id, position }).map((card, at) => ({ id: card.id, position: at }));
}
