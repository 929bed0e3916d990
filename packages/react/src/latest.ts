// The values of a component's last render, for callbacks that outlive that render.

import { useInsertionEffect, useRef } from 'react';

export function useLatest<Value>(value: Value): { current: Value } {
  const latest = useRef(value);
  // Runs before all other effects, and only for a render that React commits.
  useInsertionEffect(() => {
    latest.current = value;
  });
  return latest;
}
