// A button that keeps its place and its focus while it is disabled.

import type { ComponentChildren } from 'preact';

export interface ActionProps {
  isOff: boolean;
  act: () => void;
  /** Whether the button is the main one of its card, or does harm. */
  isMain?: boolean;
  isDanger?: boolean;
  children: ComponentChildren;
}

export function Action({ isOff, act, isMain, isDanger, children }: ActionProps) {
  return (
    <button class={isDanger ? 'danger' : isMain ? 'main' : ''} aria-disabled={isOff} onClick={() => isOff || act()}>
      {children}
    </button>
  );
}
