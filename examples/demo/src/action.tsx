// A button that stays where it is, with the focus, while it means nothing.

import type { ComponentChildren } from 'preact';

export interface ActionProps {
  isOff: boolean;
  act: () => void;
  children: ComponentChildren;
}

export function Action({ isOff, act, children }: ActionProps) {
  return (
    <button aria-disabled={isOff} onClick={() => isOff || act()}>
      {children}
    </button>
  );
}
