// A button that keeps its place and its focus while it is disabled.

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
