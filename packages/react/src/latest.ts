// What a component was drawn with last, for callbacks that live longer than one drawing.

import { useInsertionEffect, useRef } from 'react';

export function useLatest<Value>(value: Value): { current: Value } {
  const latest = useRef(value);
  // Before all other effects, and only of what is really shown.
  useInsertionEffect(() => {
    latest.current = value;
  });
  return latest;
}
